package algo_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
)

// largeMessage is the size above which a Send waits for its Recv, as the contract allows.
const largeMessage = 64 << 10

// message is one on its way. taken is nil when its sender does not wait.
type message struct {
	tag   uint64
	b     []byte
	taken chan struct{}
}

// wire is one rank's backend.Transport in memory. It counts what it sends.
type wire struct {
	rank  int
	boxes [][]chan message // from, to
	early [][]message      // by sender: arrived before they were asked for
	bytes uint64
	count int // messages
	full  int // messages with a payload
	rate  int // bytes that take a second on the bubble's clock to send; 0: no time
	lose  int // the number of one of them whose payload becomes zeros and is not counted; 0: none
}

func (w *wire) Rank() int { return w.rank }
func (w *wire) Size() int { return len(w.boxes) }

func (w *wire) put(peer int, tag uint64, b []byte) chan struct{} {
	w.count++
	if len(b) > 0 {
		w.full++
	}
	if w.rate > 0 {
		time.Sleep(time.Second * time.Duration(len(b)) / time.Duration(w.rate))
	}
	if w.full == w.lose && len(b) > 0 {
		b = make([]byte, len(b))
	} else {
		w.bytes += uint64(len(b))
	}
	if len(b) <= largeMessage {
		w.boxes[w.rank][peer] <- message{tag, bytes.Clone(b), nil}
		return nil
	}
	taken := make(chan struct{})
	w.boxes[w.rank][peer] <- message{tag, b, taken}
	return taken
}

func await(taken chan struct{}) {
	if taken != nil {
		<-taken
	}
}

func (w *wire) Send(peer int, tag uint64, b []byte) error {
	await(w.put(peer, tag, b))
	return nil
}

func (w *wire) next(peer int, tag uint64) message {
	for i, m := range w.early[peer] {
		if m.tag == tag {
			w.early[peer] = append(w.early[peer][:i], w.early[peer][i+1:]...)
			return m
		}
	}
	for {
		m := <-w.boxes[peer][w.rank]
		if m.tag == tag {
			return m
		}
		w.early[peer] = append(w.early[peer], m)
	}
}

func (w *wire) Recv(peer int, tag uint64, b []byte) error {
	m := w.next(peer, tag)
	copied := copy(b, m.b)
	if m.taken != nil {
		close(m.taken)
	}
	if len(m.b) != len(b) || copied != len(b) {
		return fmt.Errorf("rank %d sends %d bytes, rank %d wants %d", peer, len(m.b), w.rank, len(b))
	}
	return nil
}

func (w *wire) SendRecv(to int, out []byte, from int, in []byte, tag uint64) error {
	taken := w.put(to, tag, out)
	err := w.Recv(from, tag, in)
	await(taken)
	return err
}

// world is the ranks of a group in memory.
type world struct {
	t     testing.TB
	wires []*wire
	ranks []*algo.Messages
}

func newWorld(t testing.TB, n int) *world {
	w := &world{t: t}
	boxes := make([][]chan message, n)
	for i := range boxes {
		boxes[i] = make([]chan message, n)
		for j := range boxes[i] {
			boxes[i][j] = make(chan message, backend.Depth)
		}
	}
	for r := range n {
		w.wires = append(w.wires, &wire{rank: r, boxes: boxes, early: make([][]message, n)})
		w.ranks = append(w.ranks, algo.NewMessages(w.wires[r], algo.OneHost(n)))
	}
	return w
}

// run does one operation on all ranks and returns the bytes that each sent; fill makes rank r's.
func (w *world) run(fill func(r int) backend.Op) []uint64 {
	w.t.Helper()
	n := len(w.ranks)
	errs, sent := make([]error, n), make([]uint64, n)
	var wg sync.WaitGroup
	for r := range n {
		op := fill(r)
		w.wires[r].bytes, w.wires[r].count = 0, 0
		wg.Go(func() { errs[r] = w.ranks[r].Run(&op) })
	}
	wg.Wait()
	for r := range n {
		require.NoError(w.t, errs[r], "rank %d", r)
		sent[r] = w.wires[r].bytes
		for p := range n {
			require.Empty(w.t, w.wires[r].early[p], "rank %d did not ask for a message of rank %d", r, p)
			require.Empty(w.t, w.wires[r].boxes[p][r], "rank %d did not ask for a message of rank %d", r, p)
		}
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
