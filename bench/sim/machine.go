package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// machine is what two cores of this machine can do, measured without collectives.
type machine struct {
	meetNS float64      // from when both say that they are there to when both know
	caches [][2]float64 // of sim.Topology
}

// short is how long one measurement takes at least, and long for how long there are more: the fastest one counts.
const (
	short = 100 * time.Microsecond
	long  = 300 * time.Millisecond
)

func measureMachine() machine {
	var m machine
	var each []float64 // nanoseconds of a byte
	for bytes := 256 * kib; bytes <= 16*mib; bytes *= 4 {
		each = append(each, memory(bytes)/float64(bytes))
		m.caches = append(m.caches, [2]float64{float64(bytes)})
	}
	for i := range each {
		m.caches[i][1] = each[len(each)-1] / each[i]
	}
	m.meetNS = meet()
	return m
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

// meet returns the ns of a turn in which two cores each write a number and ring a bell, as engines do, and wait for the other's number.
func meet() float64 {
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
