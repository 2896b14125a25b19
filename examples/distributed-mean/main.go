// Command distributed-mean computes the mean and the standard deviation of numbers on several ranks, which have different amounts of them.
// The ranks exchange sums and counts: a mean of means would be wrong.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/ringo-ml/ringo/dist"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("distributed-mean: ")
	ranks := flag.Uint("ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	count := flag.Uint("n", 1000, "how many numbers")
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
	if count == 0 {
		return fmt.Errorf("-n 0: no numbers have no mean")
	}
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		x := share(r.World.Rank(), r.World.Size(), count)
		mean, std, err := moments(r.World, x)
		if err != nil {
			return err
		}
		means := []float64{sum(x, 0, 1) / math.Max(1, float64(len(x)))} // of this rank's numbers
		if err := r.World.SumFloats(means); err != nil {
			return err
		}
		r.Logf("%d numbers on %d ranks, %d of them on rank 0", count, r.World.Size(), len(x))
		r.Logf("mean %.4f, standard deviation %.4f", mean, std)
		r.Logf("the mean of the ranks' means would be %.4f", means[0]/float64(r.World.Size()))
		return check(mean, std, float64(count))
	})
}

// share returns rank's part of the numbers 0, 1, …, count−1: later ranks have more of them.
func share(rank, ranks, count int) []float64 {
	cut := func(r int) int { return count * r * (r + 1) / (ranks * (ranks + 1)) }
	var x []float64
	for i := cut(rank); i < cut(rank+1); i++ {
		x = append(x, float64(i))
	}
	return x
}

// moments returns mean and standard deviation of x over all ranks. It sums squared deviations from the common mean: a sum of squares would
// lose digits if the mean is large.
func moments(g *dist.Group, x []float64) (mean, std float64, err error) {
	first := []float64{sum(x, 0, 1), float64(len(x))}
	if err := g.SumFloats(first); err != nil {
		return 0, 0, err
	}
	mean = first[0] / first[1]
	second := []float64{sum(x, mean, 2)}
	if err := g.SumFloats(second); err != nil {
		return 0, 0, err
	}
	return mean, math.Sqrt(second[0] / first[1]), nil
}

// sum returns the sum of (x−from)^power.
func sum(x []float64, from, power float64) float64 {
	s := 0.0
	for _, v := range x {
		s += math.Pow(v-from, power)
	}
	return s
}

// check compares with the exact values for 0, 1, …, n−1: mean (n−1)/2, variance (n²−1)/12.
func check(mean, std, n float64) error {
	wantMean, wantStd := (n-1)/2, math.Sqrt((n*n-1)/12)
	if math.Abs(mean-wantMean) > 1e-9*n || math.Abs(std-wantStd) > 1e-9*n {
		return fmt.Errorf("mean %v and deviation %v, not %v and %v", mean, std, wantMean, wantStd)
	}
	return nil
}
