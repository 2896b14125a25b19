// Command bandwidth times all-reduces of growing size, and fits T = latency + bytes/bandwidth to them: theory against measurement. Bytes
// are those that the algorithm must move on each rank, 2(n−1)/n of the buffer. So the bandwidth is the busbw of nccl-tests, and can be
// compared with that of a link or of the memory.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("bandwidth: ")
	ranks := flag.Uint("ranks", 2, "goroutine `ranks` (under ringo run, the launcher decides)")
	largest := flag.Uint("max", 16<<20, "`bytes` of the largest buffer")
	reps := flag.Uint("reps", 20, "all-reduces of each size; the fastest counts")
	device := dist.DeviceFlag()
	flag.Parse()
	if *ranks < 1 || flag.NArg() > 0 {
		log.Printf("-ranks must be at least 1, and there are no arguments: %q", flag.Args())
		os.Exit(2)
	}
	if err := run(dist.Config{Ranks: int(*ranks), Device: *device, Log: os.Stdout}, int(*largest), int(*reps)); err != nil {
		log.Fatal(err)
	}
}

// point is the shortest time of an all-reduce that moves so many bytes on each rank.
type point struct {
	size           int // of the buffer
	bytes, seconds float64
}

func run(cfg dist.Config, largest, reps int) error {
	if reps < 1 || largest < 1<<10 {
		return fmt.Errorf("-reps must be at least 1, -max at least 1024")
	}
	return dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error {
		n := r.World.Size()
		if n == 1 {
			return fmt.Errorf("one rank moves nothing: give two or more")
		}
		var points []point
		for size := 256; size <= largest; size *= 4 {
			t, err := measure(ctx, r.World, size/4, reps)
			if err != nil {
				return err
			}
			points = append(points, point{size, 2 * float64(n-1) / float64(n) * float64(size), t})
		}
		report(r, points)
		return nil
	})
}

// report prints the table, without the column of theory if there is none.
func report(r *dist.Rank, points []point) {
	r.Logf("all-reduce on %d ranks (%s)", r.World.Size(), r.Engine())
	latency, bandwidth, ok := fit(points)
	if ok {
		r.Logf("theory: latency %.1f µs, bandwidth %.2f GB/s", 1e6*latency, bandwidth/1e9)
	} else {
		r.Logf("no line fits: larger buffers were not slower. Repeat it on a quiet machine, or with a larger -max.")
	}
	r.Logf("%10s %12s %12s %14s", "bytes", "measured µs", "theory µs", "achieved GB/s")
	for _, p := range points {
		theory := "–"
		if ok {
			theory = fmt.Sprintf("%.1f", 1e6*(latency+p.bytes/bandwidth))
		}
		r.Logf("%10d %12.2f %12s %14.2f", p.size, 1e6*p.seconds, theory, p.bytes/p.seconds/1e9)
	}
}

// measure returns the seconds of the fastest all-reduce, and checks the result. Each one begins after a barrier, and its time is that of
// the slowest rank.
func measure(ctx context.Context, g *dist.Group, count, reps int) (float64, error) {
	x := make([]float32, count)
	t := tensor.ToDevice(g.Device(), tensor.FromSlice(x, count))
	times := make([]float64, reps)
	for i := range reps + 1 { // the first one is a warm-up
		for j := range x {
			x[j] = float32(g.Rank() + 1)
		}
		tensor.Copy(t, tensor.FromSlice(x, count))
		if err := g.Barrier().Wait(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := g.AllReduce(t, dist.Sum).WaitHost(ctx); err != nil { // for a GPU, Wait does not wait on the host
			return 0, err
		}
		if i > 0 {
			times[i-1] = time.Since(start).Seconds()
		}
	}
	x = tensor.Data[float32](tensor.ToHost(t))
	want := float32(g.Size() * (g.Size() + 1) / 2)
	if i := slices.IndexFunc(x, func(v float32) bool { return v != want }); i >= 0 {
		return 0, fmt.Errorf("element %d of %d is %v, not %v", i, count, x[i], want)
	}
	if err := g.AllReduce(tensor.FromSlice(times, reps), dist.Max).Wait(); err != nil {
		return 0, err
	}
	return slices.Min(times), nil
}

// fit returns the line with the smallest sum of squared relative errors, so that small messages count as much as large ones. A negative
// latency becomes zero. ok is false if larger messages do not take longer.
func fit(points []point) (latency, bandwidth float64, ok bool) {
	var w, wx, wy, wxx, wxy float64
	for _, p := range points {
		k := 1 / (p.seconds * p.seconds)
		w += k
		wx += k * p.bytes
		wy += k * p.seconds
		wxx += k * p.bytes * p.bytes
		wxy += k * p.bytes * p.seconds
	}
	slope := (w*wxy - wx*wy) / (w*wxx - wx*wx)
	if latency = (wy - slope*wx) / w; latency < 0 {
		latency, slope = 0, wxy/wxx
	}
	return latency, 1 / slope, slope > 0
}
