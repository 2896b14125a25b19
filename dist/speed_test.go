package dist_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// Benchmarks of goroutine ranks compared with an ideal without synchronization. Both run in turn in one process, and the median of the
// ratios is reported, so that a busy minute of the machine slows both.

// arena is the memory of all ranks, so that each rank can do its share of the reference without synchronization.
type arena struct{ src, dst [][]float32 }

// collective is an operation of about 64 MiB, and the memory streams that rank r of n does for it.
type collective struct {
	name    string
	src     func(count, n int) int // elements of a rank's input and output; nil: count
	dst     func(count, n int) int
	issue   func(g *dist.Group, src, dst tensor.Tensor) dist.Work
	streams func(a *arena, block []float32, r, n int)
}

func part(count, n int) int { return count / n }

var collectives = []collective{
	{"AllReduce", nil, func(int, int) int { return 0 },
		func(g *dist.Group, src, _ tensor.Tensor) dist.Work { return g.AllReduce(src, dist.Sum) }, streamAllReduce},
	{"Broadcast", nil, func(int, int) int { return 0 },
		func(g *dist.Group, src, _ tensor.Tensor) dist.Work { return g.Broadcast(src, 0) },
		func(a *arena, _ []float32, r, _ int) {
			if r > 0 {
				stream(a.src[r], a.src[0])
			}
		}},
	{"AllGather", part, nil,
		func(g *dist.Group, src, dst tensor.Tensor) dist.Work { return g.AllGather(dst, src) },
		func(a *arena, _ []float32, r, n int) {
			c := len(a.src[r])
			for k := range n {
				from := (r + k) % n
				stream(a.dst[r][from*c:(from+1)*c], a.src[from])
			}
		}},
	{"ReduceScatter", nil, part,
		func(g *dist.Group, src, dst tensor.Tensor) dist.Work { return g.ReduceScatter(dst, src, dist.Sum) },
		func(a *arena, block []float32, r, n int) {
			c := len(a.dst[r])
			sumBlocks(a, block, r*c, (r+1)*c, func(lo, hi int) { copy(a.dst[r][lo-r*c:hi-r*c], block) })
		}},
	{"AllToAll", nil, nil,
		func(g *dist.Group, src, dst tensor.Tensor) dist.Work { return g.AllToAll(dst, src) },
		func(a *arena, _ []float32, r, n int) {
			c := len(a.src[r]) / n
			for k := range n {
				from := (r + k) % n
				stream(a.dst[r][from*c:(from+1)*c], a.src[from][r*c:(r+1)*c])
			}
		}},
}

const blockFloats = 4096

// stream copies block by block, as an operation does that can be aborted.
func stream(dst, src []float32) {
	for lo := 0; lo < len(src); lo += blockFloats {
		hi := min(lo+blockFloats, len(src))
		copy(dst[lo:hi], src[lo:hi])
	}
}

// sumBlocks adds up all ranks' inputs from lo to hi block by block and calls done for each.
func sumBlocks(a *arena, block []float32, lo, hi int, done func(lo, hi int)) {
	for ; lo < hi; lo += blockFloats {
		end := min(lo+blockFloats, hi)
		sum := block[:end-lo]
		kernel.AddTo32(sum, a.src[0][lo:end], a.src[1][lo:end])
		for _, s := range a.src[2:] {
			kernel.AddTo32(sum, sum, s[lo:end])
		}
		done(lo, end)
	}
}

func streamAllReduce(a *arena, block []float32, r, n int) {
	c := len(a.src[r]) / n
	sumBlocks(a, block, r*c, (r+1)*c, func(lo, hi int) {
		for _, s := range a.src {
			copy(s[lo:hi], block)
		}
	})
}

// BenchmarkLocalStreams reports each collective's share of the speed of its memory streams.
func BenchmarkLocalStreams(b *testing.B) {
	for _, c := range collectives {
		for _, n := range []int{2, 4, 8} {
			b.Run(fmt.Sprintf("%s/64MiB/ranks=%d", c.name, n), func(b *testing.B) { c.bench(b, n, 16<<20, 1) })
		}
	}
	b.Run("AllReduce/1MiB/ranks=2", func(b *testing.B) { collectives[0].bench(b, 2, 1<<18, 50) })
}

// bench does rounds of `times` operations and as many passes over the streams.
func (c collective) bench(b *testing.B, n, count, times int) {
	size := func(f func(count, n int) int) int {
		if f == nil {
			return count
		}
		return f(count, n)
	}
	a := &arena{make([][]float32, n), make([][]float32, n)}
	alternate(b, n, func(r *dist.Rank) (op, ideal func() error) {
		me := r.World.Rank()
		src, dst := tensor.New(r.Device, tensor.Float32, size(c.src)), tensor.New(r.Device, tensor.Float32, size(c.dst))
		a.src[me], a.dst[me] = tensor.Data[float32](src), tensor.Data[float32](dst)
		clear(a.src[me])
		clear(a.dst[me])
		block := make([]float32, blockFloats)
		op = func() (err error) {
			for range times {
				err = c.issue(r.World, src, dst).Wait()
			}
			return err
		}
		ideal = func() error {
			for range times {
				c.streams(a, block, me, n)
			}
			return nil
		}
		return op, ideal
	}, func(op, ideal time.Duration) {
		b.ReportMetric(100*ideal.Seconds()/op.Seconds(), "%of-streams")
		b.ReportMetric(float64(op.Microseconds())/float64(times), "µs/op")
	})
}

