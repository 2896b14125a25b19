package kernel

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// probeBench is a kind of memory traffic, and its bytes for each element: the
// fastest that memory can be.
type probeBench struct {
	name  string
	bytes int
	run   func(o *benchOperands)
}

// probeBenches bypass the caches for outputs that they do not read: only this
// reaches the full bandwidth. The sums read one stream more than they write.
func probeBenches() []probeBench {
	return []probeBench{
		{"read", 4, func(o *benchOperands) { vecProbeRead(o.x) }},
		{"write", 4, func(o *benchOperands) { vecProbeWrite(o.dst) }},
		{"update", 8, func(o *benchOperands) { vecProbeUpdate(o.dst) }},
		{"sum", 12, func(o *benchOperands) { vecProbeSum(o.dst, o.x) }},
		{"sum of two", 20, func(o *benchOperands) { vecProbeSum2(o.dst, o.m, o.x) }},
		{"sum of three", 28, func(o *benchOperands) { vecProbeSum3(o.dst, o.m, o.v, o.x) }},
		{"copy", 8, func(o *benchOperands) { vecProbeCopyNT(o.dst, o.x) }},
		{"copy through the caches", 8, func(o *benchOperands) { vecProbeCopy(o.dst, o.x) }},
		{"triad", 12, func(o *benchOperands) { vecProbeTriadNT(o.dst, o.x, o.y) }},
		{"triad through the caches", 12, func(o *benchOperands) { vecProbeTriad(o.dst, o.x, o.y) }},
	}
}

// lineAligned returns n numbers that begin at a cache line.
func lineAligned(n int) []float32 {
	b := make([]float32, n+16)
	skip := int(-uintptr(unsafe.Pointer(&b[0]))) & 63 / 4
	return b[skip : skip+n : skip+n]
}

// memoryOperands are operands much larger than the caches, separate ones for each
// thread.
func memoryOperands(threads int) (os []*benchOperands) {
	for range threads {
		o := newBenchOperands(1 << 23 / threads)
		dst := lineAligned(len(o.dst))
		copy(dst, o.dst)
		o.dst = dst
		os = append(os, o)
	}
	return os
}

// onThreads returns the seconds that f takes on all operands, each in a goroutine.
func onThreads(os []*benchOperands, f func(o *benchOperands)) float64 {
	start := time.Now()
	var wg sync.WaitGroup
	for _, o := range os[1:] {
		wg.Go(func() { f(o) })
	}
	f(os[0])
	wg.Wait()
	return time.Since(start).Seconds()
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// BenchmarkPeak measures the processor's limits: multiply-adds in registers, and
// traffic to memory.
func BenchmarkPeak(b *testing.B) {
	if !active.vectors.complete() {
		b.Skip("the probes are in assembly")
	}
	for _, threads := range []int{1, 2} {
		benchFlops[float32](b, "FMA/float32", threads)
		benchFlops[float64](b, "FMA/float64", threads)
		os := memoryOperands(threads)
		n := float64(threads * len(os[0].x))
		for _, p := range probeBenches() {
			b.Run(fmt.Sprintf("%s/threads=%d", p.name, threads), func(b *testing.B) {
				var times []float64
				for b.Loop() {
					times = append(times, onThreads(os, p.run))
				}
				b.ReportMetric(n*float64(p.bytes)/median(times)/1e9, "GB/s")
			})
		}
	}
}

// benchFlops reports the speed of all threads together.
func benchFlops[T Float](b *testing.B, name string, threads int) {
	b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
		speeds := make([]float64, threads)
		for b.Loop() {
			var wg sync.WaitGroup
			for i := range speeds {
				wg.Go(func() { speeds[i] = max(speeds[i], PeakFlops[T](10*time.Millisecond)) })
			}
			wg.Wait()
		}
		total := 0.0
		for _, s := range speeds {
			total += s
		}
		b.ReportMetric(total/1e9, "GFLOP/s")
	})
}

// BenchmarkMemory measures kernels on operands in memory, in turn with the probe
// that has the same kind of traffic. It reports the median GB/s, and the median of
// the kernel's speed divided by the probe's just before.
func BenchmarkMemory(b *testing.B) {
	if !active.vectors.complete() {
		b.Skip("the probes are in assembly")
	}
	probes := map[string]probeBench{}
	for _, p := range probeBenches() {
		probes[p.name] = p
	}
	for _, threads := range []int{1, 2} {
		os := memoryOperands(threads)
		n := float64(threads * len(os[0].x))
		for _, c := range vectorBenches() {
			p := probes[c.probe]
			b.Run(fmt.Sprintf("%s/threads=%d", c.name, threads), func(b *testing.B) {
				var times, shares []float64
				for b.Loop() {
					peak := onThreads(os, p.run)
					t := onThreads(os, c.run)
					times = append(times, t)
					shares = append(shares, 100*float64(c.bytes)/t*peak/float64(p.bytes))
				}
				b.ReportMetric(n*float64(c.bytes)/median(times)/1e9, "GB/s")
				b.ReportMetric(median(shares), "%peak")
				b.ReportMetric(0, "ns/op") // of probe and kernel together
			})
		}
	}
}
