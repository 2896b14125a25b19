package arena

import (
	"cmp"
	"slices"
	"unsafe"
)

// trim gives idle memory back before n more bytes are taken, if the idle memory would then be larger than the peak of the memory in use. If
// shapes change from step to step (lengths of sequences, counts of experts, a growing cache), old blocks fit no new tensor, and a tape
// would take more memory with each step. So idle memory is at most the peak: a tape holds at most twice its peak, and slabs that are partly
// in use.
func (a *Arena) trim(n int) {
	if most := max(a.peak, a.high); a.held+n-a.live > most {
		a.giveBack(most + a.live - n)
	}
}

// giveBack gives idle memory back until at most keep bytes are held: first large blocks, from the smallest on, then whole idle slabs. It
// reports whether it gave any.
func (a *Arena) giveBack(keep int) bool {
	if a.Fixed != nil && a.Fixed() {
		return false
	}
	k, held := 0, a.held
	for ; k < len(a.large) && a.held > keep; k++ {
		a.toSource(a.large[k])
	}
	a.large = slices.Delete(a.large, 0, k)
	if a.held > keep {
		a.giveBackSlabs(keep)
	}
	return a.held < held
}

func (a *Arena) toSource(b Block) {
	i := slices.Index(a.slabs, b)
	a.slabs = slices.Delete(a.slabs, i, i+1)
	a.hold(-b.Bytes)
	a.From.Free(b.P)
}

// giveBackSlabs gives back the slabs whose blocks are all free.
func (a *Arena) giveBackSlabs(keep int) {
	a.freeRest()
	slabs := slices.SortedFunc(slices.Values(a.slabs), func(x, y Block) int { return cmp.Compare(uintptr(x.P), uintptr(y.P)) })
	of := func(p Ptr) int {
		i, found := slices.BinarySearchFunc(slabs, p, func(b Block, p Ptr) int { return cmp.Compare(uintptr(b.P), uintptr(p)) })
		if !found {
			i--
		}
		return i
	}
	idle, idleWhole := make([]int, len(slabs)), make([]bool, len(slabs))
	for c, free := range a.free {
		for _, p := range free {
			idle[of(p)] += bytesOf(c)
		}
	}
	for i, b := range slabs {
		if idleWhole[i] = idle[i] == b.Bytes && a.held > keep; idleWhole[i] {
			a.toSource(b)
		}
	}
	for c, free := range a.free {
		a.free[c] = slices.DeleteFunc(free, func(p Ptr) bool { return idleWhole[of(p)] })
	}
}

// freeRest frees the rest of the slab, as blocks.
func (a *Arena) freeRest() {
	for a.left > 0 {
		n := min(a.left, largeBlock) // a larger block would count as a large one when it is freed
		c, bytes := classOf(n)
		if bytes > n {
			c, bytes = c-1, bytesOf(c-1)
		}
		a.free[c] = append(a.free[c], a.slab)
		a.slab, a.left = unsafe.Add(a.slab, bytes), a.left-bytes
	}
}

// larger returns the next class that has an idle block of at most twice the bytes, else c.
func (a *Arena) larger(c, bytes int) (class, size int) {
	for k := c + 1; k < numClasses && bytesOf(k) <= 2*bytes; k++ {
		if len(a.free[k]) > 0 {
			return k, bytesOf(k)
		}
	}
	return c, bytes
}
