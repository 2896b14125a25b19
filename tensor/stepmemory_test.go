package tensor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If shapes stay the same, no memory is given back and allocated again.
func TestNothingIsGivenBackInSteadySteps(t *testing.T) {
	dev := &counting{heap: newHeap()}
	tape := NewTape(dev, NoGrad())
	step := func() {
		x := tape.New(Float32, 700, 700)
		for range 3 {
			x = tape.Scope(func(in ...Tensor) Tensor { return tape.New(Float32, 900, 900) }, x)
			tape.New(Float32, 2000, 300)
		}
		tape.Reset()
	}
	step()
	taken := dev.allocs
	for range 5 {
		step()
	}
	assert.Equal(t, taken, dev.allocs)
	assert.Zero(t, dev.frees)
}

// counting is a CPU device that counts allocations, and has a limited amount of memory.
type counting struct {
	*heap
	allocs, frees, left int
	recording           *Recording
	limited             bool
}

var errFull = errors.New("full")

func (d *counting) Alloc(n int) (Ptr, error) {
	if d.limited && n > d.left {
		return nil, errFull
	}
	d.allocs++
	return d.heap.Alloc(n)
}

func (d *counting) Free(p Ptr) {
	d.frees++
	d.left += len(d.heap.mem[p])
	d.heap.Free(p)
}

func (d *counting) BeginGraph(r *Recording, _ bool) error { d.recording = r; return nil }
func (d *counting) EndGraph() (Graph, error)              { d.recording = nil; return nil, errFull }
func (d *counting) Recording() *Recording                 { return d.recording }
func (d *counting) Vary(Kernel, *Args) func()             { return nil }

// If the device refuses memory, it is asked again after idle blocks were given back. This does not happen while a graph is recorded,
// because the graph needs that memory.
func TestRefusedMemoryIsAskedForAgain(t *testing.T) {
	SkipInDebug(t)
	dev := &counting{heap: newHeap()}
	tape := NewTape(dev, NoGrad())
	tape.New(Uint8, 3<<20)
	tape.Reset()
	dev.limited = true
	require.NoError(t, dev.BeginGraph(nil, true))
	dev.recording = &Recording{on: dev}
	err := Try(func() { tape.New(Uint8, 2<<20) })
	require.ErrorIs(t, err, errFull)
	assert.ErrorContains(t, err, "alloc uint8[2097152]: 2.00 MiB (activations) on cpu: full; in use: nothing; ")
	assert.Zero(t, dev.frees)
	dev.recording = nil
	tape.Reset()
	tape.New(Uint8, 2<<20)
	assert.Equal(t, 1, dev.frees)
	assert.Equal(t, 2<<20, tape.Held())
	require.ErrorIs(t, Try(func() { tape.New(Uint8, 4<<20) }), errFull, "there is no more")
}

// A tape with MemoryFrom takes all its step memory from there, and returns it.
func TestMemoryFrom(t *testing.T) {
	dev, from := newHeap(), &counting{heap: newHeap()}
	tape := NewTape(dev, NoGrad(), MemoryFrom(from))
	other := NewTape(dev, NoGrad(), ShareMemory(tape))
	for range 3 {
		tape.New(Float32, 10)
		other.New(Uint8, 3<<20)
		tape.Reset()
		other.Reset()
	}
	assert.Equal(t, 2, from.allocs)
	assert.Empty(t, dev.mem)
	tape.Close()
	assert.Zero(t, from.frees)
	other.Close()
	assert.Equal(t, 2, from.frees)
	assert.ErrorContains(t, Try(func() { NewTape(dev, ShareMemory(NewTape(dev)), MemoryFrom(from)) }), "shares the memory of another")
}
