package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	fitRounds = 9                    // in each round all candidates run in turn
	fitTurn   = 4 * time.Millisecond // time of one candidate in a round
	fitGain   = 1.1                  // another algorithm must be so much faster than the plain one
	fitWins   = 8                    // in at least so many rounds
)

var (
	fitSizes = []int{1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20}
	fitRanks = []int{2, 3, 4}
	// fitOps are the operations that have a choice. The V forms of two of them get the same rules. alltoallv keeps the plain algorithm:
	// its sizes differ between ranks, so they cannot decide.
	fitOps   = []string{"allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "barrier"}
	fitVForm = map[string]string{"allgather": "allgatherv", "reducescatter": "reducescatterv"}
)

// fitPoint is the times of all candidates for one operation of one size.
type fitPoint struct {
	Op    string
	Ranks int
	Hosts int
	Bytes int
	US    map[string][]float64 // µs of each algorithm, by round
}

// benchFit measures the candidates and writes the table to out.
func benchFit(out, progress io.Writer) error {
	var points []fitPoint
	for _, hosts := range []int{1, 2} {
		if why := noHosts(); hosts > 1 && why != "" {
			fmt.Fprintf(progress, "several hosts: not measured, the model decides: %s\n", why)
			continue
		}
		for _, n := range fitRanks {
			spec := benchSpec{Ops: fitOps, Sizes: fitSizes, Backend: "tcp", Fit: hosts}
			take := func(_ int, line []byte) bool {
				var p fitPoint
				if json.Unmarshal(line, &p) != nil || p.US == nil {
					return false
				}
				points = append(points, p)
				fmt.Fprintf(progress, "%d hosts, %d ranks: %s of %s: %s\n", p.Hosts, p.Ranks, p.Op, sizeName(p.Bytes), times(p.US))
				return true
			}
			run := runRanks
			if hosts > 1 {
				run = runOnHosts
			}
			if err := run(spec, n, opTimeout, os.Stderr, take); err != nil {
				return err
			}
		}
	}
	host := thisHost()
	made := fmt.Sprintf("%s by ringo bench -fit on %s, %d cores, %s, %s", time.Now().UTC().Format(time.DateOnly), host.CPU, host.Cores,
		host.OS, runtime.Version())
	_, err := out.Write((&algo.Table{Made: made, Measured: fitAreas(points), Rules: fitRules(points)}).Encode())
	return err
}

func times(us map[string][]float64) string {
	var text string
	for _, name := range slices.Sorted(maps.Keys(us)) {
		text += fmt.Sprintf(" %s %.1f", name, median(us[name]))
	}
	return text + " µs"
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(x))[len(x)/2]
}

// plainAlgo is the algorithm that is used unless another one is clearly faster.
func plainAlgo(k backend.Kind) string {
	if k == backend.AllReduce {
		return "direct" // here all ranks do the same amount of work
	}
	return "linear"
}

// candidates returns the algorithms of a kind that differ over messages. Inside a host, reductions must be in rank order.
func candidates(k backend.Kind, hosts int) []string {
	return slices.DeleteFunc(algo.Names(k), func(name string) bool {
		return k != backend.AllReduce && name == "direct" || hosts == 1 && k.Reduces() && !algo.InRankOrder(name)
	})
}

