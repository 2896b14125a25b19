package tensor

import (
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// Tensors outside tapes count from when they are made until the garbage collector finds them unreachable.
func TestMemoryByKind(t *testing.T) {
	dev := newHeap()
	m := dev.Memory()
	p := NewParam(NormalInit(0, 1), 5, 7)
	p.Make(dev, Float32, 1)
	x := New(dev, Float64, 10)
	grads := NewFor(memory.Gradients, dev, BFloat16, 35)
	assert.Equal(t, []memory.Bytes{{Live: 140, Peak: 140}, {Live: 70, Peak: 70}, {Live: 80, Peak: 80}, {Live: 290, Peak: 290}},
		[]memory.Bytes{m.Of(memory.Parameters), m.Of(memory.Gradients), m.Of(memory.Other), m.Total()})

	NewParam(Constant(0), 10).SetValue(x)
	NewParam(Constant(0), 10).SetValue(x)
	assert.Equal(t, memory.Bytes{Live: 220, Peak: 220}, m.Of(memory.Parameters), "what was other memory, once")
	assert.Equal(t, memory.Bytes{Live: 0, Peak: 80}, m.Of(memory.Other))
	assert.Equal(t, memory.Bytes{Live: 290, Peak: 290}, m.Total())

	view := grads.Range(3, 4)
	grads = Tensor{}
	runtime.GC()
	assert.Equal(t, 70, m.Of(memory.Gradients).Live, "a view has it")
	runtime.KeepAlive(view)
	view = Tensor{}
	require.Eventually(t, func() bool { runtime.GC(); return m.Of(memory.Gradients).Live == 0 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, memory.Bytes{Live: 220, Peak: 290}, m.Total())
	m.ResetPeak()
	assert.Equal(t, memory.Bytes{Live: 220, Peak: 220}, m.Total())
	assert.Equal(t, memory.Bytes{}, m.Of(memory.Gradients))
	runtime.KeepAlive(p)
	runtime.KeepAlive(x)
}

// Memory of other owners is counted as they say, in parts of several kinds, until they uncount it.
func TestMemoryFromElsewhere(t *testing.T) {
	dev := newHeap()
	m, buf := dev.Memory(), make([]float32, 100)
	x := FromPtr(dev, unsafe.Pointer(&buf[0]), Float32, 100)
	FromSlice(buf, 100)
	NewParam(Constant(0), 100).SetValue(x)
	assert.Zero(t, m.Total())
	Raw(x).Count(memory.Parameters, 40)
	Raw(x).Count(memory.Gathered, 360)
	assert.Equal(t, []int{40, 360, 400}, []int{m.Of(memory.Parameters).Live, m.Of(memory.Gathered).Live, m.Total().Live})
	Raw(x.Range(2, 3)).Uncount()
	Raw(x).Uncount()
	Raw(FromSlice(buf, 100)).Uncount()
	assert.Equal(t, memory.Bytes{Live: 0, Peak: 400}, m.Total())
}

// poor is a device without free memory.
type poor struct {
	*heap
	empty bool
}

func (d *poor) Alloc(n int) (Ptr, error) {
	if d.empty {
		return nil, errors.New("cuMemAlloc: out of memory")
	}
	return d.heap.Alloc(n)
}

func (d *poor) Host() bool { return false }

// If a device has no memory, the error says how much was needed for what, and what the rest is used for.
func TestNoMemory(t *testing.T) {
	dev := &poor{heap: newHeap()}
	p := NewParam(Constant(1), 1<<18)
	p.SetName("layers.0.weight")
	p.Make(dev, Float32, 1)
	tape := NewTape(dev)
	x := tape.Use(p).Scale(2)
	dev.empty = true
	err := Try(func() { x.Reshape(1<<18, 1).Broadcast(1<<18, 1<<10) })
	assert.ErrorContains(t, err, "alloc float32[262144,1024]: 1.00 GiB (activations) on cpu: cuMemAlloc: out of memory; "+
		"in use: parameters 1.00 MiB, activations 1.00 MiB; `ringo plan` says how much a training needs (at ")
	q := NewParam(Constant(1), 3)
	q.SetName("layers.1.weight")
	assert.ErrorContains(t, Try(func() { q.Make(dev, Float32, 1) }), "alloc layers.1.weight float32[3]: 12 B (parameters) on cpu: ")
}
