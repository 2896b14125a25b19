package tensor

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
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
		assert.ErrorContains(t, Try(func() { tape.fill(mine.hdr(), 2) }), "fill"+says)
		tape.fill(other.hdr(), 2)
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
		tape.fill(mine.hdr(), 2)
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

// Blocks of every size come from the class to which they return, waste at most an eighth, and are aligned.
func TestArena(t *testing.T) {
	dev := NewCPU(1)
	defer dev.Close()
	m := arena{dev: dev, from: dev, use: dev.Memory()}
	for _, n := range []int{
		0, 1, 63, 64, 65, 127, 128, 129, 1000, 1024, 1025, 4095, 65537, largeBlock - 1, largeBlock, largeBlock + 1, 3*largeBlock + 7,
	} {
		b := m.alloc(nil, n)
		assert.GreaterOrEqual(t, b.bytes, n)
		assert.LessOrEqual(t, b.bytes, n+max(n/8, 64, pageBytes*(n/largeBlock)), "%d bytes", n)
		assert.Zero(t, uintptr(b.p)%64)
		if n <= largeBlock {
			c1, bytes := classOf(n)
			c2, again := classOf(bytes)
			assert.Equal(t, [2]int{c1, b.bytes}, [2]int{c2, again}, "%d bytes", n)
			assert.Less(t, c1, numClasses)
		}
		clear(unsafe.Slice((*byte)(b.p), b.bytes))
		m.release(b)
		assert.Equal(t, b, m.alloc(nil, n), "%d bytes", n)
		m.release(b)
	}
	assert.Zero(t, m.live)
	small, large := m.alloc(nil, 2*largeBlock), m.alloc(nil, 10*largeBlock)
	m.release(large)
	m.release(small)
	assert.Equal(t, small, m.alloc(nil, 2*largeBlock), "the smallest that fits")
	assert.NotEqual(t, large, m.alloc(nil, 8*largeBlock), "a fifth of waste is too much")
	assert.Equal(t, large, m.alloc(nil, 9*largeBlock))
	m.close()
	assert.Empty(t, dev.mem)
}
