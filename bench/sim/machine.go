package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/tensor"
)

// short is how long one measurement takes at least, and long for how long there are more: the fastest one counts.
const (
	short = 100 * time.Microsecond
	long  = 300 * time.Millisecond
)

// machine returns two ranks that share memory, and two with a loopback between them, by what two cores can do.
func machine() (shared, loopback model) {
	var caches [][]float64
	for bytes := 256 * kib; bytes <= cached; bytes *= 4 {
		caches = append(caches, []float64{float64(bytes), float64(bytes) / memory(bytes)})
	}
	fmt.Print("memory is so many times as fast as at 16 MiB:")
	for i := range caches {
		caches[i][1] /= caches[len(caches)-1][1]
		fmt.Printf(" %.0f KiB %.2f", caches[i][0]/kib, caches[i][1])
	}
	ns := barrier()
	fmt.Printf("; a barrier of two cores takes %.0f ns\n", ns)
	link := sim.Link{Name: "link", From: "rank", To: "host", Ports: 2, Half: true}
	loopback.Topology = sim.Topology{Name: "two", Host: 2, Caches: caches, Links: []sim.Link{link}}
	link.NS, link.GBs = ns/2, 1
	shared.Topology = sim.Topology{Name: "two", Host: 2, Caches: caches, Window: true, Links: []sim.Link{link}}
	return shared, loopback
}

// memory returns the ns in which a core that touches so many bytes, in two places, adds them and stores the sum in both. Another core does
// the same at the same time.
func memory(bytes int) float64 {
	var ns [2]float64
	var done sync.WaitGroup
	for i := range ns {
		done.Go(func() {
			red := new(algo.Reducer)
			red.Begin(&backend.Op{Red: backend.Sum, DType: tensor.Float32}, 2)
			all := make([]byte, bytes)
			clear(all) // so that the pages are there
			a, b := all[:bytes/2], all[bytes/2:]
			ns[i] = fastest(func() {
				for lo := 0; lo < len(a); lo += algo.BlockBytes {
					hi := min(lo+algo.BlockBytes, len(a))
					red.ReduceTwice(a[lo:hi], b[lo:hi], [][]byte{a[lo:hi], b[lo:hi]})
				}
			})
		})
	}
	done.Wait()
	return slices.Max(ns[:])
}

// fastest returns the ns of a call in the fastest measurement.
func fastest(f func()) float64 {
	best := 1e18
	for begin := time.Now(); time.Since(begin) < long; {
		calls, start := 0, time.Now()
		for time.Since(start) < short {
			f()
			calls++
		}
		best = min(best, float64(time.Since(start))/float64(calls))
	}
	return best
}

// barrier returns the ns of a turn in which two cores each write a number and ring a bell, as engines do, and wait for the other's number.
func barrier() float64 {
	const turns = 1000
	type counter struct {
		atomic.Uint64
		_ [120]byte // lines of their own
	}
	var numbers, bells [2]counter
	best := 1e18
	var done sync.WaitGroup
	for i := range 2 {
		done.Go(func() {
			me, other := &numbers[i], &numbers[1-i]
			for turn := uint64(0); turn < 300*turns; {
				start := time.Now()
				for range turns {
					turn++
					me.Store(turn)
					if bell := &bells[1-i]; bell.Load() != turn {
						bell.Swap(turn)
					}
					for other.Load() < turn {
					}
				}
				if i == 0 {
					best = min(best, float64(time.Since(start))/turns)
				}
			}
		})
	}
	done.Wait()
	return best
}
