package zeropp

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/pool"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Gather all-gathers values as 8-bit codes.
type Gather struct {
	g        *dist.Group
	exec     *tensor.Exec
	pool     *pool.Pool
	sizes    []int           // bytes of each rank
	mine     tensor.Tensor   // codes of this rank's values
	all      tensor.Tensor   // of all ranks; no memory but while they are gathered
	of, to   []tensor.Tensor // each rank's codes, in all, and its values
	arriving bool
}

// NewGather makes room for the codes. Of the values, each rank has so many elements; memory for codes of all ranks comes from p.
func NewGather(g *dist.Group, exec *tensor.Exec, p *pool.Pool, values tensor.Tensor, counts []int) Gather {
	c := Gather{g: g, exec: exec, pool: p, to: runs(values, counts)}
	for _, n := range counts {
		c.sizes = append(c.sizes, Size8(n))
	}
	n := c.sizes[g.Rank()]
	c.mine = g.AllocFor(memory.Parameters, tensor.Uint8, n)
	c.all = p.New(tensor.Uint8, total(c.sizes))
	c.of = runs(c.all, c.sizes)
	return c
}

// Write makes the codes of this rank's values.
func (c *Gather) Write(values tensor.Tensor) {
	launch(c.exec, Encode8, values.DType(), c.mine, values)
}

// Start issues the all-gather.
func (c *Gather) Start() dist.Work {
	c.arriving = true
	c.pool.Lend(c.all)
	return c.g.AllGatherV(c.all, c.mine, c.sizes)
}

// Finish makes values of the codes that have arrived, if there are some: of this rank's own, too, so that all ranks have the same values.
func (c *Gather) Finish() {
	if !c.arriving {
		return
	}
	c.arriving = false
	for r, values := range c.to {
		launch(c.exec, Decode8, values.DType(), values, c.of[r])
	}
	c.pool.GiveBack(c.all)
}

// runs cuts x into runs of these lengths.
func runs(x tensor.Tensor, lens []int) (list []tensor.Tensor) {
	at := 0
	for _, n := range lens {
		list = append(list, x.Range(at, at+n))
		at += n
	}
	return list
}

func total(list []int) (sum int) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// launch runs one of the operations. dtype is the type of the floats.
func launch(e *tensor.Exec, op tensor.Op, dtype tensor.DType, dst, src tensor.Tensor) {
	if src.Len() > 0 {
		e.Args(op, dtype).Out(dst).In(src)
		e.Launch()
	}
}
