package tensor

import (
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// contrib is one contribution to a gradient whose collective is still running.
type contrib struct {
	g    *header
	p    Pending
	next *contrib
}

// BackwardOption changes one Backward.
type BackwardOption struct {
	more, scaled, defers bool
	scale                float64
}

// More says that further microbatches follow before the optimizer's step: gradients add up, and parallel packages do
// not synchronize them yet.
func More() BackwardOption { return BackwardOption{more: true} }

// Scale multiplies the seed gradients, of the loss and of WithAux alike, by s.
func Scale(s float64) BackwardOption { return BackwardOption{scaled: true, scale: s} }

// Backward computes the gradients of loss (one element) for all parameters that it depends on, into Param.Grad. It frees activations as
// soon as they are not needed, and calls the owners of gradients. A collective that fails panics with a *Failure. Of a loss that is NaN or
// infinite the gradients are NaN (but for Float16, whose losses overflow, and where a GPU computes the loss with its gradient).
func (t *Tape) Backward(loss Tensor, opts ...BackwardOption) {
	h := t.arg(loss)
	t.checkBackward("Backward", t.putOff)
	if h.uses == spent {
		failSpent(h)
	}
	if h.n != 1 || !h.needs || h.isLeaf() {
		fail("Backward", these(h), "needs one element, computed from parameters since the last Backward")
	}
	mustSeed("Backward", h)
	h.kept = true
	follows := t.more
	t.begin(opts)
	t.root = h
	if t.noting() {
		f := Factor{Site: t.callSite(), Value: t.scale}
		f.from = f.Site
		if !t.more && !follows { // else it may be the number of microbatches
			f.Hand = t.scale
		}
		t.multiply(h, f)
	}
	t.compareNumbers(loss)
	t.addGrad(h, t.lossGrad(h))
	t.differentiate()
	if !follows {
		t.losses = 0
	}
	if t.dev.Host() {
		t.losses += h.tensor().Item()
	}
}

// Losses returns the loss of the last Backward, with those of the microbatches before it (see More). A device with its own memory is not
// waited for: there it is 0.
func (t *Tape) Losses() float64 { return t.losses }

// lossGrad returns the gradient of the loss h. It is NaN if the loss is not finite: then the optimizer notices, on all ranks, and nobody
// waits for the loss. Two losses do not count: one that is computed in Backward (see Later), and one of Float16, which overflows
// soon.
func (t *Tape) lossGrad(h *header) *header {
	if c := h.st.coming; c != nil && c.later != nil || h.dtype == Float16 {
		return t.full(h, t.scale)
	}
	g := t.newLike(h)
	t.affine(g, h, 0, t.scale)
	return g
}

// checkBackward fails if Backward cannot run now.
func (t *Tape) checkBackward(op string, putOff bool) {
	switch {
	case t.noGrad:
		fail(op, nil, "the tape was made with NoGrad")
	case t.open > 0:
		fail(op, nil, "a Function, a Checkpoint or a Backward of this tape failed, or calls this: call Reset and begin the step anew")
	case putOff:
		fail(op, nil, "weight gradients of this tape are put off: call RunDeferred first")
	}
}

// begin reads the options and calls BackwardBegin of the owners, unless weight gradients are put off: RunDeferred calls it then.
func (t *Tape) begin(opts []BackwardOption) {
	t.more, t.scale, t.putOff, t.ownMean = false, 1, false, false
	scaled := false
	for _, o := range opts {
		t.more, t.putOff, scaled = t.more || o.more, t.putOff || o.defers, scaled || o.scaled
		if o.scaled {
			t.scale = o.scale
		}
	}
	if !scaled {
		t.warnOfScale()
	}
	if t.putOff && t.more {
		t.putOff = false
		fail("Backward", nil, "More belongs to RunDeferred where DeferWeights is given")
	}
	t.open++
	t.spans.Phase("backward")
	t.inBackward, t.root, t.fetched, t.recorded, t.agreement.Rows = true, nil, nil, t.nn, t.rows
	t.mem.Report()
	if c := t.choice; c != 0 && t.noting() {
		t.noteFactor(Factor{Site: c, Value: 1, Op: OwnRows, Own: true, from: c})
		t.choice = 0
	}
	if !t.putOff {
		t.beginOwners()
	}
}

// warnOfScale says, once for a Scaler, that it divides gradients, and that Backward does not multiply. A program may do so by hand.
func (t *Tape) warnOfScale() {
	i := slices.IndexFunc(t.used, func(s *leafState) bool { return !s.p.frozen && s.p.LossScale() > 1 })
	if i < 0 {
		return
	}
	for k := range t.nn {
		if n := t.node(k); n.op == OpAffine && math.Abs(n.F[0]) > 1 || n.op == OpMul && min(n.in[0].n, n.in[1].n) == 1 {
			return
		}
	}
	p := t.used[i].p
	if _, again := warned.LoadOrStore(p.lossScale, true); !again {
		slog.Warn(fmt.Sprintf("tensor: Backward has no Scale, and the Scaler of an optimizer divides the gradient of %s by %v: call "+
			"tape.Backward(loss, tensor.Scale(scaler.Scale))", p.name, p.LossScale()))
	}
}

// beginOwners calls BackwardBegin of the owners of gradients.
func (t *Tape) beginOwners() {
	for _, s := range t.used { // another tape may have used the parameter since
		s.p.last = s
	}
	for _, k := range t.owners {
		k.BackwardBegin(!t.more)
	}
}

// differentiate runs the rules, beginning with the gradients of the outputs.
func (t *Tape) differentiate() {
	t.run(0)
	if t.putOff {
		t.putOffNodes, t.inBackward = t.nn, false
		t.open--
		t.spans.Phase("")
		t.mem.Report()
		return
	}
	t.finishBackward()
}

func (t *Tape) finishBackward() {
	t.nn = 0
	clear(t.factors)
	if !t.more {
		t.mustCoverPortions()
	}
	for _, s := range t.used {
		if s.pending != 0 { // uses that the loss does not depend on, inside a Checkpoint
			s.pending = 0
			s.ready()
		}
	}
	for _, s := range t.used { // those that no owner waits for
		if s.more != nil {
			t.await(&s.h, Pending{F: s})
		}
	}
	for _, k := range t.owners {
		if err := k.BackwardDone(!t.more); err != nil {
			failWith("Backward", nil, err)
		}
	}
	for _, s := range t.used {
		if s.p.state == gradPartial && !t.more && s.p.owner == nil { // an owner says itself what it has summed
			s.p.state = gradSummed
		}
	}
	t.inBackward, t.drew = false, false
	t.fed.reset()
	t.open--
	t.spans.Phase("")
	t.mem.Report()
	t.forgetOwners()
	t.count(t.more)
	if r := t.Recording(); r != nil {
		more := t.more
		r.tape(t)
		r.Host(func() { t.count(more) })
	}
}

// count counts a Backward that is done, for the random keys of the next one.
func (t *Tape) count(more bool) {
	t.agreement.Backward(more)
	if more {
		t.random.Micro++
	} else {
		t.random.Step, t.random.Micro = t.random.Step+1, 0
		t.stepsDone = min(t.stepsDone+1, firstSteps)
	}
}

// run differentiates the nodes from the last one down to node from. If the node in front of a node is a call of a Function (a collective),
// weight gradients are computed after the rule of that call: so both run at the same time.
func (t *Tape) run(from int) {
	for i := t.nn - 1; i >= from; i-- {
		if t.poller != nil {
			t.poller.Poll()
		}
		t.at = i
		n := t.node(i)
		if !t.gradOf(n) {
			t.drain()
			t.finish(n)
			continue
		}
		if n.spent {
			n.failCall()
		}
		t.factor = 0
		if len(t.factors) != 0 || (n.op == OpAux || n.op == OpApply) && t.noting() {
			t.factor = t.passFactor(n)
		}
		t.beforeUse(n)
		if n.op == OpApply || n.op == OpCheckpoint { // their rules differentiate the parameters themselves
			t.vjp(n, n.need)
			t.drain()
			t.finish(n)
			continue
		}
		if ops[n.op].Saves&SaveOut == 0 && !n.out.kept { // nobody reads it any more
			t.release(n.out)
		}
		if m := n.need &^ n.leaf; m != 0 {
			t.vjp(n, m)
		}
		if m := n.need & n.leaf; m != 0 {
			if t.putOff && from == 0 {
				t.deferNode(n, m)
				continue
			}
			t.weightsOf, t.weightsMask = n, m
			if i == from || t.node(i-1).op != OpApply {
				t.drain()
			}
		} else {
			t.finish(n)
		}
	}
}

func (t *Tape) vjp(n *Node, m uint8) {
	if t.sliced {
		t.notePortions(n)
	}
	rule := ops[n.op].VJP
	if rule == nil {
		fail(n.op.String(), these(n.out), "has no gradient rule")
	}
	mark := t.nh
	t.need = m
	rule(t, n, m)
	if n.op >= numBuiltin {
		t.sweep(mark, t.nh, nil, nil) // tensors that a user's rule made and left
	}
}

// gradOf completes the gradient of n's output: it waits for the contributions whose collectives still run, and adds them. It reports
// whether there is a gradient.
func (t *Tape) gradOf(n *Node) bool {
	if n.out.more != nil {
		t.settleGrad(n.out)
	}
	have := n.out.grad != nil || n.seeds || n.op == OpAux
	if n.call != nil {
		for _, o := range n.call.outs {
			t.settleGrad(o)
			have = have || o.grad != nil
		}
	}
	return have
}

func (t *Tape) settleGrad(h *header) {
	if h.more == nil {
		return
	}
	t.drain() // first the work that does not need them
	for c := h.more; c != nil; c = c.next {
		t.await(h, c.p)
		t.mergeGrad(h, c.g)
	}
	h.more = nil
}

func (t *Tape) await(h *header, p Pending) {
	if err := p.Wait(); err != nil {
		failWith("Backward", these(h), err)
	}
}

// beforeUse makes the parameters resident that n's rule reads, also through views. It fails if their values were changed since n was
// computed: the rule's result would be wrong.
func (t *Tape) beforeUse(n *Node) {
	for i, h := range n.in {
		if h == nil {
			continue
		}
		s := h.base
		if s == nil {
			t.prefetch(n, i)
			continue
		}
		if s.version != s.p.version && n.reads(i) {
			s.failStale(n.op.String())
		}
		if s.p.owner != nil {
			s.p.owner.BeforeUse(s.p, Backward)
			s.refresh()
		}
	}
}

// drain computes the weight gradients that run held back.
func (t *Tape) drain() {
	if n := t.weightsOf; n != nil {
		t.weightsOf = nil
		t.vjp(n, t.weightsMask)
		t.finish(n)
	}
}

// finish ends a node: it frees the output and its gradient, and reports parameters whose last use this was.
func (t *Tape) finish(n *Node) {
	if n.later && (n.out.kept || n.out.own.refs > 1) { // Backward did not reach it, somebody may still read it, and the inputs are freed next
		t.compute(n)
	}
	t.dropGrad(n.out)
	n.out.spend()
	if !n.out.kept {
		t.release(n.out)
	}
	for i := range n.aux {
		if h := n.aux[i]; h != nil {
			t.release(h)
			n.aux[i] = nil
		}
	}
	if n.call != nil {
		n.call.finish()
	}
	if n.leaf != 0 {
		t.usesDone(n)
	}
}

// usesDone counts n's uses of parameters as differentiated. RunDeferred counts those that are differentiated before it.
func (t *Tape) usesDone(n *Node) {
	for i, h := range n.in {
		switch {
		case n.leaf&(1<<i) == 0:
		case t.putOff:
			h.base.early++
		default:
			h.base.usesDone(1)
		}
	}
}

func (s *leafState) usesDone(n int) {
	if s.pending -= n; s.pending == 0 && n > 0 {
		s.ready()
	}
}

func (t *Tape) dropGrad(h *header) {
	if h.grad != nil {
		t.release(h.grad)
		h.grad = nil
	}
}

// AddGrad adds g to the gradient of n's input i, if this is needed now. If the rule made g, its memory belongs to the gradient from now on.
func (t *Tape) AddGrad(n *Node, i int, g Tensor) {
	if t.need&(1<<i) == 0 {
		return
	}
	h := g.hdr()
	if h.tape != t || h == n.out.grad || h == n.out || slices.Contains(n.in, h) || h.isGrad {
		h = t.alias(h)
	}
	t.addGrad(n.in[i], h)
}

func (t *Tape) addGrad(h, g *header) {
	if h.n != g.n || h.dtype != g.dtype {
		fail("Backward", these(h, g), "a gradient rule returned a wrong shape or type")
	}
	if h.uses == spent {
		failSpent(h)
	}
	if g.ld != 0 {
		c := t.contiguousCopy(g)
		t.release(g)
		g = c
	}
	if !g.alike(h) {
		g.ndim, g.dims = h.ndim, h.dims
	}
	if h.isLeaf() {
		t.addLeafGrad(h, g)
		return
	}
	if h.more != nil {
		t.addPending(h, g, Pending{})
		return
	}
	t.mergeGrad(h, g)
}

func (t *Tape) addLeafGrad(h, g *header) {
	if t.putOff { // nothing of a gradient is written before BackwardBegin: RunDeferred adds it
		t.addPending(h, t.exclusive(g), Pending{})
		return
	}
	dst, beta := t.leafGrad(h)
	if dst.dtype != g.dtype { // gradients are summed in a wider type
		c := t.newTensor(dst.dtype, g.dims[:g.ndim]...)
		t.Cast(c.tensor(), g.tensor())
		t.release(g)
		g = c
	}
	t.accumulate(dst, g, beta)
	t.release(g)
}

func (t *Tape) mergeGrad(h, g *header) {
	g.isGrad = true
	switch {
	case h.grad == nil:
		h.grad = g
	case h.grad.shared(): // with another gradient: the sum needs memory of its own
		sum := t.newLike(g)
		sum.isGrad = true
		t.binary(OpAdd, sum, h.grad, g)
		t.release(h.grad)
		t.release(g)
		h.grad = sum
	default:
		t.accumulate(h.grad, g, 1)
		t.release(g)
	}
}

// addPending adds a contribution that is complete when p is over. Contributions are added in the order of these calls.
func (t *Tape) addPending(h, g *header, p Pending) {
	g.isGrad = true
	c := t.newContrib()
	*c = contrib{g: g, p: p}
	tail := &h.more
	if h.isLeaf() {
		tail = &h.base.more
	}
	for *tail != nil {
		tail = &(*tail).next
	}
	*tail = c
}

func (t *Tape) newContrib() *contrib {
	i, j := t.nc/slabLen, t.nc%slabLen
	if i == len(t.contribs) {
		t.contribs = append(t.contribs, make([]contrib, slabLen))
	}
	t.nc++
	return &t.contribs[i][j]
}

// leafGrad returns the memory of a parameter's gradient, and the factor for its old content: 0 for the first write since the optimizer's
// step.
func (t *Tape) leafGrad(h *header) (dst *header, beta float64) {
	p := h.base.p
	if p.sync.F != nil && !p.sync.Done() {
		fail("Backward", these(h), "gradient of %s is written while its collective is in flight", p.name)
	}
	if r := t.Recording(); r != nil {
		r.grad(p)
	}
	switch p.state {
	case gradSummed:
		fail("Backward", these(h), "gradient of %s was not consumed: between two Backwards, call Step of an optimizer that has it, or use More()"+
			" (Param.Consume drops it)", p.name)
	case gradPartial:
		beta = 1
	case gradEmpty:
		p.scaled = p.LossScale()
	}
	p.state = gradPartial
	if p.Grad.IsZero() {
		p.Grad = p.blank(memory.Gradients, t.dev, h.dtype)
	}
	dst = p.Grad.hdr()
	if dst.n != h.n || dst.ld != 0 {
		fail("Backward", these(h, dst), "the gradient of %s is a tensor of another size", p.name)
	}
	p.markPart()
	return dst, beta
}

// gradTarget returns the memory into which a rule writes the gradient of h, and the beta to use. The memory is the parameter's gradient,
// the gradient that h has already if nothing else refers to it, or new memory. Call gradDone afterwards.
func (t *Tape) gradTarget(h *header) (dst *header, beta float64) {
	if h.isLeaf() {
		if t.putOff { // see addLeafGrad
			return t.newLike(h), 0
		}
		if dst, beta = t.leafGrad(h); dst.dtype == h.dtype {
			return dst, beta
		}
		h.base.p.undoWrite(beta)
	} else if h.grad != nil && h.more == nil && !h.grad.shared() && !t.keepAll {
		return h.grad, 1
	}
	return t.newLike(h), 0
}

// gradDone adds dst to the gradient of h, unless it is that gradient already: a rule wrote into it.
func (t *Tape) gradDone(h, dst *header) {
	if dst != h.grad && (dst.tape == t || !h.isLeaf()) {
		t.addGrad(h, dst)
	}
}

// exclusive returns g, or a copy of it if its memory is shared, so that a collective may write to it.
func (t *Tape) exclusive(g *header) *header {
	if !g.shared() {
		return g
	}
	c := t.contiguousCopy(g)
	c.isGrad = true
	t.release(g)
	return c
}

// full returns a tensor of h's shape filled with v.
func (t *Tape) full(h *header, v float64) *header {
	g := t.newLike(h)
	t.Fill(g.tensor(), v)
	return g
}
