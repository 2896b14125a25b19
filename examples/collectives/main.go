// Command collectives is a cheat sheet: it runs every collective and prints the values of each rank before and after. Element i of rank r
// is 10r + i. Rank 0 is the root.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("collectives: ")
	ranks := flag.Uint("ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || flag.NArg() > 0 {
		log.Printf("-ranks must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: int(*ranks), Device: *device, Log: os.Stdout}); err != nil {
		log.Fatal(err)
	}
}

// demo is a collective: the values of every rank before it, those it must have after it, and the call. dst begins as a copy of src, for the
// collectives that work in place. A rank without values passes the zero Tensor.
type demo struct {
	name, does    string
	before, after values
	call          func(g *dist.Group, dst, src tensor.Tensor) dist.Work
}

// values are the values of rank r of n: their number, and the i-th one.
type values struct {
	count func(r, n int) int
	at    func(r, n, i int) int
}

func demos() []demo {
	all := func(_, n int) int { return n }
	one := func(_, _ int) int { return 1 }
	root := func(r, n int) int { return n * max(0, 1-r) } // only on rank 0
	own := func(r, _, i int) int { return 10*r + i }
	ofRoot := func(_, _, i int) int { return i }
	sum := func(_, n, i int) int { return 5*n*(n-1) + n*i } // of 10r + i over all ranks
	sumOnRoot := func(r, n, i int) int {
		if r > 0 {
			return own(r, n, i) // unchanged
		}
		return sum(r, n, i)
	}
	mine := func(x func(r, n, i int) int) values { return values{one, func(r, n, _ int) int { return x(r, n, r) }} }
	column := func(r, _, i int) int { return 10*i + r }
	first := func(_, _, i int) int { return 10 * i }
	return []demo{
		{"Broadcast", "the root's values, on all", values{all, own}, values{all, ofRoot},
			func(g *dist.Group, dst, _ tensor.Tensor) dist.Work { return g.Broadcast(dst, 0) }},
		{"Reduce", "the sum, on the root alone", values{all, own}, values{all, sumOnRoot},
			func(g *dist.Group, dst, _ tensor.Tensor) dist.Work { return g.Reduce(dst, dist.Sum, 0) }},
		{"AllReduce", "the sum, on all", values{all, own}, values{all, sum},
			func(g *dist.Group, dst, _ tensor.Tensor) dist.Work { return g.AllReduce(dst, dist.Sum) }},
		{"Gather", "everyone's part, on the root", values{one, own}, values{root, first},
			func(g *dist.Group, dst, src tensor.Tensor) dist.Work { return g.Gather(dst, src, 0) }},
		{"AllGather", "everyone's part, on all", values{one, own}, values{all, first}, (*dist.Group).AllGather},
		{"Scatter", "part r of the root's values, on rank r", values{root, own}, mine(ofRoot),
			func(g *dist.Group, dst, src tensor.Tensor) dist.Work { return g.Scatter(dst, src, 0) }},
		{"ReduceScatter", "part r of the sum, on rank r", values{all, own}, mine(sum),
			func(g *dist.Group, dst, src tensor.Tensor) dist.Work { return g.ReduceScatter(dst, src, dist.Sum) }},
		{"AllToAll", "part r of everyone's values, on rank r", values{all, own}, values{all, column}, (*dist.Group).AllToAll},
	}
}

// list returns the values of a rank.
func (v values) list(r, n int) []float32 {
	x := make([]float32, v.count(r, n))
	for i := range x {
		x[i] = float32(v.at(r, n, i))
	}
	return x
}

func run(cfg dist.Config) error {
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		for _, d := range append(demos(), unequal()...) {
			if err := d.show(r); err != nil {
				return err
			}
		}
		return r.World.Barrier().Wait() // nothing to print: no rank continues before all are here
	})
}

// show runs a collective, checks this rank's result, and prints all ranks' values on rank 0.
func (d demo) show(r *dist.Rank) error {
	rank, n := r.World.Rank(), r.World.Size()
	src, want := d.before.list(rank, n), d.after.list(rank, n)
	dst := make([]float32, len(want))
	copy(dst, src)
	to := vector(r, dst)
	if err := d.call(r.World, to, vector(r, src)).Wait(); err != nil {
		return err
	}
	if len(dst) > 0 {
		dst = tensor.Data[float32](tensor.ToHost(to))
	}
	if !slices.Equal(dst, want) {
		return fmt.Errorf("%s gave %v, not %v", d.name, dst, want)
	}
	rows, err := dist.AllGatherObject(r.World, [2]string{text(src), text(dst)})
	if err != nil {
		return err
	}
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	r.Logf("%s: %s", d.name, d.does)
	for i, row := range rows {
		r.Logf("  rank %d  %-*s  →  %s", i, width, row[0], row[1])
	}
	return nil
}

// vector returns the zero Tensor if there are no values, else a tensor that the rank's device can use.
func vector(r *dist.Rank, x []float32) tensor.Tensor {
	if len(x) == 0 {
		return tensor.Tensor{}
	}
	return tensor.ToDevice(r.Device, tensor.FromSlice(x, len(x)))
}

func text(x []float32) string {
	s := ""
	for _, v := range x {
		s += fmt.Sprintf("%4.0f", v)
	}
	if s == "" {
		return "   –"
	}
	return s
}
