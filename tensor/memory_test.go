package tensor

import (
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Tensors outside tapes count from when they are made until the garbage collector finds them unreachable.
func TestMemoryByKind(t *testing.T) {
	dev := newHeap()
	m := dev.Memory()
	p := NewParam(NormalInit(0, 1), 5, 7)
	p.Make(dev, Float32, 1)
	x := New(dev, Float64, 10)
	grads := NewFor(Gradients, dev, BFloat16, 35)
	assert.Equal(t, []MemoryUse{{140, 140}, {70, 70}, {80, 80}, {290, 290}},
		[]MemoryUse{m.Of(Parameters), m.Of(Gradients), m.Of(OtherMemory), m.Total()})

	NewParam(Constant(0), 10).SetValue(x)
	NewParam(Constant(0), 10).SetValue(x)
	assert.Equal(t, MemoryUse{220, 220}, m.Of(Parameters), "what was other memory, once")
	assert.Equal(t, MemoryUse{0, 80}, m.Of(OtherMemory))
	assert.Equal(t, MemoryUse{290, 290}, m.Total())

	view := grads.Range(3, 4)
	grads = Tensor{}
	runtime.GC()
	assert.Equal(t, 70, m.Of(Gradients).Live, "a view has it")
	runtime.KeepAlive(view)
	view = Tensor{}
	require.Eventually(t, func() bool { runtime.GC(); return m.Of(Gradients).Live == 0 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, MemoryUse{220, 290}, m.Total())
	m.ResetPeak()
	assert.Equal(t, MemoryUse{220, 220}, m.Total())
	assert.Equal(t, MemoryUse{}, m.Of(Gradients))
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
	Raw(x).Count(Parameters, 40)
	Raw(x).Count(Gathered, 360)
	assert.Equal(t, []int{40, 360, 400}, []int{m.Of(Parameters).Live, m.Of(Gathered).Live, m.Total().Live})
	Raw(x.Range(2, 3)).Uncount()
	Raw(x).Uncount()
	Raw(FromSlice(buf, 100)).Uncount()
	assert.Equal(t, MemoryUse{0, 400}, m.Total())
}

func TestMemoryTable(t *testing.T) {
	var m Memory
	assert.Equal(t, "  memory  now  peak\n   total  0 B   0 B", m.String())
	m.Add(Parameters, 1<<20+1<<19)
	m.Add(Communication, 700)
	m.sub(Communication, 60)
	assert.Equal(t, `         memory       now      peak
     parameters  1.50 MiB  1.50 MiB
  communication     640 B     700 B
          total  1.50 MiB  1.50 MiB`, m.String())
	text, err := json.Marshal(m.ByName())
	require.NoError(t, err)
	assert.Contains(t, string(text), `"communication":{"live":640,"peak":700}`)
	assert.Contains(t, string(text), `"total":{"live":1573504,"peak":1573564}`)
	for n, want := range map[int]string{1023: "1023 B", 1024: "1.00 KiB", 3 << 40: "3.00 TiB", 1 << 60: "1024.00 PiB"} {
		assert.Equal(t, want, FormatBytes(n))
	}
}

// Several goroutines count at the same time, and no count is lost.
func TestMemoryCountsOfSeveralGoroutines(t *testing.T) {
	var m Memory
	var all sync.WaitGroup
	for k := range 4 {
		all.Go(func() {
			for i := range 1000 {
				m.Add(Activations, 10+i)
				m.Add(MemoryKind(1+k), 1)
				m.sub(Activations, 10+i)
			}
		})
	}
	all.Wait()
	assert.Equal(t, 4000, m.Total().Live)
	assert.Equal(t, 1000, m.Of(Parameters).Live)
	assert.True(t, 1009 <= m.Of(Activations).Peak && m.Of(Activations).Peak <= 4*1009+1000)
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
