package dist

import (
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Alloc is Rank.Alloc. If the device has memory of its own, it returns ordinary device memory.
func (g *Group) Alloc(dtype tensor.DType, dims ...int) tensor.Tensor {
	return g.AllocFor(memory.Communication, dtype, dims...)
}

// AllocFor is Alloc with the kind under which the device counts the memory.
func (g *Group) AllocFor(kind memory.Use, dtype tensor.DType, dims ...int) tensor.Tensor {
	a, ok := g.c.engine.(backend.Allocator)
	if !ok || !g.c.dev.Host() {
		return tensor.NewFor(kind, g.c.dev, dtype, dims...)
	}
	n := dtype.Size()
	for _, d := range dims {
		n *= d
	}
	p, owner, err := a.Alloc(n)
	if err != nil { // no shared memory, or too little: ordinary memory is only slower
		return tensor.NewFor(kind, g.c.dev, dtype, dims...)
	}
	x := tensor.FromPtr(g.c.dev, p, dtype, dims...)
	tensor.Raw(x).Keep(owner)
	tensor.Raw(x).Count(kind, n)
	return x
}

// Free frees the memory of a tensor of Alloc, after it has waited for operations that still use it. Do not use the tensor or a view of it
// afterwards.
func (g *Group) Free(x tensor.Tensor) {
	tensor.Raw(x).Settle()
	tensor.Raw(x).Uncount()
	if a, ok := g.c.engine.(backend.Allocator); ok && g.c.dev.Host() {
		_ = a.Free(x.Ptr()) // an error means ordinary memory, which the garbage collector frees
	}
}

// StepMemory makes a tape allocate its step memory (activations and their gradients) as Alloc does. Then collectives on computed tensors
// need no copy through a buffer. This helps tensor, sequence and expert parallelism.
//
//	tape := tensor.NewTape(r.Device, r.StepMemory())
//
// If there is no shared memory, or it is full, the tape uses the device's memory.
func (r *Rank) StepMemory() tensor.TapeOption {
	a, ok := r.World.c.engine.(backend.Allocator)
	if !ok || !r.Device.Host() {
		return func(*tensor.Tape) {}
	}
	return tensor.MemoryFrom(&stepMemory{a, r.Device, map[tensor.Ptr]tensor.Ptr{}})
}

// stepMemory is shared memory, or the device's memory when shared memory is full.
type stepMemory struct {
	from   backend.Allocator
	dev    tensor.Device
	owners map[tensor.Ptr]tensor.Ptr // of shared memory; the map keeps them reachable
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
	_ = m.from.Free(p) // an error means a closed engine, which has freed the memory
}
