//go:build unix

package dist_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/tensor"
)

// BenchmarkProcesses is an all-reduce between two processes of this host, of ordinary tensors (staged) and of shared ones. README and
// docs/BENCHMARKS.md compare these medians with those of other libraries.
func BenchmarkProcesses(b *testing.B) {
	for b.Loop() {
		text := processes(b, 2, "measure")
		b.Logf("all-reduce on %s", text[0])
	}
}

// measure is a rank of BenchmarkProcesses. It returns the median of 9 repetitions of 0.1 s; in each one the slowest rank counts, as in
// osu-micro-benchmarks.
func measure(string) error {
	return dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		var out strings.Builder
		fmt.Fprintln(&out, r.Engine(), "\nbytes\tstaged µs\tshared µs")
		for _, bytes := range []int{4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20} {
			fmt.Fprint(&out, bytes)
			for _, x := range []tensor.Tensor{tensor.New(r.Device, tensor.Float32, bytes/4), r.Alloc(tensor.Float32, bytes/4)} {
				us := disttest.Must(median(r.World, x))
				fmt.Fprintf(&out, "\t%.1f", us)
				r.World.Free(x)
			}
			fmt.Fprintln(&out)
		}
		if r.World.Rank() == 0 {
			fmt.Fprint(os.Stdout, out.String())
		}
		return nil
	})
}

// An all-reduce of 8 MiB that a tape computed, between two processes, in the device's memory (staged) and in Rank.StepMemory.
func BenchmarkTapeMemory(b *testing.B) {
	for b.Loop() {
		text := processes(b, 2, "measuretape")
		b.Logf("µs without and with StepMemory: %s", text[0])
	}
}

func measureTape(string) error {
	return dist.Run(context.Background(), dist.Config{Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		for _, o := range []tensor.TapeOption{tensor.Seed(0), r.StepMemory()} {
			tape := tensor.NewTape(r.Device, o)
			us := disttest.Must(median(r.World, tape.New(tensor.Float32, 2<<20)))
			if r.World.Rank() == 0 {
				fmt.Printf("%.0f ", us)
			}
			tape.Close()
		}
		return nil
	})
}

// median returns how long an all-reduce of x takes, in µs.
func median(g *dist.Group, x tensor.Tensor) (float64, error) {
	times, runs := make([]float64, 0, 9), 3
	for rep := range cap(times) + 1 {
		if err := g.Barrier().Wait(); err != nil {
			return 0, err
		}
		begin := time.Now()
		for range runs {
			if err := g.AllReduce(x, dist.Sum).Wait(); err != nil {
				return 0, err
			}
		}
		took := []float64{time.Since(begin).Seconds() / float64(runs)}
		if err := g.AllReduce(tensor.FromSlice(took, 1), dist.Max).Wait(); err != nil {
			return 0, err
		}
		if rep > 0 {
			times = append(times, took[0])
		} else {
			runs = max(3, min(20_000, int(0.1/took[0])))
		}
	}
	slices.Sort(times)
	return 1e6 * times[len(times)/2], nil
}