// fitRank measures on one rank; rank 0 emits the points.
func fitRank(r *dist.Rank, spec *benchSpec, emit func(fitPoint) error) error {
	n := r.World.Size()
	count := slices.Max(spec.Sizes)/4 + 2*n
	b := &bencher{r: r, spec: spec, control: r.World.With(dist.Name("control"))}
	b.x, b.y = tensor.New(r.Device, tensor.Float32, count), tensor.New(r.Device, tensor.Float32, count)
	for _, name := range spec.Ops {
		op := findBenchOp(name)
		sizes := spec.Sizes
		if name == "barrier" {
			sizes = []int{0, 1} // a barrier has no size: measure it twice
		}
		for _, size := range sizes {
			us, err := b.compare(op, candidates(op.kind, spec.Fit), size)
			if err == nil && r.World.Rank() == 0 {
				err = emit(fitPoint{name, n, spec.Fit, size, us})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// compare measures algorithms in turn and returns the µs of each round.
func (b *bencher) compare(op *benchOp, names []string, size int) (map[string][]float64, error) {
	cases := make([]*benchCase, len(names))
	for i, name := range names {
		g := b.r.World.With(dist.Name("fit"), dist.Algo(op.name+":"+name))
		cases[i] = newCase(op, g, size, b.x, b.y)
	}
	clear(tensor.Data[float32](b.x))
	clear(tensor.Data[float32](b.y))
	all := map[string][]float64{}
	for range fitRounds {
		for i, c := range cases {
			_, calls, err := b.plan(c, fitTurn, 1)
			if err != nil {
				return nil, err
			}
			us, err := b.blocks(c, 1, calls)
			if err != nil {
				return nil, err
			}
			all[names[i]] = append(all[names[i]], us...)
		}
	}
	for _, c := range cases {
		if err := c.g.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// fitAreas returns what was measured. Inside a host, larger buffers use the rule of the largest measured size; between hosts they do not,
// see algo.Area.
func fitAreas(points []fitPoint) []algo.Area {
	var areas []algo.Area
	for _, hosts := range []int{1, 2} {
		a := algo.Area{Ranks: [2]int{fitRanks[0], fitRanks[len(fitRanks)-1]}, Hosts: [2]int{hosts, hosts}}
		if hosts > 1 {
			a.Max = fitSizes[len(fitSizes)-1]
		}
		if slices.ContainsFunc(points, func(p fitPoint) bool { return p.Hosts == hosts }) {
			areas = append(areas, a)
		}
	}
	return areas
}

// fitRules makes the rules from the measurements.
func fitRules(points []fitPoint) []algo.Rule {
	var rules []algo.Rule
	for _, op := range fitOps {
		for _, hosts := range []int{1, 2} {
			rules = append(rules, fitBands(op, hosts, points)...)
		}
		if v, ok := fitVForm[op]; ok {
			for _, r := range rules {
				if r.Op == op {
					r.Op = v
					rules = append(rules, r)
				}
			}
		}
	}
	return rules
}

// fitBands makes the rules of an operation: one band for each number of ranks. Bands with the same choices become one.
func fitBands(op string, hosts int, points []fitPoint) []algo.Rule {
	kind, _ := algo.KindOf(op) // op is one of fitOps, so it exists
	var rules []algo.Rule
	for _, n := range fitRanks {
		var some []fitPoint
		for _, p := range points {
			if p.Op == op && p.Hosts == hosts && p.Ranks == n {
				some = append(some, p)
			}
		}
		use := fitUse(plainAlgo(kind), some)
		if last := len(rules) - 1; last >= 0 && slices.Equal(rules[last].Use, use) {
			rules[last].Ranks[1] = n
			continue
		}
		rules = append(rules, algo.Rule{Op: op, Ranks: [2]int{n, n}, Hosts: [2]int{hosts, hosts}, Use: use})
	}
	return slices.DeleteFunc(rules, func(r algo.Rule) bool { // the default needs no rule
		return len(r.Use) == 1 && r.Use[0].Algo == "linear"
	})
}

// clearlyFaster compares two algorithms round by round, so that a busy moment of the machine affects both.
func clearlyFaster(name, plain []float64) bool {
	wins := 0
	for i := range min(len(name), len(plain)) {
		if plain[i] >= fitGain*name[i] {
			wins++
		}
	}
	return wins >= fitWins
}

// fitUse chooses by size. An algorithm must be clearly faster than the plain one at two consecutive sizes.
func fitUse(plain string, points []fitPoint) []algo.Use {
	slices.SortStableFunc(points, func(a, b fitPoint) int { return a.Bytes - b.Bytes })
	faster := func(i int, name string) bool {
		return i >= 0 && i < len(points) && clearlyFaster(points[i].US[name], points[i].US[plain])
	}
	var use []algo.Use
	for i, p := range points {
		best := plain
		for _, name := range slices.Sorted(maps.Keys(p.US)) {
			if faster(i, name) && (faster(i-1, name) || faster(i+1, name)) && median(p.US[name]) < median(p.US[best]) {
				best = name
			}
		}
		last := len(use) - 1
		switch {
		case last < 0:
			use = append(use, algo.Use{Algo: best})
		case use[last].Algo != best:
			use[last].Max = between(points[i-1].Bytes, p.Bytes)
			use = append(use, algo.Use{Algo: best})
		}
	}
	if use == nil {
		use = []algo.Use{{Algo: plain}}
	}
	return use
}

// between returns a power of two about in the middle between two sizes.
func between(a, b int) int {
	return 1 << (bits.Len(uint(math.Sqrt(float64(max(a, 1))*float64(b)))) - 1)
}
