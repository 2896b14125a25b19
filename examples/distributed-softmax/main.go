// Command distributed-softmax computes the softmax of a vector whose parts are on several ranks, like the last layer of a model with a
// sharded vocabulary: max, exp, sum, divide. Two numbers are sent, never the vector.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("distributed-softmax: ")
	ranks := flag.Uint("ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	size := flag.Uint("n", 10, "length of the whole vector")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || flag.NArg() > 0 {
		log.Printf("-ranks must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: int(*ranks), Device: *device, Log: os.Stdout}, int(*size)); err != nil {
		log.Fatal(err)
	}
}

func run(cfg dist.Config, size int) error {
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		rank, n := r.World.Rank(), r.World.Size()
		counts := make([]int, n) // parts differ by at most one element
		for i := range counts {
			counts[i] = size*(i+1)/n - size*i/n
		}
		whole := logits(size)
		first := size * rank / n
		part := append([]float64(nil), whole[first:first+counts[rank]]...)
		if err := softmax(r.World, part); err != nil {
			return err
		}
		all := make([]float64, size) // for the check and for printing
		if err := r.World.AllGatherV(vector(all), vector(part), counts).Wait(); err != nil {
			return err
		}
		r.Logf("%d logits on %d ranks", size, n)
		r.Logf("softmax %.4f", all)
		return check(all, whole)
	})
}

// softmax replaces this rank's part of a vector by its part of the softmax of the whole. exp(x − max) cannot overflow, whatever the logits
// are. A rank without elements takes part, too.
func softmax(g *dist.Group, x []float64) error {
	top := []float64{math.Inf(-1)}
	for _, v := range x {
		top[0] = max(top[0], v)
	}
	if err := g.AllReduce(vector(top), dist.Max).Wait(); err != nil {
		return err
	}
	total := []float64{0}
	for i := range x {
		x[i] = math.Exp(x[i] - top[0])
		total[0] += x[i]
	}
	if err := g.SumFloats(total); err != nil {
		return err
	}
	for i := range x {
		x[i] /= total[0]
	}
	return nil
}

func vector(x []float64) tensor.Tensor { return tensor.FromSlice(x, len(x)) }

// logits are so large that their exp would overflow.
func logits(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1000 + 3*math.Sin(float64(i))
	}
	return x
}

// check compares with the softmax on one rank.
func check(got, logits []float64) error {
	top, total := math.Inf(-1), 0.0
	for _, v := range logits {
		top = max(top, v)
	}
	for _, v := range logits {
		total += math.Exp(v - top)
	}
	for i, v := range logits {
		if want := math.Exp(v-top) / total; !(math.Abs(got[i]-want) <= 1e-14) {
			return fmt.Errorf("element %d is %v, not %v", i, got[i], want)
		}
	}
	return nil
}
