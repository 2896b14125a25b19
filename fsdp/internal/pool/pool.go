package pool

import (
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Pool lends buffers, each as large as the largest tensor that needs one, and makes more when all are lent.
type Pool struct {
	Group *dist.Group // whose communication uses the memory
	Kind  memory.Use

	bytes int
	free  []tensor.Tensor
	loans []loan
}

// loan is a buffer that is the memory of x.
type loan struct{ x, buf tensor.Tensor }

// New returns a tensor of n elements. It has no memory until it is lent some.
func (p *Pool) New(dtype tensor.DType, n int) tensor.Tensor {
	p.bytes = max(p.bytes, n*dtype.Size())
	return tensor.FromPtr(p.Group.Device(), nil, dtype, n)
}

// Lend gives x, made by New, memory of any content.
func (p *Pool) Lend(x tensor.Tensor) {
	var b tensor.Tensor
	if k := len(p.free); k > 0 {
		b, p.free = p.free[k-1], p.free[:k-1]
	} else {
		b = p.Group.AllocFor(p.Kind, tensor.Uint8, max(p.bytes, 1))
	}
	tensor.Raw(x).Place(b.Ptr())
	p.loans = append(p.loans, loan{x, b})
}

// Has reports whether x has memory of the pool.
func (p *Pool) Has(x tensor.Tensor) bool { return p.find(x) >= 0 }

func (p *Pool) find(x tensor.Tensor) int {
	return slices.IndexFunc(p.loans, func(l loan) bool { return l.x == x })
}

// GiveBack takes the memory from x, if it has some. Nobody may use x from then on, and no collective may use it any more.
func (p *Pool) GiveBack(x tensor.Tensor) {
	k := p.find(x)
	if k < 0 {
		return
	}
	tensor.Raw(x).Settle()
	tensor.Raw(x).Place(nil)
	b := p.loans[k].buf
	tensor.Raw(b).Spoil()
	p.free, p.loans = append(p.free, b), slices.Delete(p.loans, k, k+1)
}
