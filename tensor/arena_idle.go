package tensor

import (
	"cmp"
	"slices"
	"unsafe"
)

// trim gives idle memory back before n more bytes are taken, if the idle memory would then be larger than the peak of the memory in use. If
// shapes change from step to step (lengths of sequences, counts of experts, a growing cache), old blocks fit no new tensor, and a tape
// would take more memory with each step. So idle memory is at most the peak: a tape holds at most twice its peak, and slabs that are partly
// in use.
func (m *arena) trim(n int) {
	if most := max(m.peak, m.high); m.held+n-m.live > most {
		m.giveBack(most + m.live - n)
	}
}

// giveBack gives idle memory back until at most keep bytes are held: first large blocks, from the smallest on, then whole idle slabs. It
// reports whether it gave any. While a step is recorded it gives back nothing that the recording uses.
func (m *arena) giveBack(keep int) bool {
	if g, ok := m.dev.(Grapher); ok && g.Recording() != nil {
		return false
	}
	k, held := 0, m.held
	for ; k < len(m.large) && m.held > keep; k++ {
		m.toDevice(m.large[k])
	}
	m.large = slices.Delete(m.large, 0, k)
	if m.held > keep {
		m.giveBackSlabs(keep)
	}
	return m.held < held
}

func (m *arena) toDevice(b block) {
	i := slices.Index(m.slabs, b)
	m.slabs = slices.Delete(m.slabs, i, i+1)
	m.held -= b.bytes
	m.use.held.add(-b.bytes)
	m.from.Free(b.p)
}

// giveBackSlabs gives back the slabs whose blocks are all free.
func (m *arena) giveBackSlabs(keep int) {
	m.freeRest()
	slabs := slices.SortedFunc(slices.Values(m.slabs), func(a, b block) int { return cmp.Compare(uintptr(a.p), uintptr(b.p)) })
	of := func(p Ptr) int {
		i, found := slices.BinarySearchFunc(slabs, p, func(b block, p Ptr) int { return cmp.Compare(uintptr(b.p), uintptr(p)) })
		if !found {
			i--
		}
		return i
	}
	idle, idleWhole := make([]int, len(slabs)), make([]bool, len(slabs))
	for c, free := range m.free {
		for _, p := range free {
			idle[of(p)] += bytesOf(c)
		}
	}
	for i, b := range slabs {
		if idleWhole[i] = idle[i] == b.bytes && m.held > keep; idleWhole[i] {
			m.toDevice(b)
		}
	}
	for c, free := range m.free {
		m.free[c] = slices.DeleteFunc(free, func(p Ptr) bool { return idleWhole[of(p)] })
	}
}

// freeRest frees the rest of the slab, as blocks.
func (m *arena) freeRest() {
	for m.left > 0 {
		n := min(m.left, largeBlock) // a larger block would count as a large one when it is freed
		c, bytes := classOf(n)
		if bytes > n {
			c, bytes = c-1, bytesOf(c-1)
		}
		m.free[c] = append(m.free[c], m.slab)
		m.slab, m.left = unsafe.Add(m.slab, bytes), m.left-bytes
	}
}

// larger returns the next class that has an idle block of at most twice the bytes, else c.
func (m *arena) larger(c, bytes int) (class, size int) {
	for k := c + 1; k < numClasses && bytesOf(k) <= 2*bytes; k++ {
		if len(m.free[k]) > 0 {
			return k, bytesOf(k)
		}
	}
	return c, bytes
}

// bytesOf returns the bytes of a block of a class: see classOf.
func bytesOf(class int) int {
	if class == 0 {
		return minBlock
	}
	e, k := 6+(class-1)/16, (class-1)%16+1
	return 1<<e + k*max(1<<e/16, minBlock)
}

// ShareMemory makes the tape use the step memory of other. The tapes of a pipeline's microbatches then hold together what they need at the
// same time, and not a whole step's memory each. Tapes that share belong to one goroutine and one device. Memory, Held and the peak count
// all of them together.
func ShareMemory(other *Tape) TapeOption {
	return func(t *Tape) {
		if t.dev != other.dev {
			fail("ShareMemory", nil, "the tapes are on %v and another %v", t.dev, other.dev)
		}
		t.mem = other.mem
	}
}

// StepMemory gives a tape its step memory, in slabs for many tensors. Every Device is one.
type StepMemory interface {
	// Alloc returns n bytes of the tape's device, aligned to 64.
	Alloc(n int) (Ptr, error)
	// Free gives back what Alloc returned.
	Free(p Ptr)
}

// MemoryFrom makes the tape take its step memory from m in place of the device: see dist.Rank.StepMemory.
func MemoryFrom(m StepMemory) TapeOption {
	return func(t *Tape) {
		if t.mem.tapes > 0 {
			fail("MemoryFrom", nil, "the tape shares the memory of another: say it for that one")
		}
		t.mem.from = m
	}
}

// Held returns the bytes that the tape has from its device: those in use, and those that it keeps for reuse.
func (t *Tape) Held() int { return t.mem.held }
