package tensor

import "slices"

// Function is a differentiable operation of another package, such as a collective. One value serves many calls: the state of a call is in
// its Ctx. It may also be Typed, Moves, ByRows, a Fetcher or Late.
type Function interface {
	Name() string
	// Forward computes the output from in. It may return an element of in (the identity).
	Forward(c *Ctx, in []Tensor) Tensor
	// Backward gets the gradient g of the output (none if only other outputs have one). It sets grads[i] for each input i that needs a
	// gradient (Ctx.Need); grads[i] may be g itself. The function may write to g's memory. If a collective still writes grads[i], it calls
	// Ctx.Pending.
	Backward(c *Ctx, g Tensor, grads []Tensor)
}

// Ctx is the state of one call of a Function, from Forward to Backward.
type Ctx struct {
	t      *Tape
	f      Function
	in     []Tensor
	grads  []Tensor
	over   []Pending // what to wait for before grads[i] is read
	need   uint8     // inputs that need a gradient
	types  []Types   // of the outputs, from a Typed Function
	saved  []*header
	frozen []*leafState // which a Checkpoint's function used frozen when it ran first
	outs   []*header    // further outputs
	ints   []int
	tokens int    // of the tape, when a Checkpoint ran its function first
	once   int    // index in saved of the next Once, when a Checkpoint runs its function again
	sum    uint64 // checksum of what a Checkpoint's function returned first, in a step that is compared; 0: not known
	arrivals
}

// Tape returns the tape of the call.
func (c *Ctx) Tape() *Tape { return c.t }

// Need reports whether input i needs a gradient. In Forward it says whether Backward will compute one, so that only what it needs is saved.
func (c *Ctx) Need(i int) bool { return c.need&(1<<i) != 0 }

// Pending says, in Backward, that grads[i] may be read when p is over. Each input has its own Pending: nobody waits for the collective of
// another input.
func (c *Ctx) Pending(i int, p Pending) { c.over[i] = p }

// New returns a tensor of the tape. Its content is undefined.
func (c *Ctx) New(dtype DType, dims ...int) Tensor { return c.t.New(dtype, dims...) }

// Save keeps x (an input, an output or a tensor made in Forward) for Backward.
func (c *Ctx) Save(x Tensor) { c.saved = append(c.saved, x.hdr()) }

// Saved returns the tensor of the i-th Save.
func (c *Ctx) Saved(i int) Tensor { return c.saved[i].tensor() }

// Ints returns n integers that live from Forward to Backward.
func (c *Ctx) Ints(n int) []int {
	for len(c.ints) < n {
		c.ints = append(c.ints, 0)
	}
	return c.ints[:n]
}

// Out declares that x, made in Forward, is another output, and returns it.
func (c *Ctx) Out(x Tensor) Tensor {
	c.outs = append(c.outs, x.hdr())
	return x
}

// OutGrad returns the gradient of the i-th tensor of Out, or none.
func (c *Ctx) OutGrad(i int) Tensor {
	if g := c.outs[i].grad; g != nil {
		return g.tensor()
	}
	return Tensor{}
}

// GradTarget is Tape.GradTarget for input i, in Backward. GradDone follows it, and grads[i] stays none.
func (c *Ctx) GradTarget(i int) (dst Tensor, beta float64) {
	h, beta := c.t.gradTarget(c.in[i].h)
	return h.tensor(), beta
}

// GradDone says that dst, of GradTarget, is written.
func (c *Ctx) GradDone(i int, dst Tensor) { c.t.gradDone(c.in[i].h, dst.hdr()) }

// HostInts returns the elements of an Int64 tensor on the host, for shapes that depend on data. On a device it waits for the computation;
// no other operation does.
func (c *Ctx) HostInts(x Tensor) []int64 {
	h := c.t.arg(x)
	if h.dtype != Int64 || h.ld != 0 {
		fail("HostInts", these(h), "needs a contiguous int64 tensor")
	}
	if c.t.Recording() != nil {
		fail(c.f.Name(), these(h),
			"needs numbers on the host that the device computes: inside a captured step (see package capture) nothing waits for them")
	}
	return Data[int64](ToHost(x))
}

func (c *Ctx) keeps(h *header) bool { return slices.Contains(c.saved, h) || slices.Contains(c.outs, h) }

// finish frees what the call holds, after Backward.
func (c *Ctx) finish() {
	for _, o := range c.outs {
		c.t.dropGrad(o)
		o.spend()
	}
	for _, h := range c.outs {
		if !h.kept && h.st != nil {
			c.t.release(h)
		}
	}
	c.dropSaved()
}

// dropSaved frees what Forward made and saved.
func (c *Ctx) dropSaved() {
	for _, h := range c.saved {
		if h.local && !h.kept && h.st != nil && !slices.Contains(c.outs, h) {
			c.t.release(h)
		}
	}
}

func (t *Tape) ctx(f Function, in []Tensor) *Ctx {
	if t.ncalls == len(t.calls) {
		t.calls = append(t.calls, &Ctx{t: t})
	}
	c := t.calls[t.ncalls]
	t.ncalls++
	c.f, c.need, c.saved, c.frozen, c.outs, c.once, c.sum = f, 0, c.saved[:0], c.frozen[:0], c.outs[:0], 0, 0
	c.out, c.differentiates, c.coming.later = nil, false, nil
	c.coming.ptr, c.coming.parts, c.back.ptr, c.back.parts = nil, c.coming.parts[:0], nil, c.back.parts[:0]
	clear(c.ints)
	c.in = append(c.in[:0], in...)
	return c
}

