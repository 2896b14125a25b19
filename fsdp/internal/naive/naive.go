package naive

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Attach is fsdp.Naive over the ranks of g, with values of a type and a seed.
func Attach(model any, g *dist.Group, dtype tensor.DType, seed uint64) (nn.Params, error) {
	n := &naive{g: g, exec: tensor.NewExec(g.Device()), of: map[*tensor.Param]*part{}}
	params := nn.ParamsOf(model)
	if len(params) == 0 {
		return nil, fmt.Errorf("fsdp: no parameters in a model of type %T", model)
	}
	for _, p := range params {
		if p.Value.IsZero() {
			p.Make(g.Device(), dtype, seed)
		}
		p.To(g.Device())
		if err := g.Broadcast(p.Value, 0).Wait(); err != nil {
			return nil, err
		}
		if !p.IsBuffer() {
			if err := n.shard(p); err != nil {
				return nil, err
			}
		}
	}
	return params, nil
}

// naive is the Hooks of its parameters.
type naive struct {
	g       *dist.Group
	exec    *tensor.Exec
	parts   []*part
	of      map[*tensor.Param]*part
	updated *tensor.Param // has a gradient until the optimizer's step
	stale   bool          // values were changed otherwise
}

// part is a rank's part of a parameter.
type part struct {
	p      *tensor.Param
	counts []int         // elements of each rank's part
	whole  tensor.Tensor // the gradient of all elements, of this rank's rows
	grad   tensor.Tensor // of this rank's part, summed over ranks
}

// shard gives the optimizer this rank's part of p.
func (n *naive) shard(p *tensor.Param) error {
	rank, ranks, dev := n.g.Rank(), n.g.Size(), n.g.Device()
	pt := &part{p: p, counts: layout.Shares(make([]int, ranks), p.Len())}
	lo, hi := layout.Share(p.Len(), rank, ranks)
	p.Local = tensor.NewFor(memory.Parameters, dev, p.Value.DType(), hi-lo)
	tensor.Copy(p.Local, p.Value.View(p.Len()).Range(lo, hi))
	pt.grad = tensor.NewFor(memory.Gradients, dev, p.Value.DType(), hi-lo)
	pt.whole = tensor.NewFor(memory.Gradients, dev, p.Value.DType(), p.Dims()...)
	p.Shard(lo, hi)
	n.of[p], n.parts = pt, append(n.parts, pt)
	return p.Own(n, n.g.Axes())
}

// String names the owner of gradients in errors.
func (*naive) String() string { return "fsdp.Naive" }

// Changed makes the next use gather all parameters.
func (n *naive) Changed(*tensor.Param) { n.stale = true }

// BeforeUse gathers all parameters when they have changed. In Backward it gives a gradient its memory.
func (n *naive) BeforeUse(p *tensor.Param, phase tensor.Phase) {
	switch {
	case phase == tensor.Backward:
		p.Grad = n.of[p].whole
		return
	case !n.stale && (n.updated == nil || n.updated.HasGrad()):
		return
	}
	n.updated, n.stale = nil, false
	for _, pt := range n.parts {
		if err := n.g.AllGatherV(pt.p.Value.View(pt.p.Len()), pt.p.Local, pt.counts).Wait(); err != nil {
			panic(&tensor.Failure{Op: "fsdp: gather of " + pt.p.Name(), Err: err})
		}
	}
}

// BackwardBegin does nothing: gradients of microbatches add up whole.
func (n *naive) BackwardBegin(bool) {}

// GradReady does nothing: gradients are reduced at the end.
func (n *naive) GradReady(_ *tensor.Param, after tensor.Pending) tensor.Pending { return after }

// BackwardDone sums gradients over ranks, and gives the optimizer this rank's parts of them. A parameter that no rank used
// has none; a rank that did not use what others used adds zeros.
func (n *naive) BackwardDone(last bool) error {
	if !last {
		return nil
	}
	users := make([]float64, len(n.parts)) // ranks that have a gradient
	for i, pt := range n.parts {
		if pt.p.HasGrad() {
			users[i] = 1
		} else {
			n.exec.Fill(pt.whole, 0)
		}
	}
	if err := n.g.SumFloats(users); err != nil {
		return err
	}
	for i, pt := range n.parts {
		if users[i] == 0 {
			continue
		}
		if err := n.g.ReduceScatterV(pt.grad, pt.whole.View(pt.p.Len()), pt.counts, dist.Sum).Wait(); err != nil {
			return err
		}
		pt.p.Grad = pt.grad
		pt.p.FillGrad()
		n.updated = pt.p
	}
	return nil
}
