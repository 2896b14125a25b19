package algo_test

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/algo/memnet"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// sender counts what one rank sends.
type sender struct {
	bytes uint64
	to    []uint64 // bytes, by peer
	many  []int    // messages, by peer
	count int      // messages
	full  int      // messages with a payload
	rate  int      // bytes per second on the bubble's clock; 0: sending takes no time
	lose  int      // the number of a message whose payload becomes zeros and is not counted; 0: none
}

func (s *sender) observe(m *memnet.Message) {
	s.count++
	s.many[m.To]++
	if len(m.Bytes) == 0 {
		return
	}
	if s.rate > 0 {
		time.Sleep(time.Second * time.Duration(len(m.Bytes)) / time.Duration(s.rate))
	}
	if s.full++; s.full == s.lose {
		m.Bytes = make([]byte, len(m.Bytes))
		return
	}
	s.bytes += uint64(len(m.Bytes))
	s.to[m.To] += uint64(len(m.Bytes))
}

// world is the ranks of a group in memory.
type world struct {
	t       testing.TB
	at      algo.Layout
	net     *memnet.Net
	senders []sender
	ranks   []*algo.Messages
	lent    map[lending][]byte
}

// lending says what a rank uses memory for.
type lending struct {
	use  string
	rank int
}

// lendCopy is lend with the bytes of b in place of zeros.
func (w *world) lendCopy(use string, rank int, b []byte) []byte {
	key := lending{use, rank}
	w.lent[key] = append(w.lent[key][:0], b...)
	return w.lent[key]
}

// lend returns zeros, in the memory of the last call with the same use and rank: the pages of new memory take longer than the operations.
func (w *world) lend(use string, rank, size int) []byte {
	b := w.lent[lending{use, rank}]
	if b == nil || cap(b) < size {
		b = make([]byte, size)
		w.lent[lending{use, rank}] = b
	}
	clear(b[:size])
	return b[:size]
}

func newWorld(t testing.TB, n int) *world { return newWorldAt(t, algo.OneHost(n)) }

func newWorldAt(t testing.TB, l algo.Layout) *world {
	n := len(l)
	tuner := algo.NewTuner(l)
	w := &world{t: t, at: l, senders: make([]sender, n), lent: map[lending][]byte{}}
	w.net = memnet.New(n, func(m *memnet.Message) { w.senders[m.From].observe(m) })
	for r := range n {
		w.senders[r].to, w.senders[r].many = make([]uint64, n), make([]int, n)
		w.ranks = append(w.ranks, algo.NewMessages(w.net.Rank(r), tuner))
	}
	return w
}

// run does one operation on all ranks, with the input of rank r from fill, and returns the bytes that each rank sent.
func (w *world) run(fill func(r int) backend.Op) []uint64 {
	ops, sent := make([]backend.Op, len(w.ranks)), make([]uint64, len(w.ranks))
	for r := range ops {
		ops[r] = fill(r)
		w.senders[r].bytes, w.senders[r].count = 0, 0
		clear(w.senders[r].to)
		clear(w.senders[r].many)
	}
	require.NoError(w.t, w.net.Run(context.Background(), func(t *memnet.Rank) error { return w.ranks[t.Rank()].Run(&ops[t.Rank()]) }))
	require.NoError(w.t, w.net.Drained())
	for r := range sent {
		sent[r] = w.senders[r].bytes
	}
	return sent
}

func mem(b []byte) backend.Mem {
	return backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(b)), Bytes: len(b)}
}

// values returns count elements of type d.
func values(d tensor.DType, count int, at func(i int) float64) []byte {
	switch d {
	case tensor.Float32:
		return list(count, func(i int) float32 { return float32(at(i)) })
	case tensor.Float64:
		return list(count, at)
	case tensor.Int32:
		return list(count, func(i int) int32 { return int32(at(i)) })
	case tensor.Int64:
		return list(count, func(i int) int64 { return int64(at(i)) })
	case tensor.Uint8:
		return list(count, func(i int) uint8 { return uint8(at(i)) })
	case tensor.Bool:
		return list(count, func(i int) bool { return at(i) != 0 })
	}
	x := make([]float32, count)
	for i := range x {
		x[i] = float32(at(i))
	}
	if d == tensor.BFloat16 {
		h := make([]kernel.BF16, count)
		kernel.F32ToBF16(h, x)
		return list(count, func(i int) kernel.BF16 { return h[i] })
	}
	h := make([]kernel.F16, count)
	kernel.F32ToF16(h, x)
	return list(count, func(i int) kernel.F16 { return h[i] })
}

func list[T any](count int, at func(i int) T) []byte {
	x := make([]T, count)
	for i := range x {
		x[i] = at(i)
	}
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), count*int(unsafe.Sizeof(z)))
}