// Apply calls f, with at most 8 inputs, and records the call. The operations of Forward are not differentiated: f's Backward is their
// gradient. Tensors that Forward makes are freed, unless it returns them, saves them or passes them to Out.
func (t *Tape) Apply(f Function, in ...Tensor) Tensor {
	c := t.ctx(f, in)
	hs := t.inputs(f.Name(), in)
	for i, h := range hs {
		if h == nil {
			fail(f.Name(), nil, "input %d is the zero Tensor", i)
		}
		c.in[i] = h.tensor()
		if h.needs && t.records() {
			c.need |= 1 << i
		}
	}
	if t.typing() {
		t.askTypes(f, c, hs)
	}
	t.noteFields(f, hs)
	mark, was := t.nh, t.quiet
	t.quiet = true
	t.open++
	y := t.arg(f.Forward(c, c.in))
	t.open--
	t.quiet = was
	for _, o := range c.outs {
		if !t.madeSince(mark, o) || o == y {
			fail(f.Name(), these(o), "a further output must be made in Forward")
		}
	}
	if !t.madeSince(mark, y) { // the identity: give it another header on the same memory
		y = t.alias(y)
	}
	t.sweep(mark, t.nh, y, c)
	if t.typing() {
		c.applyTypes(y, hs)
		c.applyPlaces(y, hs)
		for _, o := range c.outs {
			c.applyPlaces(o, hs)
		}
	}
	t.noteFetched(c, y)
	_, late := f.(Late)
	n := t.rec(OpApply, y, hs...)
	switch {
	case n == nil && late:
		c.compute(y)
		fallthrough
	case n == nil:
		c.dropSaved()
	default:
		if n.call = c; late {
			t.Later(n)
		}
		if t.noting() && slices.ContainsFunc(hs, t.partOfRows) {
			n.Key = t.callSite()
		}
	}
	for _, o := range c.outs {
		o.needs = y.needs && o.dtype.IsFloat()
		o.derive(y)
	}
	return y.tensor()
}

// madeSince reports whether h is a header of the tape with number mark or later.
func (t *Tape) madeSince(mark int, h *header) bool {
	for i := mark; i < t.nh; i++ {
		if t.header(i) == h {
			return true
		}
	}
	return false
}

// sweep frees the tensors made as header numbers from to to. It keeps y, gradients, tensors of Keep, and those that are saved for a
// gradient rule or by c.
func (t *Tape) sweep(from, to int, y *header, c *Ctx) {
	for i := from; i < to; i++ {
		h := t.header(i)
		if h == y || h.kept || h.saved || h.isGrad || h.st == nil {
			continue
		}
		if c != nil && c.keeps(h) {
			h.local = true
			continue
		}
		t.release(h)
	}
}

func applyVJP(t *Tape, n *Node, need uint8) {
	c, mark := n.call, t.nh
	var g Tensor
	if n.out.grad != nil {
		n.out.grad = t.exclusive(n.out.grad)
		g = n.out.grad.tensor()
	}
	c.grads, c.over, c.need = c.grads[:0], c.over[:0], need
	for range n.in {
		c.grads, c.over = append(c.grads, Tensor{}), append(c.over, Pending{})
	}
	c.differentiates = true
	c.f.Backward(c, g, c.grads)
	end := t.nh
	for i, x := range c.grads { // under new headers: two may be the same, or be g, or a saved tensor
		if !x.IsZero() {
			c.grads[i] = t.alias(t.arg(x)).tensor()
			c.grads[i].h.st.hideUntilArrival()
		}
	}
	c.mustHide(&c.back, "a gradient")
	t.sweep(mark, end, nil, nil)
	for i, x := range c.grads {
		switch {
		case x.IsZero():
		case need&(1<<i) == 0:
			t.release(x.h)
		case !x.h.alike(n.in[i]):
			fail("Backward of "+c.f.Name(), these(n.in[i], x.h), "the gradient of input %d has another shape than the input", i)
		case c.over[i].F == nil:
			t.addGrad(n.in[i], x.h)
		default:
			t.addPending(n.in[i], x.h, c.over[i])
		}
	}
}

// auxVJP is the rule of WithAux: in = y, aux; F[0] = weight.
func auxVJP(t *Tape, n *Node, need uint8) {
	if need&1 != 0 && n.out.grad != nil {
		t.addGrad(n.in[0], t.alias(n.out.grad))
	}
	if need&2 != 0 {
		if n.in[1] == t.root {
			t.root = nil // its gradient is not only the seed
		}
		t.addGrad(n.in[1], t.full(n.in[1], n.F[0]*t.scale))
	}
}

// WithAux returns y. Backward also adds weight·aux to the loss, for aux of one element: balancing losses of a mixture of experts. It does
// so even if the loss does not depend on y.
func WithAux(y, aux Tensor, weight float64) Tensor {
	t := tapeOf("WithAux", y, aux)
	yh, ah := t.arg(y), t.arg(aux)
	if ah.n != 1 {
		fail("WithAux", these(ah), "aux must have one element")
	}
	if t.records() {
		if weight != 0 && ah.ty.On(Partial) == 0 { // of rows, it is a factor
			t.NoteNumber("WithAux", aux, 0, weight)
		}
		ah = t.gradOnce(ah, t.rows.Over) // a penalty
		mustSeed("WithAux", ah)
	}
	out := t.alias(yh)
	if ah.needs {
		t.seeds++
	}
	if n := t.rec(OpAux, out, yh, ah); n != nil {
		n.F[0], n.Key = weight, t.callSite()
	}
	return out.tensor()
}
