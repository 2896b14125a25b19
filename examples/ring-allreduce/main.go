// Command ring-allreduce is an all-reduce written only with Send and Recv. Slices of the buffer go around the ring twice: first they are
// summed (reduce-scatter), then every rank gets the sums (all-gather). Ringo's own is dist/algo/ring.go.
package main

import (
	"context"
	"errors"
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
	log.SetPrefix("ring-allreduce: ")
	ranks := flag.Uint("ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	count := flag.Uint("n", 10, "elements of the buffer; they need not divide by the ranks")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || flag.NArg() > 0 {
		log.Printf("-ranks must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: int(*ranks), Device: *device, Log: os.Stdout}, int(*count)); err != nil {
		log.Fatal(err)
	}
}

func run(cfg dist.Config, count int) error {
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		rank, n := r.World.Rank(), r.World.Size()
		x := make([]float32, count)
		for i := range x {
			x[i] = float32(100*rank + i)
		}
		want := slices.Clone(x)
		if err := r.World.AllReduce(tensor.FromSlice(want, count), dist.Sum).Wait(); err != nil {
			return err
		}

		ring := r.World.With(dist.Name("ring")) // its own group, which counts only its bytes
		if err := allReduce(ring, x); err != nil {
			return err
		}
		if !slices.Equal(x, want) {
			return fmt.Errorf("the ring gave %v, AllReduce %v", x, want)
		}
		sent := []float64{float64(ring.Stats().WireBytes())}
		if err := r.World.SumFloats(sent); err != nil {
			return err
		}
		r.Logf("sum of %d elements over %d ranks: %v", count, n, x)
		r.Logf("%v bytes moved by all ranks in %d steps each; 2(n−1)·S is %d", sent[0], 2*(n-1), 2*(n-1)*4*count)
		if int(sent[0]) != 2*(n-1)*4*count {
			return errors.New("the ring moved more or less than it should")
		}
		return nil
	})
}

// allReduce replaces x on all ranks of g by the sum. Slice i is elements count·i/n to count·(i+1)/n.
func allReduce(g *dist.Group, x []float32) error {
	rank, n := g.Rank(), g.Size()
	slice := func(i int) []float32 {
		i = (i + 2*n) % n
		return x[len(x)*i/n : len(x)*(i+1)/n]
	}
	if n == 1 {
		return nil
	}
	// Reduce-scatter: in each step, each rank sends a partial sum to the next rank, which adds its own numbers. After n−1 steps, this rank
	// has the sum of slice rank+1.
	in := make([]float32, len(x)/n+1)
	for s := range n - 1 {
		mine := slice(rank - s - 1)
		if err := exchange(g, slice(rank-s), in[:len(mine)]); err != nil {
			return err
		}
		for i := range mine {
			mine[i] += in[i]
		}
	}
	// All-gather: the sums go around the same way, and nothing is added.
	for s := range n - 1 {
		if err := exchange(g, slice(rank+1-s), slice(rank-s)); err != nil {
			return err
		}
	}
	return nil
}

// exchange sends to the next rank and receives from the one before, at the same time. If all ranks waited for their Send first, a large
// message would be a deadlock.
func exchange(g *dist.Group, out, in []float32) error {
	rank, n := g.Rank(), g.Size()
	send := g.Send(tensor.FromSlice(out, len(out)), (rank+1)%n, 0)
	recv := g.Recv(tensor.FromSlice(in, len(in)), (rank-1+n)%n, 0)
	return errors.Join(send.Wait(), recv.Wait())
}
