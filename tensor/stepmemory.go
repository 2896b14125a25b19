package tensor

import (
	"github.com/ringo-ml/ringo/tensor/internal/arena"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// StepMemory gives a tape its step memory, in slabs for many tensors. Every Device is one.
type StepMemory interface {
	// Alloc returns n bytes of the tape's device, aligned to 64.
	Alloc(n int) (Ptr, error)
	// Free gives back what Alloc returned.
	Free(p Ptr)
}

// newArena returns the step memory of a tape. While a step is recorded, nothing that the recording uses goes back to the device.
func (t *Tape) newArena(dev Device) *arena.Arena {
	m := &arena.Arena{From: dev, Count: dev.Memory()}
	if debugMode {
		m.Spoil = func(b arena.Block) { spoil(dev, b.P, b.Bytes) }
	}
	if g := t.grapher; g != nil {
		m.Fixed = func() bool { return g.Recording() != nil }
	}
	return m
}

// take gives h a block of at least n bytes.
func (t *Tape) take(h *header, n int) arena.Block {
	b, err := t.mem.Alloc(n)
	if err != nil {
		noMemory(t.dev, memory.Activations, h, b.Bytes, err)
	}
	return b
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

// MemoryFrom makes the tape take its step memory from m in place of the device: see dist.Rank.StepMemory.
func MemoryFrom(m StepMemory) TapeOption {
	return func(t *Tape) {
		if t.mem.Shared() {
			fail("MemoryFrom", nil, "the tape shares the memory of another: say it for that one")
		}
		t.mem.From = m
	}
}

// Memory returns the bytes of step memory in use now, and the most since NewTape.
func (t *Tape) Memory() (live, peak int) { return t.mem.Live() }

// Held returns the bytes that the tape has from its device: those in use, and those that it keeps for reuse.
func (t *Tape) Held() int { return t.mem.Held() }

// StepBytes returns the bytes that a tape counts for a tensor of n bytes: those of its block. It may count more when it reuses a larger
// block.
func StepBytes(n int) int { return arena.BlockBytes(n) }
