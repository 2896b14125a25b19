package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
)

// gate is a fence that a test opens. Waiting opens it, and is counted.
type gate struct {
	open  bool
	waits int
}

func (g *gate) FenceDone(uint64) bool { return g.open }

// writer is a gate whose operation 1 writes memory, and whose others read it.
type writer struct {
	gate
	lo, hi uintptr
}

func (w *writer) FenceUses(seq uint64, lo, hi uintptr, write bool) string {
	if !w.open && lo < w.hi && w.lo < hi && (write || seq == 1) {
		return "allreduce seq 1"
	}
	return ""
}
func (g *gate) FenceWait(uint64) error {
	g.waits++
	g.open = true
	return nil
}

// Freed memory that a collective still reads is not given out before the collective is over.
func TestBorrowedMemoryIsNotReused(t *testing.T) {
	tape := NewTape(hostDevice)
	alloc := func() Ptr { return tape.New(Float32, 100).Ptr() }
	free := func(borrow Fence) Ptr {
		var p Ptr
		tape.Scope(func(in ...Tensor) Tensor {
			x := tape.New(Float32, 100)
			p = x.Ptr()
			if borrow != nil {
				Raw(x).Borrow(borrow, 3)
			}
			return in[0]
		}, tape.Input(New(hostDevice, Float32, 1)))
		return p
	}
	assert.Equal(t, free(nil), alloc(), "memory that nobody borrowed is reused at once")
	g := &gate{}
	p := free(g)
	live, _ := tape.Memory()
	for range 5 {
		assert.NotEqual(t, p, alloc())
	}
	after, _ := tape.Memory()
	assert.Equal(t, live+5*448, after, "borrowed memory stays in the account")
	g.open = true
	assert.Equal(t, p, alloc())
	assert.Zero(t, g.waits)
	tape.Reset()
	assert.Zero(t, g.waits)
}

// Reset waits once for each collective that still uses step memory, freed or not. It does not wait for other memory.
func TestResetWaits(t *testing.T) {
	tape := NewTape(hostDevice)
	held, freed, outside, kept := &gate{}, &gate{}, &gate{}, &gate{}
	batch := New(hostDevice, Float32, 10)
	x := tape.Input(batch)
	Raw(x).Borrow(outside, 1)
	y := x.Exp()
	Raw(y).Borrow(held, 1)
	Raw(tape.Keep(y.Reshape(2, 5))).Borrow(kept, 1)
	tape.Scope(func(...Tensor) Tensor { Raw(x.Neg()).Borrow(freed, 1); return x })
	tape.Reset()
	assert.Equal(t, []int{1, 1, 1, 0}, []int{held.waits, freed.waits, kept.waits, outside.waits})
	live, _ := tape.Memory()
	assert.Zero(t, live)
	Raw(batch).Settle()
	assert.Equal(t, 1, outside.waits)
	Raw(batch).Settle()
	assert.Equal(t, 1, outside.waits)
}

// TestBorrowed: to read what a collective still writes is a Failure, and so is to write what it still uses. Other parts of the same memory
// are free.
func TestBorrowed(t *testing.T) {
	tape := NewTape(hostDevice)
	for seq, reading := range map[uint64]string{1: "exp", 2: ""} {
		x := New(hostDevice, Float32, 8)
		mine, other := x.Range(0, 4), x.Range(4, 8)
		w := &writer{lo: uintptr(x.Ptr()), hi: uintptr(other.Ptr())}
		Raw(mine).Borrow(w, seq)
		const says = " float32[4]: allreduce seq 1 still uses this memory: wait for it before, with .Wait() behind its call"
		assert.ErrorContains(t, Try(func() { tape.Fill(mine, 2) }), "fill"+says)
		tape.Fill(other, 2)
		read := func() { tape.Input(mine).Exp() }
		if reading != "" {
			assert.ErrorContains(t, Try(read), reading+says)
			assert.ErrorContains(t, Try(func() { Floats(mine) }), "Floats"+says)
		} else {
			assert.NoError(t, Try(read))
			Floats(mine)
		}
		Floats(other)
		w.open = true
		tape.Fill(mine, 2)
		assert.Equal(t, 2.0, Floats(mine)[0])
	}
}

// After the first steps, fences allocate nothing.
func TestBorrowAllocatesNothing(t *testing.T) {
	skipInDebug(t)
	tape, g := NewTape(hostDevice), &gate{}
	batch := New(hostDevice, Float32, 4)
	step := func() {
		x := tape.Input(batch).Exp()
		for i := range uint64(4) {
			Raw(x).Borrow(g, i)
		}
		g.open = false
		tape.Reset()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

func TestPendingZeroIsDone(t *testing.T) {
	assert.True(t, Pending{}.Done())
	assert.NoError(t, Pending{}.Wait())
	g := &gate{}
	p := Pending{g, 1}
	assert.False(t, p.Done())
	assert.NoError(t, p.Wait())
	assert.True(t, p.Done())
}
