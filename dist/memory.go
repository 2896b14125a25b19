package dist

import (
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Alloc is Rank.Alloc. On a device with memory of its own it is ordinary memory of the device.
func (g *Group) Alloc(dtype tensor.DType, dims ...int) tensor.Tensor {
	return g.AllocFor(tensor.Communication, dtype, dims...)
}

// AllocFor is Alloc for memory that the device counts as a kind.
func (g *Group) AllocFor(kind tensor.MemoryKind, dtype tensor.DType, dims ...int) tensor.Tensor {
	a, ok := g.c.engine.(backend.Allocator)
	if !ok || !g.c.dev.Host() {
		return tensor.NewFor(kind, g.c.dev, dtype, dims...)
	}
	n := dtype.Size()
	for _, d := range dims {
		n *= d
	}
	p, owner, err := a.Alloc(n)
	if err != nil { // no shared memory, or too little: it is a matter of speed only
		return tensor.NewFor(kind, g.c.dev, dtype, dims...)
	}
	x := tensor.FromPtr(g.c.dev, p, dtype, dims...)
	tensor.Raw(x).Keep(owner)
	tensor.Raw(x).Count(kind, n)
	return x
}

// Free gives the memory of a tensor of Alloc back, after waiting for operations that still use it. Neither the tensor nor a
// view of it may be used afterwards.
func (g *Group) Free(x tensor.Tensor) {
	tensor.Raw(x).Settle()
	tensor.Raw(x).Uncount()
	if a, ok := g.c.engine.(backend.Allocator); ok && g.c.dev.Host() {
		_ = a.Free(x.Ptr()) // an error says that it was ordinary memory, which nobody has to give back
	}
}

// StepMemory makes a tape take its step memory (activations, their gradients) from where Alloc does, so that collectives on
// what the tape computed need no copy through a buffer: for tensor, sequence and expert parallelism.
//
//	tape := tensor.NewTape(r.Device, r.StepMemory())
//
// Where there is no such memory, or no room in it, the tape takes the device's.
func (r *Rank) StepMemory() tensor.TapeOption {
	a, ok := r.World.c.engine.(backend.Allocator)
	if !ok || !r.Device.Host() {
		return func(*tensor.Tape) {}
	}
	return tensor.MemoryFrom(&stepMemory{a, r.Device, map[tensor.Ptr]tensor.Ptr{}})
}

// stepMemory is shared memory, and the device's where there is too little.
type stepMemory struct {
	from   backend.Allocator
	dev    tensor.Device
	owners map[tensor.Ptr]tensor.Ptr // of shared memory, kept reachable
}

func (m *stepMemory) Alloc(n int) (tensor.Ptr, error) {
	p, owner, err := m.from.Alloc(n)
	if err != nil {
		return m.dev.Alloc(n)
	}
	m.owners[p] = owner
	return p, nil
}

func (m *stepMemory) Free(p tensor.Ptr) {
	if m.owners[p] == nil {
		m.dev.Free(p)
		return
	}
	delete(m.owners, p)
	_ = m.from.Free(p) // the engine is closed: the memory goes with its owner
}
