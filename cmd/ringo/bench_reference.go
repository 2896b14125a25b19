package main

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// referenceTime is how long a run of a reference takes. Tests have less time.
var referenceTime = 4 * time.Millisecond

const (
	referenceRuns = 10       // the best one counts: it shows what is possible
	maxReference  = 64 << 20 // larger than any cache
	minReference  = 64 << 10 // with smaller buffers, mostly the clock would be measured
	socketBuf     = 256 << 10
)

// referenceKey is what a reference depends on, and references are the measured ones. Bytes is how much was moved: all small buffers
// share one reference, and so do sockets (0 bytes).
type referenceKey struct {
	kind     backend.Kind
	n, bytes int
}

var references = map[referenceKey]float64{}

// measureReference returns the busbw in GB/s of the work that an operation cannot avoid, done by plain code: all ranks read and write the
// same memory at the same time, and never wait for each other. Over tcp they fill loopback sockets in a ring. An operation may be faster
// than its reference: if a rank's memory is in the cache of its core, if bytes go through shared memory instead of sockets, or if the
// machine was busy during the measurement.
func measureReference(op *benchOp, how string, n, bytes int) (float64, error) {
	if n == 1 || op.name == "barrier" {
		return 0, nil
	}
	key := referenceKey{op.kind, n, min(max(bytes, minReference), maxReference)}
	if how == "tcp" {
		key = referenceKey{n: n}
		if op.name == "send" {
			key.n = 1 // only one of the two sends
		}
	}
	if known, ok := references[key]; ok {
		return known, nil
	}
	var err error
	if how == "tcp" {
		references[key], err = socketReference(key.n)
	} else {
		references[key] = memoryReference(op, n, key.bytes)
	}
	return references[key], err
}

// stream is work of a rank on memory: the sum of srcs goes to all dsts.
type stream struct{ dsts, srcs [][]byte }

// streams returns what rank r does in an operation on the buffers a and b of all ranks (each of the full size), if it can access all of
// them. The V forms count as even.
func streams(kind backend.Kind, r int, a, b [][]byte) (list []stream) {
	n := len(a)
	part := func(x [][]byte, rank, i int) []byte { return x[rank][i*len(x[rank])/n : (i+1)*len(x[rank])/n] }
	move := func(dst, src []byte) { list = append(list, stream{[][]byte{dst}, [][]byte{src}}) }
	all := make([][]byte, n) // part r of all a
	for i := range n {
		all[i] = part(a, i, r)
	}
	switch {
	case kind == backend.AllReduce:
		list = append(list, stream{all, all})
	case kind == backend.ReduceScatter || kind == backend.ReduceScatterV:
		list = append(list, stream{[][]byte{part(b, r, 0)}, all})
	case kind == backend.Reduce && r == 0:
		list = append(list, stream{a[:1], a})
	case kind == backend.Broadcast && r > 0, kind == backend.Send && r == n-1:
		move(a[r], a[0])
	case kind == backend.Scatter:
		move(part(b, r, 0), part(a, 0, r))
	}
	for i := range n {
		switch {
		case kind == backend.AllGather || kind == backend.AllGatherV || kind == backend.Gather && r == 0:
			move(part(a, r, i), part(b, i, 0))
		case kind == backend.AllToAll || kind == backend.AllToAllV:
			move(part(b, r, i), part(a, i, r))
		}
	}
	return list
}

// aroundCache is the size from which memory is copied in one piece: then Go's memmove writes past the cache.
const aroundCache = 4 << 20

// run does the stream, in blocks if that is faster.
func (s *stream) run(red *algo.Reducer) {
	if src := s.srcs[0]; len(s.srcs) == 1 && len(src) >= aroundCache {
		copy(s.dsts[0], src)
		return
	}
	for lo := 0; lo < len(s.dsts[0]); lo += algo.BlockBytes {
		hi := min(lo+algo.BlockBytes, len(s.dsts[0]))
		first := s.dsts[0][lo:hi]
		if len(s.srcs) == 1 {
			kernel.Move(first, s.srcs[0][lo:hi])
			continue
		}
		cut := make([][]byte, 0, 16)
		for _, src := range s.srcs {
			cut = append(cut, src[lo:hi])
		}
		if len(s.dsts) == 1 {
			red.Reduce(first, cut)
			continue
		}
		red.ReduceTwice(first, s.dsts[1][lo:hi], cut)
		for _, d := range s.dsts[2:] {
			copy(d[lo:hi], first)
		}
	}
}

// memoryReference returns the busbw at which the slowest of n goroutines does its streams.
func memoryReference(op *benchOp, n, bytes int) float64 {
	bytes = bytes / 4 / n * 4 * n
	a, b := make([][]byte, n), make([][]byte, n)
	for r := range n {
		a[r], b[r] = make([]byte, bytes), make([]byte, bytes)
		for i := 0; i < bytes; i += 1 << 10 {
			a[r][i], b[r][i] = 1, 1 // touch each page once
		}
	}
	var moves []func() int
	for r := range n {
		if list := streams(op.kind, r, a, b); len(list) > 0 {
			red := new(algo.Reducer)
			red.Begin(&backend.Op{Red: backend.Sum, DType: tensor.Float32}, n)
			moves = append(moves, func() int {
				for i := range list {
					list[i].run(red)
				}
				return int(op.bus(float64(n)) * float64(bytes))
			})
		}
	}
	return best(moves) * min(1, float64(runtime.GOMAXPROCS(0))/float64(len(moves))) // more ranks than cores run in turn
}

// best runs workers that move bytes for a while, at the same time, and returns the GB/s of the slowest one in the best run.
func best(moves []func() int) float64 {
	rate := 0.0
	for range referenceRuns {
		rate = max(rate, slices.Min(together(moves)))
	}
	return rate
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
			for time.Since(start) < referenceTime {
				bytes += move()
			}
			rates[i] = float64(bytes) / time.Since(start).Seconds() / 1e9
		})
	}
	end.Wait()
	return rates
}

// socketReference returns the GB/s of the slowest of n loopback connections, each with a goroutine that writes and one that
// reads.
func socketReference(n int) (float64, error) {
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
	var moves []func() int
	for i := range n {
		buf := make([]byte, socketBuf)
		moves = append(moves, func() int {
			n, err := writers[i].Write(buf)
			if err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
			return n
		})
	}
	rate := best(moves)
	for _, w := range writers {
		_ = w.Close()
	}
	drained.Wait()
	return rate, failed
}
