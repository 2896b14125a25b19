package tensor

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor/typing"
)

// Leaf puts x on the tape, as Input does, and computes a gradient for it, which GradOf returns. The input of a pipeline stage is a leaf,
// and so is an image whose gradient is shown (saliency). If x is a tensor of this tape, no gradient flows back to what it was computed
// from. On a NoGrad tape, Leaf is Input. Along axes of the job on which x is the same on all ranks, its gradient must be the same, too: so
// for a gradient of x alone, such as in Langevin dynamics of samples that all ranks have, freeze the parameters meanwhile (Param.Freeze).
func (t *Tape) Leaf(x Tensor) Tensor {
	t.checkLeaf(x.hdr())
	return t.leafOf(t.Input(x).h, x.h)
}

func (t *Tape) checkLeaf(h *header) {
	if !h.dtype.IsFloat() {
		fail("Leaf", these(h), "needs floats: there is no gradient of %v", h.dtype)
	}
	if !t.record || t.recompute || t.quiet {
		fail("Leaf", these(h), "inside a Checkpoint or a Function: make it outside and pass it in")
	}
}

// leafOf makes an input, on the tape, of h a leaf.
func (t *Tape) leafOf(in, h *header) Tensor {
	if in == h {
		in = t.alias(h)
	}
	in.kept = true
	if !t.noGrad {
		in.needs = true
		in.ty = in.ty.With(in.ty.On(Replicated), Invariant) // nobody sums its gradient over ranks
		t.ends = append(t.ends, in)
	}
	return in.tensor()
}

// GradOf returns the gradient of x, which Leaf made: the sum over all Backwards since then, or none if there is none. It waits for
// collectives that still write to it. It is valid until the tape's next Backward or Reset. Its types are x.Types().Dual().
//
// It is a constant: what is computed of it has no gradient. So a penalty of a loss's gradients (WGAN-GP) made of their values adds a number
// to the loss and changes nothing. Write it with a difference along them, which has a gradient: if d is each row's gradient divided by
// its norm, f(x.Add(d.Scale(e))).Sub(f(x)).Scale(1/e) is that norm for a small e. Consume what the first Backward gave the parameters.
func (t *Tape) GradOf(x Tensor) Tensor {
	h := x.hdr()
	if t.noGrad {
		fail("GradOf", these(h), "the tape was made with NoGrad")
	}
	if !slices.Contains(t.ends, h) {
		fail("GradOf", these(h), "not a tensor that Leaf of this tape returned")
	}
	t.settleGrad(h)
	if h.grad != nil {
		h.grad.ty = h.ty.Dual()
	}
	return h.grad.maybe()
}

// BackwardFrom is Backward from given gradients: grads[i] has the shape and type of outs[i], and is its gradient. A pipeline stage gets
// them from the next stage. They are not changed. The caller must not change them while it runs; they belong to this tape or to none (see
// Input). Scale multiplies only the seeds of WithAux: the given gradients are scaled already. The outputs are freed, like all recorded
// tensors (see Keep).
func (t *Tape) BackwardFrom(outs, grads []Tensor, opts ...BackwardOption) {
	t.checkBackward("BackwardFrom", t.putOff)
	if len(outs) == 0 || len(outs) != len(grads) {
		fail("BackwardFrom", nil, "%d outputs and %d gradients", len(outs), len(grads))
	}
	for i := range outs {
		t.checkEnd(outs, grads, i)
		mustGrad(outs[i].h, grads[i].h, i)
	}
	t.begin(opts)
	t.compareNumbers(outs...)
	for i, g := range grads {
		t.addGrad(outs[i].h, t.alias(t.put(g).h))
	}
	t.differentiate()
}

func (t *Tape) checkEnd(outs, grads []Tensor, i int) {
	h, g, wrong := outs[i].hdr(), grads[i].hdr(), ""
	switch {
	case h.tape != t:
		wrong = "output %d is not of this tape"
	case slices.Contains(outs[:i], outs[i]):
		wrong = "output %d is given twice"
	case !h.needs || h.isLeaf():
		wrong = "output %d was not computed from parameters or a Leaf since the last Backward"
	case g.tape != nil && g.tape != t:
		wrong = "gradient %d is of another tape (see Tape.Input)"
	case h.dtype != g.dtype || !h.alike(g):
		wrong = "gradient %d has another shape or type than its output"
	default:
		return
	}
	fail("BackwardFrom", these(h, g), wrong, i)
}