// alternate makes n ranks run op and ideal in turn, b.N times, and reports the median times of a round.
func alternate(b *testing.B, n int, setup func(r *dist.Rank) (op, ideal func() error), report func(op, ideal time.Duration)) {
	b.Helper()
	var times, ratios []float64
	begins, ends := make([]time.Time, n), make([]time.Time, n)
	// timed returns the time from the first rank's beginning to the last one's end; it is right only on rank 0.
	timed := func(r *dist.Rank, f func() error) (time.Duration, error) {
		me := r.World.Rank()
		err := r.World.Barrier().Wait()
		begins[me] = time.Now()
		err = errors.Join(err, f())
		ends[me] = time.Now()
		err = errors.Join(err, r.World.Barrier().Wait())
		return slices.MaxFunc(ends, time.Time.Compare).Sub(slices.MinFunc(begins, time.Time.Compare)), err
	}
	run := func(_ context.Context, r *dist.Rank) error {
		op, ideal := setup(r)
		for i := range b.N + 1 {
			took, err := timed(r, op)
			if err == nil {
				err = r.World.Barrier().Wait() // rank 0 has read the times
			}
			least, err2 := timed(r, ideal)
			disttest.OK(errors.Join(err, err2, r.World.Barrier().Wait()))
			if i > 0 && r.World.Rank() == 0 {
				times = append(times, float64(took))
				ratios = append(ratios, float64(took)/float64(least))
			}
		}
		return nil
	}
	if err := dist.Run(b.Context(), dist.Config{Ranks: n, Exact: true, Log: io.Discard}, run); err != nil {
		b.Fatal(err)
	}
	slices.Sort(times)
	slices.Sort(ratios)
	op := times[len(times)/2]
	report(time.Duration(op), time.Duration(op/ratios[len(ratios)/2]))
	b.ReportMetric(0, "ns/op") // it would be the sum of both
}

// BenchmarkLocalSmall does an all-reduce of one float after each 20 µs of computation, and reports the time that it adds.
func BenchmarkLocalSmall(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			withWork(b, n, 20*time.Microsecond, func(g *dist.Group, x tensor.Tensor) dist.Work { return g.AllReduce(x, dist.Sum) },
				func(op, ideal time.Duration) {
					b.ReportMetric(float64(op-ideal)/1e3/workTimes, "µs-over-ideal")
				})
		})
	}
}

// BenchmarkLocalBarrier does a barrier after each 72 µs of computation and reports the ratio to the computation alone.
func BenchmarkLocalBarrier(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("ranks=%d", n), func(b *testing.B) {
			withWork(b, n, 72*time.Microsecond, func(g *dist.Group, _ tensor.Tensor) dist.Work { return g.Barrier() },
				func(op, ideal time.Duration) { b.ReportMetric(float64(op)/float64(ideal), "x-ideal") })
		})
	}
}

const workTimes = 200

// withWork compares `workTimes` rounds of computation and an operation with computation only.
func withWork(b *testing.B, n int, work time.Duration, issue func(g *dist.Group, x tensor.Tensor) dist.Work,
	report func(op, ideal time.Duration)) {
	steps := calibrate(work)
	alternate(b, n, func(r *dist.Rank) (op, ideal func() error) {
		x := tensor.New(r.Device, tensor.Float32, 1)
		op = func() (err error) {
			for range workTimes {
				burn(steps)
				err = issue(r.World, x).Wait()
			}
			return err
		}
		cores := min(n, runtime.GOMAXPROCS(0))
		ideal = func() error { // as many goroutines as cores do the work of all ranks
			if r.World.Rank() < cores {
				for range workTimes * n / cores {
					burn(steps)
				}
			}
			return nil
		}
		return op, ideal
	}, report)
}

var burnt atomic.Uint64

// burn computes for a time that is proportional to steps.
func burn(steps int) {
	x := uint64(steps)
	for range steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if x == 0 {
		burnt.Add(1) // so that the compiler keeps the loop
	}
}

// calibrate returns how many steps take d.
func calibrate(d time.Duration) int {
	const steps = 1 << 16
	best := time.Hour
	for range 50 {
		start := time.Now()
		burn(steps)
		best = min(best, time.Since(start))
	}
	runtime.KeepAlive(&burnt)
	return int(steps * d / best)
}
