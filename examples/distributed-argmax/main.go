// Command distributed-argmax finds the largest of the numbers on several ranks: its value, its place and its rank. Of equal ones the first
// is taken, as on one rank.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("distributed-argmax: ")
	ranks := flag.Uint("ranks", 4, "goroutine `ranks` (under ringo run, the launcher decides)")
	each := flag.Uint("n", 1000, "numbers on each rank")
	seed := flag.Uint64("seed", 42, "seed of the numbers")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || flag.NArg() > 0 {
		log.Printf("-ranks must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: int(*ranks), Device: *device, Log: os.Stdout}, int(*each), *seed); err != nil {
		log.Fatal(err)
	}
}

func run(cfg dist.Config, each int, seed uint64) error {
	return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error {
		n := r.World.Size()
		value, place, err := argmax(r.World, numbers(seed, r.World.Rank(), each))
		if err != nil {
			return err
		}
		if place < 0 {
			return fmt.Errorf("no numbers have no maximum")
		}
		r.Logf("the largest of %d numbers on %d ranks is %v: number %d, on rank %d", n*each, n, value, place, place/each)
		return check(seed, n, each, value, place)
	})
}

// argmax returns the largest number of x over all ranks, and its place in the concatenation of all x, which have the same length on each
// rank; -1 if there are none. It takes two all-reduces: the largest value, then the first place with that value.
func argmax(g *dist.Group, x []float32) (value float32, place int, err error) {
	top := []float32{float32(math.Inf(-1))}
	for _, v := range x {
		top[0] = max(top[0], v)
	}
	if err := g.AllReduce(tensor.FromSlice(top, 1), dist.Max).Wait(); err != nil {
		return 0, 0, err
	}
	const nowhere = math.MaxInt64 // for a rank that does not have it
	first := []int64{nowhere}
	for i, v := range x {
		if v == top[0] {
			first[0] = int64(g.Rank()*len(x) + i)
			break
		}
	}
	if err := g.AllReduce(tensor.FromSlice(first, 1), dist.Min).Wait(); err != nil {
		return 0, 0, err
	}
	if first[0] == nowhere {
		return 0, -1, nil
	}
	return top[0], int(first[0]), nil
}

// numbers are integers, so that some of them are equal.
func numbers(seed uint64, rank, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, uint64(rank)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.IntN(500))
	}
	return x
}

// check computes the result from all numbers on one rank.
func check(seed uint64, ranks, each int, value float32, place int) error {
	best, at := float32(math.Inf(-1)), -1
	for r := range ranks {
		for i, v := range numbers(seed, r, each) {
			if v > best {
				best, at = v, r*each+i
			}
		}
	}
	if value != best || place != at {
		return fmt.Errorf("%v at %d, not %v at %d", value, place, best, at)
	}
	return nil
}
