package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
)

// simCmd is `ringo sim`.
type simCmd struct {
	Op    *string `placeholder:"NAME" help:"The operation; allreduce if absent."`
	Algo  string  `placeholder:"LIST" help:"Algorithms to compare, or all; the one that would be chosen if absent."`
	Ranks *string `placeholder:"LIST" help:"Numbers of ranks; 8..512 is every fourfold between. 8 if absent."`
	Bytes *string `placeholder:"LIST" help:"Sizes of the full buffer, in the same way; 1KiB..1GiB if absent."`
	Trace string  `placeholder:"FILES" help:"Replay a step of a recorded training, see ringo trace, on the network."`
	Topo  string  `default:"hgx-h100" placeholder:"NAME" help:"The network: a name, or a JSON file."`
	Plot  string  `placeholder:"out.svg" help:"Draw bus bandwidth against bytes."`
	JSON  bool    `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo sim -h`.
func (*simCmd) Help() string {
	return `Runs a collective on a network that is not there, in virtual time: the algorithms that ranks use between processes, message by
message, without payload. So thousands of ranks need no more than this machine. Prints, for each number of ranks and bytes, time and
bus bandwidth (as ringo bench has them) of each algorithm, the bytes on the busiest link of each kind, and from which size on
another algorithm is the fastest.

  ringo sim -algo ring,double-tree,hierarchical -ranks 8..512 -topo rails -plot sim.svg
  ringo topo -json > here.json && ringo sim -ranks 2 -topo here.json      # links as they are between ranks on this machine
  ringo sim -trace trace-0.json,trace-1.json -topo rails                   # what a recorded step would take

With -trace, each rank computes as long as in the recording, and issues and awaits the same operations; the network is the topology's. It
prints the step of median length. In a recording of GPUs there are launches, and no computation: replay those of CPUs.

Topologies: ` + strings.Join(sim.Names(), " ") + `; folder dist/sim/topologies has their files.
Operations: ` + strings.Join(simOps(), " ") + `; parts of ranks are equal.

A ring of 1,024 ranks takes seconds, all sizes by several algorithms a minute. A ring of 16,384 ranks has half a billion messages, which
take some 6 minutes and 160 MB.

This compares the algorithms of package algo; it does not say what a library for GPUs will do, which has others (NVLS). The choice without
-algo is made for slow networks between hosts: compare it with all.`
}

func simOps() []string {
	var names []string
	for _, k := range sim.Kinds {
		names = append(names, k.String())
	}
	return names
}

// simReport is what `ringo sim -json` prints.
type simReport struct {
	Topology   *sim.Topology  `json:"topology"`
	Rows       []*sim.Result  `json:"rows"`       // by ranks, then algorithm, then bytes
	Crossovers []simCrossover `json:"crossovers"` // by ranks, then bytes
}

// simCrossover is an algorithm that is the fastest from some bytes on.
type simCrossover struct {
	Ranks int    `json:"ranks"`
	Bytes int    `json:"bytes"`
	Algo  string `json:"algo"`
}

// simCase is a simulation.
type simCase struct {
	algo         string
	ranks, bytes int
}

// Run simulates what the flags say.
func (c *simCmd) Run() error {
	if c.Trace != "" {
		return c.replay()
	}
	top, kind, cases, err := c.cases()
	if err != nil {
		return err
	}
	report, out := &simReport{Topology: top}, bufio.NewWriter(os.Stdout)
	if c.JSON {
		out.Reset(io.Discard)
	}
	width := 0
	for _, x := range cases {
		width = max(width, len(x.algo))
	}
	fmt.Fprintf(out, "%v on %s\n%6s  %-*s  %6s  %12s  %8s  busiest links\n", kind, top.Name, "ranks", max(width, 9), "algorithm", "bytes",
		"time", "GB/s")
	_ = out.Flush() // it keeps its error
	err = simulate(top, kind, cases, func(r *sim.Result) {
		report.Rows = append(report.Rows, r)
		fmt.Fprintf(out, "%6d  %-*s  %6s  %12v  %8.2f  %s\n", r.Ranks, max(width, 9), r.Algo, sizeName(r.Bytes), r.Time, r.BusGBs, busiest(r))
		_ = out.Flush()
	})
	if err != nil {
		return err
	}
	report.Crossovers = crossovers(report.Rows)
	if c.JSON {
		err = printJSON(report)
	} else if c.Algo != "" {
		writeCrossovers(out, report.Crossovers)
	}
	if err == nil && c.Plot != "" {
		err = c.draw(report)
	}
	return cmp.Or(err, out.Flush())
}

// cases reads the command line.
func (c *simCmd) cases() (top *sim.Topology, kind backend.Kind, cases []simCase, err error) {
	i := slices.Index(simOps(), or(c.Op, "allreduce"))
	if i < 0 {
		return nil, 0, nil, usageOf("sim", "-op %q cannot be simulated; these can: %s", *c.Op, strings.Join(simOps(), ", "))
	}
	kind = sim.Kinds[i]
	names, has := split(c.Algo), algo.Names(kind)
	switch {
	case c.Algo == "":
		names = []string{""}
	case c.Algo == "all":
		names = has
	}
	for _, name := range names {
		if name != "" && !slices.Contains(has, name) {
			return nil, 0, nil, usageOf("sim", "-algo %q cannot do %v, which has: %s", name, kind, strings.Join(has, ", "))
		}
	}
	if c.Plot != "" && (!strings.HasSuffix(c.Plot, ".svg") || kind == backend.Barrier) {
		return nil, 0, nil, usageOf("sim", "-plot %s: the name must end in .svg, and a barrier has no bandwidth", c.Plot)
	}
	if top, err = sim.Open(c.Topo); err != nil {
		return nil, 0, nil, usageOf("sim", "-topo: %v", err)
	}
	count, bytes := or(c.Ranks, "8"), or(c.Bytes, "1KiB..1GiB")
	ranks, wrong := ranged(count, "..")
	sizes, bad := ranged(bytes, "..")
	switch {
	case len(names) == 0:
		return nil, 0, nil, usageOf("sim", "-algo %s names nothing", c.Algo)
	case wrong != "" || len(ranks) == 0:
		return nil, 0, nil, usageOf("sim", "-ranks %s: %q is neither a number nor a range such as 8..512", count, wrong)
	case bad != "" || len(sizes) == 0:
		return nil, 0, nil, usageOf("sim", "-bytes %s: %q is neither a size such as 64K nor a range such as 1KiB..1GiB", bytes, bad)
	case kind == backend.Barrier:
		sizes = sizes[:1]
	}
	for _, n := range ranks {
		if err := top.Fits(n); err != nil {
			return nil, 0, nil, usageOf("sim", "-ranks %s: %v", count, err)
		}
		for _, name := range names {
			for _, b := range sizes {
				cases = append(cases, simCase{name, n, b})
			}
		}
	}
	return top, kind, cases, nil
}

// simulate runs the cases, as many at a time as there are cores, and emits the results in order.
func simulate(top *sim.Topology, kind backend.Kind, cases []simCase, emit func(*sim.Result)) error {
	type outcome struct {
		r   *sim.Result
		err error
	}
	slots, results := make(chan struct{}, runtime.GOMAXPROCS(0)), make([]chan outcome, len(cases))
	for i := range cases {
		results[i] = make(chan outcome, 1)
	}
	go func() {
		for i, x := range cases {
			slots <- struct{}{}
			go func() {
				r, err := top.Run(kind, x.algo, x.ranks, x.bytes)
				results[i] <- outcome{r, err}
				<-slots
			}()
		}
	}()
	for _, c := range results {
		x := <-c
		if x.err != nil {
			return x.err
		}
		emit(x.r)
	}
	return nil
}

// busiest writes the bytes on the busiest link of each kind, such as "nvlink 14M, nic 2M".
func busiest(r *sim.Result) string {
	var parts []string
	for _, l := range r.Links {
		if l.Most > 0 {
			parts = append(parts, l.Link+" "+viz.Roughly(l.Most))
		}
	}
	return strings.Join(parts, ", ")
}

// crossovers returns the fastest algorithm of each number of ranks, and where it changes.
func crossovers(rows []*sim.Result) []simCrossover {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *sim.Result) int {
		return cmp.Or(cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Time, b.Time))
	})
	var out []simCrossover
	for i, r := range rows {
		if i > 0 && rows[i-1].Ranks == r.Ranks && rows[i-1].Bytes == r.Bytes {
			continue // a slower one
		}
		if last := len(out) - 1; last < 0 || out[last].Ranks != r.Ranks || out[last].Algo != r.Algo {
			out = append(out, simCrossover{r.Ranks, r.Bytes, r.Algo})
		}
	}
	return out
}

func writeCrossovers(out io.Writer, list []simCrossover) {
	fmt.Fprintln(out, "\nthe fastest:")
	for i, x := range list {
		if i == 0 || list[i-1].Ranks != x.Ranks {
			fmt.Fprintf(out, "%6d ranks: %s", x.Ranks, x.Algo)
		} else {
			fmt.Fprintf(out, ", from %s %s", sizeName(x.Bytes), x.Algo)
		}
		if i == len(list)-1 || list[i+1].Ranks != x.Ranks {
			fmt.Fprintln(out)
		}
	}
}

// draw writes the picture: a line for each algorithm and number of ranks.
func (c *simCmd) draw(report *simReport) error {
	var all [][]benchRow
	for i, r := range report.Rows {
		if last := report.Rows[max(i-1, 0)]; i == 0 || last.Ranks != r.Ranks || last.Bytes >= r.Bytes {
			all = append(all, nil)
		}
		row := benchRow{Op: r.Op, Algo: r.Algo, Ranks: r.Ranks, Bytes: r.Bytes, Backend: report.Topology.Name, BusBW: r.BusGBs}
		all[len(all)-1] = append(all[len(all)-1], row)
	}
	return plotBench(c.Plot, all)
}
