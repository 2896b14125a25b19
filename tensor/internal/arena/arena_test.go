package arena

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// source is Go memory, aligned as that of devices.
type source struct{ mem map[Ptr][]byte }

func (s *source) Alloc(n int) (Ptr, error) {
	b := make([]byte, n+63)
	p := unsafe.Pointer(unsafe.SliceData(b))
	p = unsafe.Add(p, int(-uintptr(p)&63))
	s.mem[p] = b
	return p, nil
}

func (s *source) Free(p Ptr) { delete(s.mem, p) }

func newArena() (*Arena, *source) {
	s := &source{map[Ptr][]byte{}}
	return &Arena{From: s, Count: &memory.Counter{}}, s
}

func alloc(t *testing.T, m *Arena, n int) Block {
	b, err := m.Alloc(n)
	require.NoError(t, err)
	return b
}

// classOf and bytesOf agree.
func TestBytesOfAClass(t *testing.T) {
	for n := 1; n <= largeBlock; n += 1 + n/100 {
		class, bytes := classOf(n)
		require.Equal(t, bytes, bytesOf(class), n)
	}
}

// After any sequence of calls, the blocks in use and the idle ones are all the memory that is held, lie inside it, and do not overlap.
func TestArenaHoldsTogether(t *testing.T) {
	seeds := uint64(5)
	if reliability.Long(t) {
		seeds = 20
	}
	for seed := range seeds {
		m, from := newArena()
		r := rand.New(rand.NewPCG(seed, 9))
		var live []Block
		size := func() int { return 1 + r.IntN(1<<(6+r.IntN(17))) }
		for step := range 600 {
			switch n := len(live); {
			case r.IntN(100) == 0:
				for _, b := range live {
					m.Free(b)
				}
				live = live[:0]
			case r.IntN(40) == 0:
				m.giveBack(r.IntN(m.held + 1))
			case n > 0 && r.IntN(2) == 0:
				i := r.IntN(n)
				m.Free(live[i])
				live[i] = live[n-1]
				live = live[:n-1]
			default:
				live = append(live, alloc(t, m, size()))
			}
			requireWhole(t, m, from, live, step)
		}
		for _, b := range live {
			m.Free(b)
		}
		m.giveBack(0)
		require.Empty(t, from.mem, "all is idle")
	}
}

func TestLongArenaHoldsTogether(t *testing.T) { reliability.AsLong(t, TestArenaHoldsTogether) }

func requireWhole(t *testing.T, m *Arena, from *source, live []Block, step int) {
	all := slices.Concat(live, m.large)
	for c, free := range m.free {
		for _, p := range free {
			all = append(all, Block{p, bytesOf(c)})
		}
	}
	if m.left > 0 {
		all = append(all, Block{m.slab, m.left})
	}
	byPlace := func(a, b Block) int { return cmp.Compare(uintptr(a.P), uintptr(b.P)) }
	slabs := slices.SortedFunc(slices.Values(m.slabs), byPlace)
	slices.SortFunc(all, byPlace)
	held := 0
	for _, s := range slabs {
		held += s.Bytes
		end := uintptr(s.P)
		for len(all) > 0 && uintptr(all[0].P) == end && end < uintptr(s.P)+uintptr(s.Bytes) {
			end += uintptr(all[0].Bytes)
			all = all[1:]
		}
		require.Equal(t, uintptr(s.P)+uintptr(s.Bytes), end, "step %d: a hole or an overlap in a slab", step)
	}
	require.Zero(t, len(all), "step %d: blocks outside of what is held", step)
	require.Equal(t, []int{held, held, len(slabs)}, []int{m.held, m.Count.Held().Live, len(from.mem)}, "step %d", step)
}

// Blocks of every size come from the class to which they return, waste at most an eighth, and are aligned.
func TestArena(t *testing.T) {
	m, from := newArena()
	m.Open()
	for _, n := range []int{
		0, 1, 63, 64, 65, 127, 128, 129, 1000, 1024, 1025, 4095, 65537, largeBlock - 1, largeBlock, largeBlock + 1, 3*largeBlock + 7,
	} {
		b := alloc(t, m, n)
		assert.GreaterOrEqual(t, b.Bytes, n)
		assert.LessOrEqual(t, b.Bytes, n+max(n/8, MinBlock, pageBytes*(n/largeBlock)), "%d bytes", n)
		assert.Zero(t, uintptr(b.P)%64)
		if n <= largeBlock {
			c1, bytes := classOf(n)
			c2, again := classOf(bytes)
			assert.Equal(t, [2]int{c1, b.Bytes}, [2]int{c2, again}, "%d bytes", n)
			assert.Less(t, c1, numClasses)
		}
		clear(unsafe.Slice((*byte)(b.P), b.Bytes))
		m.Free(b)
		assert.Equal(t, b, alloc(t, m, n), "%d bytes", n)
		m.Free(b)
	}
	assert.Zero(t, m.live)
	small, large := alloc(t, m, 2*largeBlock), alloc(t, m, 10*largeBlock)
	m.Free(large)
	m.Free(small)
	assert.Equal(t, small, alloc(t, m, 2*largeBlock), "the smallest that fits")
	assert.NotEqual(t, large, alloc(t, m, 8*largeBlock), "a fifth of waste is too much")
	assert.Equal(t, large, alloc(t, m, 9*largeBlock))
	m.Close()
	assert.Empty(t, from.mem)
	assert.Equal(t, []int{0, 0}, []int{m.Count.Held().Live, m.Count.Of(memory.Activations).Live})
}

// Blocks are spoiled before their first use and when they are freed.
func TestSpoil(t *testing.T) {
	m, _ := newArena()
	var spoiled []Block
	m.Spoil = func(b Block) { spoiled = append(spoiled, b) }
	b := alloc(t, m, 100)
	m.Free(b)
	assert.Equal(t, []Block{b, b}, spoiled)
}

// While idle memory must stay, none goes back.
func TestFixed(t *testing.T) {
	m, from := newArena()
	m.Free(alloc(t, m, 3*largeBlock))
	fixed := true
	m.Fixed = func() bool { return fixed }
	assert.False(t, m.giveBack(0))
	assert.Len(t, from.mem, 1)
	fixed = false
	assert.True(t, m.giveBack(0))
	assert.Empty(t, from.mem)
}
