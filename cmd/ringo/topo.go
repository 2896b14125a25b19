package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/ringo-ml/ringo/cmd/ringo/viz"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/tensor"
)

// topoCmd is `ringo topo`.
type topoCmd struct {
	Ranks   *int   `placeholder:"N" help:"Ranks to start on this host; one per core, 4 at most, if absent."`
	Backend string `default:"shm" placeholder:"NAME" help:"local (goroutines), shm or tcp (processes)."`
	JSON    bool   `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo topo -h`.
func (*topoCmd) Help() string {
	return `Shows the hosts of a job with their cores, NUMA nodes and caches (on Linux, from /sys), their GPUs with the links between them
(with NVML, which comes with NVIDIA's driver; in the words of nvidia-smi topo -m), measures latency (half a round trip
of 4 bytes) and bandwidth (8 messages of 1 MiB in flight, one pair of ranks at a time) from each rank to each other, and says
which meshes suit the ranks: tensor parallel inside a host, among GPUs with NVLink, data and pipeline parallel across.

  ringo topo -ranks 4
  ringo run -rdzv node0:29400 -nodes 2 -n 4 ringo topo      # of a job: ringo topo is one rank of it

Under a launcher -ranks and -backend are the launcher's, and rank 0 prints: -json needs ringo run -raw.`
}

// topology is what `ringo topo -json` prints.
type topology struct {
	Ranks     int         `json:"ranks"`
	Backend   string      `json:"backend"` // the engine that moved the bytes
	Hosts     []hostInfo  `json:"hosts"`
	LatencyUS [][]float64 `json:"latency_us"`    // [from][to]
	Bandwidth [][]float64 `json:"bandwidth_gbs"` // [from][to], in 10⁹ bytes per second
	Meshes    []placement `json:"meshes"`        // the simplest first
	Notes     []string    `json:"notes,omitempty"`
}

// placement is a mesh and when to use it.
type placement struct {
	Mesh string `json:"mesh"`
	When string `json:"when"`
}

// Run prints the topology.
func (c *topoCmd) Run() error {
	env, err := launch.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	n := min(max(runtime.NumCPU(), 2), 4)
	if c.Ranks != nil {
		n = *c.Ranks
	}
	switch {
	case n < 1 || n > 1024:
		return usageOf("topo", "-ranks %d: want 1 to 1024", n)
	case !slices.Contains([]string{"local", "shm", "tcp"}, c.Backend):
		return usageOf("topo", "-backend %q is not local, shm or tcp", c.Backend)
	case env.Source != "" && c.Ranks != nil && n != env.Size:
		return usageOf("topo", "-ranks %d, but %s started %d", n, env.Source, env.Size)
	}
	if env.Source != "" {
		return dist.Run(context.Background(), dist.Config{Log: os.Stderr}, func(_ context.Context, r *dist.Rank) error {
			return topoRank(r, c.print)
		})
	}
	if c.Backend == "local" || runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		cfg := dist.Config{Ranks: n, Exact: true, Threads: 1, Timeout: opTimeout, Log: os.Stderr}
		return dist.Run(ctx, cfg, func(_ context.Context, r *dist.Rank) error { return topoRank(r, c.print) })
	}
	var failed error
	err = runRanks(benchSpec{Topo: true, Backend: c.Backend}, n, opTimeout, os.Stderr, func(_ int, line []byte) bool {
		var t topology
		if json.Unmarshal(line, &t) != nil {
			return false
		}
		failed = c.print(&t)
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}

func (c *topoCmd) print(t *topology) error {
	if !c.JSON {
		t.write(os.Stdout)
		return nil
	}
	return printJSON(t)
}

// topoRank measures the links to the other ranks. Rank 0 gives the result to emit.
func topoRank(r *dist.Rank, emit func(*topology) error) error {
	hosts, err := dist.AllGatherObject(r.World, thisHost())
	if err != nil {
		return err
	}
	n := r.World.Size()
	t := &topology{Ranks: n, LatencyUS: square(n), Bandwidth: square(n)}
	hostOf := make([]int, n)
	for rank, h := range hosts {
		i := slices.IndexFunc(t.Hosts, func(other hostInfo) bool { return other.Key == h.Key })
		if i < 0 {
			i = len(t.Hosts)
			t.Hosts = append(t.Hosts, h)
		}
		t.Hosts[i].Ranks = append(t.Hosts[i].Ranks, rank)
		hostOf[rank] = i
	}
	if err := t.addGPUs(r.World, hostOf); err != nil {
		return err
	}
	l := &linkMeter{g: r.World.With(dist.Name("links")), x: r.Alloc(tensor.Float32, linkBytes/4)}
	for from := range n {
		for to := range n {
			if from == to {
				continue
			}
			lat, bw, err := l.measure(from, to)
			if err != nil {
				return err
			}
			t.LatencyUS[from][to], t.Bandwidth[from][to] = lat, bw
		}
	}
	all, err := dist.AllGatherObject(r.World, *t)
	if err != nil || r.World.Rank() != 0 {
		return err
	}
	for from := range n { // the sender has measured
		t.LatencyUS[from], t.Bandwidth[from] = all[from].LatencyUS[from], all[from].Bandwidth[from]
	}
	t.Backend = l.g.Engine()
	return emit(t)
}

// addGPUs makes the first rank of each host look for its GPUs, and computes meshes for all of them.
func (t *topology) addGPUs(g *dist.Group, hostOf []int) error {
	all, err := dist.AllGatherObject(g, gpusOfHost(t.Hosts, g.Rank()))
	if err != nil {
		return err
	}
	for i := range t.Hosts {
		found := all[t.Hosts[i].Ranks[0]]
		t.Hosts[i].GPUs, t.Hosts[i].Notes = found.GPUs, found.Notes
	}
	t.Meshes, t.Notes = placements(hostOf, nearRanks(t.Hosts)), gpuNotes(t.Hosts)
	return nil
}

func square(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}

const (
	linkBytes  = 1 << 20
	linkWindow = 8 // messages in flight
	linkRounds = 4 // windows; the best one counts
	linkPings  = 100
)

// linkMeter measures one link at a time; the other ranks wait.
type linkMeter struct {
	g *dist.Group
	x tensor.Tensor
}

// measure returns the µs and GB/s from one rank to another. Only the sending rank knows them; others get zeros.
func (l *linkMeter) measure(from, to int) (latency, bandwidth float64, err error) {
	if err := l.g.Barrier().Wait(); err != nil {
		return 0, 0, err
	}
	small := first(l.x, 1)
	switch l.g.Rank() {
	case from:
		return l.send(to, small)
	case to:
		for range linkPings {
			if err := l.ping(from, small, false); err != nil {
				return 0, 0, err
			}
		}
		for range linkRounds {
			if err := window(func() dist.Work { return l.g.Recv(l.x, from, 0) }); err != nil {
				return 0, 0, err
			}
			if err := l.g.Send(small, from, 0).Wait(); err != nil {
				return 0, 0, err
			}
		}
	}
	return 0, 0, nil
}

// send is the part of measure on the sending rank.
func (l *linkMeter) send(to int, small tensor.Tensor) (latency, bandwidth float64, err error) {
	var times []time.Duration
	for range linkPings {
		start := time.Now()
		if err := l.ping(to, small, true); err != nil {
			return 0, 0, err
		}
		times = append(times, time.Since(start))
	}
	slices.SortFunc(times, cmp.Compare[time.Duration])
	for range linkRounds {
		start := time.Now()
		if err := window(func() dist.Work { return l.g.Send(l.x, to, 0) }); err != nil {
			return 0, 0, err
		}
		if err := l.g.Recv(small, to, 0).Wait(); err != nil {
			return 0, 0, err
		}
		bandwidth = max(bandwidth, linkWindow*linkBytes/time.Since(start).Seconds()/1e9)
	}
	return times[len(times)/2].Seconds() * 1e6 / 2, bandwidth, nil
}

// ping sends 4 bytes and receives them back; if first is false, it receives first.
func (l *linkMeter) ping(peer int, x tensor.Tensor, first bool) error {
	if first {
		if err := l.g.Send(x, peer, 0).Wait(); err != nil {
			return err
		}
		return l.g.Recv(x, peer, 0).Wait()
	}
	if err := l.g.Recv(x, peer, 0).Wait(); err != nil {
		return err
	}
	return l.g.Send(x, peer, 0).Wait()
}

// window issues some messages, then waits for all.
func window(issue func() dist.Work) error {
	var works [linkWindow]dist.Work
	for i := range works {
		works[i] = issue()
	}
	for _, w := range works {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// write prints the topology as text.
func (t *topology) write(out io.Writer) {
	for i, h := range t.Hosts {
		fmt.Fprintf(out, "host %d: %s, ranks %s\n", i, h.Host, numbers(h.Ranks))
		for _, line := range h.lines() {
			fmt.Fprintf(out, "  %s\n", line)
		}
		h.writeGPUs(out)
	}
	fmt.Fprintf(out, "\n%s, %s\n", viz.Counted(t.Ranks, "rank"), t.Backend)
	writeMatrix(out, "µs", t.LatencyUS)
	writeMatrix(out, "GB/s", t.Bandwidth)
	fmt.Fprintln(out, "\nmeshes (ranks of the last axis are neighbors):")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, p := range t.Meshes {
		fmt.Fprintf(w, "  %s\t%s\n", p.Mesh, p.When)
	}
	_ = w.Flush() // errors are ignored, as with other prints
	for _, note := range t.Notes {
		fmt.Fprintf(out, "  %s\n", note)
	}
}

func writeMatrix(out io.Writer, unit string, m [][]float64) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := []string{unit + ", from"}
	for to := range m {
		head = append(head, fmt.Sprintf("to %d", to))
	}
	fmt.Fprintln(w, strings.Join(head, "\t")+"\t")
	for from, row := range m {
		cells := []string{fmt.Sprint(from)}
		for to, x := range row {
			if from == to {
				cells = append(cells, "–")
			} else {
				cells = append(cells, us(x))
			}
		}
		fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	_ = w.Flush() // errors are ignored, as with other prints
}

// numbers writes a list such as 0-3,6.
func numbers(x []int) string {
	var parts []string
	for i := 0; i < len(x); {
		j := i
		for j+1 < len(x) && x[j+1] == x[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d-%d", x[i], x[j]))
		} else {
			parts = append(parts, fmt.Sprint(x[i]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
