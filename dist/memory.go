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
	tensor.Keep(x, owner)
	tensor.Count(x, kind, n)
	return x
}

// Free gives the memory of a tensor of Alloc back, after waiting for operations that still use it. Neither the tensor nor a
// view of it may be used afterwards.
func (g *Group) Free(x tensor.Tensor) {
	tensor.Settle(x)
	tensor.Uncount(x)
	if a, ok := g.c.engine.(backend.Allocator); ok && g.c.dev.Host() {
		_ = a.Free(x.Ptr()) // an error says that it was ordinary memory, which nobody has to give back
	}
}
