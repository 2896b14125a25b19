package fsdp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// pool lends buffers, each as large as the largest unit that needs one, and makes more when all are lent.
type pool struct {
	g         *dist.Group
	kind      tensor.MemoryKind
	bytes     int
	free      []tensor.Tensor
	allocated int
}

// reserve makes buffers large enough for x.
func (p *pool) reserve(x tensor.Tensor) { p.bytes = max(p.bytes, x.Len()*x.DType().Size()) }

// lend gives x, made by tensor.FromPtr, memory of any content.
func (p *pool) lend(x tensor.Tensor) tensor.Tensor {
	var b tensor.Tensor
	if k := len(p.free); k > 0 {
		b, p.free = p.free[k-1], p.free[:k-1]
	} else {
		b = p.g.AllocFor(p.kind, tensor.Uint8, max(p.bytes, 1))
		p.allocated++
	}
	tensor.Raw(x).Place(b.Ptr())
	return b
}

// giveBack takes the memory *b from x, if it has some. Nobody may use x from then on, and no collective may use it any more.
func (p *pool) giveBack(b *tensor.Tensor, x tensor.Tensor) {
	if b.IsZero() {
		return
	}
	tensor.Raw(x).Settle()
	tensor.Raw(x).Place(nil)
	tensor.Raw(*b).Spoil()
	p.free = append(p.free, *b)
	*b = tensor.Tensor{}
}
