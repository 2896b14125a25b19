package tensor

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

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

// classOf and bytesOf agree.
func TestBytesOfAClass(t *testing.T) {
	for n := 1; n <= largeBlock; n += 1 + n/100 {
		class, bytes := classOf(n)
		require.Equal(t, bytes, bytesOf(class), n)
	}
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

// After any sequence of calls, the blocks in use and the idle ones are all the memory that is held, lie inside it, and do not overlap.
func TestArenaHoldsTogether(t *testing.T) {
	SkipInDebug(t)
	for seed := range uint64(20) {
		dev := newHeap()
		tape := NewTape(dev, NoGrad())
		m, r := tape.mem, rand.New(rand.NewPCG(seed, 9))
		var live []block
		size := func() int { return 1 + r.IntN(1<<(6+r.IntN(17))) }
		for step := range 600 {
			switch n := len(live); {
			case r.IntN(100) == 0:
				for _, b := range live {
					m.release(b)
				}
				live = live[:0]
			case r.IntN(40) == 0:
				m.giveBack(r.IntN(m.held + 1))
			case n > 0 && r.IntN(2) == 0:
				i := r.IntN(n)
				m.release(live[i])
				live[i] = live[n-1]
				live = live[:n-1]
			default:
				live = append(live, m.alloc(nil, size()))
			}
			requireWhole(t, m, live, step)
		}
		for _, b := range live {
			m.release(b)
		}
		m.giveBack(0)
		require.Equal(t, 0, len(dev.mem), "all is idle")
		tape.Close()
	}
}

func requireWhole(t *testing.T, m *arena, live []block, step int) {
	all := slices.Concat(live, m.large)
	for c, free := range m.free {
		for _, p := range free {
			all = append(all, block{p, bytesOf(c)})
		}
	}
	if m.left > 0 {
		all = append(all, block{m.slab, m.left})
	}
	byPlace := func(a, b block) int { return cmp.Compare(uintptr(a.p), uintptr(b.p)) }
	slabs := slices.SortedFunc(slices.Values(m.slabs), byPlace)
	slices.SortFunc(all, byPlace)
	held := 0
	for _, s := range slabs {
		held += s.bytes
		end := uintptr(s.p)
		for len(all) > 0 && uintptr(all[0].p) == end && end < uintptr(s.p)+uintptr(s.bytes) {
			end += uintptr(all[0].bytes)
			all = all[1:]
		}
		require.Equal(t, uintptr(s.p)+uintptr(s.bytes), end, "step %d: a hole or an overlap in a slab", step)
	}
	require.Zero(t, len(all), "step %d: blocks outside of what is held", step)
	require.Equal(t, m.held, held, "step %d", step)
}

// Blocks of every size come from the class to which they return, waste at most an eighth, and are aligned.
func TestArena(t *testing.T) {
	dev := newHeap()
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
