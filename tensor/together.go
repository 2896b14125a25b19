package tensor

import (
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// neighbours are parameters whose values lie in one memory, and whose gradients do.
type neighbours struct {
	params []*Param
	values []*storage // of those that are not made yet, or nil
}

// Together says that p and others lie in one memory, the last one first, each at a multiple of 64 bytes: their values where Make or To
// makes all of them, and their gradients where Backward makes their memory, for all at once. Elsewhere it changes nothing. The memory is
// freed when nothing refers to any of them.
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

// value returns p's part of the memory of all values, or nil if one of them is there already.
func (g *neighbours) value(p *Param, dev Device, dtype DType) *storage {
	i := slices.Index(g.params, p)
	if i < 0 { // a copy of one
		return nil
	}
	if g.values == nil || g.values[i] == nil || g.values[i].dev != dev || g.values[i].bytes != p.n*dtype.Size() {
		g.values = nil
		if slices.ContainsFunc(g.params, func(p *Param) bool { return !p.Value.IsZero() && p.Value.Device() == dev }) {
			return nil
		}
		g.values = g.parts(p, memory.Parameters, dev, dtype)
	}
	s := g.values[i]
	s.names, g.values[i] = &names{whole: p.name}, nil
	s.count(memory.Parameters, s.bytes)
	return s
}

// gradient returns p's part of the memory of all gradients, and gives the others theirs. It is nil if one of them has a gradient, or is to
// have none or another one.
func (g *neighbours) gradient(p *Param, dev Device, dtype DType) (own *storage) {
	if slices.ContainsFunc(g.params, func(p *Param) bool {
		return p.frozen || p.owner != nil || !p.Grad.IsZero() || p.Value.IsZero() || p.Value.DType() != dtype || p.Value.Device() != dev
	}) || !slices.Contains(g.params, p) {
		return nil
	}
	for i, s := range g.parts(p, memory.Gradients, dev, dtype) {
		s.count(memory.Gradients, s.bytes)
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

// parts returns new memory for each of the parameters, of which p is the first that needs it. What has one keeps all of it.
func (g *neighbours) parts(p *Param, use memory.Use, dev Device, dtype DType) []*storage {
	n := 0
	for _, p := range g.params {
		n += roundUp(p.n * dtype.Size())
	}
	h := &header{dtype: dtype}
	h.setDims(p.Dims())
	all := allocate(dev, use, h, n, p.name)
	parts, at := make([]*storage, len(g.params)), all.ptr
	for i, p := range slices.Backward(g.params) {
		s := &storage{ptr: at, bytes: p.n * dtype.Size(), refs: 1, dev: dev, heap: unsafe.Pointer(all)}
		parts[i], at = s, unsafe.Add(at, roundUp(s.bytes))
	}
	return parts
}

// roundUp returns the next multiple of 64.
func roundUp(bytes int) int { return (bytes + 63) &^ 63 }
