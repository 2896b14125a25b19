package main

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	boundTime = 4 * time.Millisecond
	boundRuns = 5        // of which the best counts: what is possible
	maxBound  = 64 << 20 // buffers behind any cache
	minBound  = 64 << 10 // below it the clock would be measured
	socketBuf = 256 << 10
)

var socketBounds = map[int]float64{}

// measureBound returns how many GB/s a rank can move when n do at the same time: by copying buffers of so many bytes, or
// over loopback sockets in a ring.
func measureBound(backend string, n, bytes int) (float64, error) {
	if n == 1 {
		return 0, nil
	}
	if backend != "tcp" {
		return copyBound(n, min(max(bytes, minBound), maxBound)), nil
	}
	if _, ok := socketBounds[n]; !ok {
		b, err := socketBound(n)
		if err != nil {
			return 0, err
		}
		socketBounds[n] = b
	}
	return socketBounds[n], nil
}

// copyBound returns the GB/s of the slowest of n goroutines that copy memory of their own.
func copyBound(n, bytes int) float64 {
	return slowest(n, func(int) func() int {
		src, dst := make([]byte, bytes/2), make([]byte, bytes/2) // as much memory as the collective has
		for i := range src {
			src[i], dst[i] = 1, 1 // pages that exist
		}
		return func() int { return copy(dst, src) }
	})
}

// slowest lets n workers move bytes for a while, at the same time, and returns the GB/s of the slowest one in the best
// run.
func slowest(n int, worker func(i int) (move func() int)) float64 {
	moves := []func() int{}
	for i := range n {
		moves = append(moves, worker(i))
	}
	best := 0.0
	for range boundRuns {
		best = max(best, slices.Min(together(moves)))
	}
	return best
}

// together runs all moves at once and returns the GB/s of each.
func together(moves []func() int) []float64 {
	n := len(moves)
	rates := make([]float64, n)
	var begin, end sync.WaitGroup
	begin.Add(n)
	for i, move := range moves {
		end.Go(func() {
			move()
			begin.Done()
			begin.Wait()
			start, bytes := time.Now(), 0
			for time.Since(start) < boundTime {
				bytes += move()
			}
			rates[i] = float64(bytes) / time.Since(start).Seconds() / 1e9
		})
	}
	end.Wait()
	return rates
}

// socketBound returns the GB/s of the slowest of n loopback connections, each with a goroutine that writes and one that
// reads.
func socketBound(n int) (float64, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	var writers, readers []net.Conn
	defer func() {
		for _, c := range append(writers, readers...) {
			_ = c.Close()
		}
	}()
	for range n {
		w, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return 0, err
		}
		writers = append(writers, w)
		r, err := l.Accept()
		if err != nil {
			return 0, err
		}
		readers = append(readers, r)
	}
	var drained sync.WaitGroup
	for _, r := range readers {
		drained.Go(func() {
			buf := make([]byte, socketBuf)
			_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf) // until the writer closes
		})
	}
	var failed error
	var mu sync.Mutex
	rate := slowest(n, func(i int) func() int {
		buf := make([]byte, socketBuf)
		return func() int {
			n, err := writers[i].Write(buf)
			if err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
			return n
		}
	})
	for _, w := range writers {
		_ = w.Close()
	}
	drained.Wait()
	return rate, failed
}
