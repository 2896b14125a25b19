package tensor

import (
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// neighbours are parameters whose values lie in one memory, and whose gradients do.
type neighbours struct {
	params []*Param
	values []*storage // of those that Make has not made yet; nil: it made none
}

// Together says that p and others lie in one memory, the last one first, each at a multiple of 64 bytes: their values where Make makes all
// of them, and their gradients where Backward makes their memory, for all at once. Elsewhere it changes nothing. The memory is freed when
// nothing refers to any of them.
func (p *Param) Together(others ...*Param) {
	g := &neighbours{params: append([]*Param{p}, others...)}
	for _, p := range g.params {
		p.beside = g
	}
}

// blank returns zeros for p's value or gradient, beside those of its neighbours.
func (p *Param) blank(use memory.Use, dev Device, dtype DType) Tensor {
	h, name := &header{dtype: dtype}, p.name
	h.setDims(p.Dims())
	if use == memory.Gradients {
		name = ""
	}
	if g := p.beside; g != nil && use == memory.Gradients {
		h.st = g.gradient(p, dev, dtype)
	} else if g != nil {
		h.st = g.value(p, dev, dtype)
	}
	if h.st == nil {
		newStorage(dev, use, h, name)
	}
	return Tensor{h, 0}
}

// value returns p's part of the memory of all values, or nil.
func (g *neighbours) value(p *Param, dev Device, dtype DType) (s *storage) {
	if g.values == nil {
		if slices.ContainsFunc(g.params, func(p *Param) bool { return !p.Value.IsZero() }) {
			return nil
		}
		g.values = g.parts(memory.Parameters, dev, dtype)
	}
	i := slices.Index(g.params, p)
	if s = g.values[i]; s != nil && s.dev == dev && s.bytes == p.n*dtype.Size() {
		g.values[i] = nil
		return s
	}
	return nil
}

// gradient returns p's part of the memory of all gradients, and gives the others theirs. It is nil if one of them has a gradient, or is to
// have none or another one.
func (g *neighbours) gradient(p *Param, dev Device, dtype DType) (own *storage) {
	if slices.ContainsFunc(g.params, func(p *Param) bool {
		return p.frozen || p.owner != nil || !p.Grad.IsZero() || p.Value.IsZero() || p.Value.DType() != dtype
	}) {
		return nil
	}
	for i, s := range g.parts(memory.Gradients, dev, dtype) {
		o := g.params[i]
		if o == p {
			own = s
			continue
		}
		h := &header{dtype: dtype, st: s}
		h.setDims(o.Dims())
		o.Grad = Tensor{h, 0}
	}
	return own
}

// parts returns new memory for each of the parameters. What has one keeps all of it.
func (g *neighbours) parts(use memory.Use, dev Device, dtype DType) []*storage {
	n := 0
	for _, p := range g.params {
		n += roundUp(p.n * dtype.Size())
	}
	all := &header{dtype: Uint8}
	all.setDims([]int{n})
	newStorage(dev, memory.Uncounted, all, "")
	parts, at := make([]*storage, len(g.params)), all.st.ptr
	for i, p := range slices.Backward(g.params) {
		s := &storage{ptr: at, bytes: p.n * dtype.Size(), refs: 1, dev: dev, heap: unsafe.Pointer(all.st)}
		s.count(use, s.bytes)
		parts[i], at = s, unsafe.Add(at, roundUp(s.bytes))
	}
	return parts
}

// roundUp returns the next multiple of 64.
func roundUp(bytes int) int { return (bytes + 63) &^ 63 }