// mustGrad panics with a *Failure unless the types of g fit a gradient of h. If g is the same on all ranks, it may be replicated or
// invariant: gradients of gradients are not computed.
func mustGrad(h, g *header, i int) {
	want, same := h.ty.Dual(), g.ty.On(Replicated)|g.ty.On(Invariant)
	bad := Axes(0)
	for k := range Cut + 1 {
		bad |= want.On(k) &^ g.ty.On(k)
	}
	if bad &^= same & (want.On(Replicated) | want.On(Invariant)); bad != 0 {
		axis := bad.First()
		failWith("BackwardFrom", these(h, g), &typing.Error{Axis: axis, Clash: typing.ClashGrad, Have: g.ty.At(axis), Want: want.At(axis),
			Text: fmt.Sprintf("gradient %d is %v, but output %d is %v: its gradient must be %v", i, g.ty.At(axis), i, h.ty.At(axis), want.At(axis))})
	}
}

// DeferWeights makes Backward and BackwardFrom compute only the gradients of activations, for which other ranks wait. The gradients of
// weights are put off until RunDeferred, as in zero-bubble pipelines (Qi et al. 2023). The tensors that they need stay in memory. Only
// gradients of parameters that a built-in or registered operation reads are put off. A Checkpoint and a Function compute theirs at once,
// and the tape holds these until RunDeferred.
func DeferWeights() BackwardOption { return BackwardOption{defers: true} }

// RunDeferred computes the weight gradients that DeferWeights put off. It, and not Backward, calls BackwardBegin, GradReady and
// BackwardDone of the owners of gradients. So More is given here if more microbatches follow.
func (t *Tape) RunDeferred(opts ...BackwardOption) {
	t.checkBackward("RunDeferred", false)
	if !t.putOff {
		fail("RunDeferred", nil, "nothing was put off (see DeferWeights)")
	}
	if t.nn != t.putOffNodes {
		fail("RunDeferred", nil, "operations were recorded on the tape since gradients were put off")
	}
	t.more = false
	for _, o := range opts {
		if o.scaled || o.defers {
			fail("RunDeferred", nil, "takes no option but More")
		}
		t.more = t.more || o.more
	}
	t.open++
	t.spans.Phase("backward")
	t.inBackward, t.putOff, t.agreement.Rows = true, false, t.rows
	t.beginOwners()
	for _, s := range slices.Backward(t.used) { // what is complete is summed while the rest is computed
		early := s.early
		s.early = 0
		s.usesDone(early)
	}
	for i := t.nn - 1; i >= 0; i-- {
		if t.poller != nil {
			t.poller.Poll()
		}
		if n := t.node(i); n.deferred {
			t.at = i
			t.runDeferredNode(n)
		}
	}
	t.finishBackward()
}

// Deferred reports whether RunDeferred has gradients to compute, not only those to add that a Checkpoint and Functions have computed.
func (t *Tape) Deferred() bool {
	for i := range t.nn {
		if t.node(i).deferred {
			return true
		}
	}
	return false
}

// deferNode puts off the weight gradients of n that mask names. The inputs of its rule must stay in memory, but the nodes that made them
// free their headers. So n gets headers of its own.
func (t *Tape) deferNode(n *Node, mask uint8) {
	n.deferred, n.need, n.keptInputs = true, mask, 0
	n.out.spend()
	for i, h := range n.in {
		if h != nil && !h.isLeaf() && h.st != nil && ops[n.op].Saves&(1<<i) != 0 {
			n.in[i] = t.alias(h)
			n.keptInputs |= 1 << i
		}
	}
}

func (t *Tape) runDeferredNode(n *Node) {
	t.beforeUse(n)
	t.vjp(n, n.need)
	for i, h := range n.in {
		if n.keptInputs&(1<<i) != 0 {
			t.release(h)
		}
	}
	n.deferred = false
	t.finish(n)
}
