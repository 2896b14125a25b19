package tensor

import "github.com/ringo-ml/ringo/tensor/internal/arena"

// Fetcher is a Function whose output is not kept for Backward: Fetch can make it again, because each rank saves its own part of it
// (Korthikanti et al. 2022). The output's memory is freed when the next Fetcher makes its output. If a gradient rule reads the output, it
// is fetched again. The fetch starts before the gradient of the input is computed, and the rule waits for it after that.
type Fetcher interface {
	Function
	// Fetch starts to fill y, which has the shape of Forward's output. It calls Ctx.Arrives with what a reader of y must wait for.
	Fetch(c *Ctx, y Tensor)
}

// arrival says that rows lo to hi of a tensor's first dimension may be read when p is over.
type arrival struct {
	lo, hi int
	p      Pending
}

// arriving is memory that a collective fills in parts. Its storage has no pointer until all parts are waited for.
type arriving struct {
	c     *Ctx
	later *Node // whose output is made when it is read (see Tape.Later)
	ptr   Ptr   // nil: all is there
	parts []arrival
}

// arrivals is what a Ctx knows of tensors that collectives still fill: the output, and a gradient.
type arrivals struct {
	coming, back   arriving
	differentiates bool    // Backward runs, or has run
	out            *header // of a Fetcher
	released       storage // memory that a collective still used when it was released
}

// Arrives says that rows lo to hi of y's first dimension may be read when p is over. With no rows, p is only waited for. y is the output;
// in Backward it is one of the gradients, or the tensor that Fetch fills. The calls must name all rows of y, before anyone else gets y. A
// matrix product of y multiplies each part when it is there, in the order of the calls. Every other reader of y waits for all of it.
func (c *Ctx) Arrives(y Tensor, lo, hi int, p Pending) {
	h := y.hdr()
	a := h.st.coming
	if a == nil || a.c != c { // the first part
		if a = &c.coming; c.differentiates {
			a = &c.back
		}
		if len(a.parts) > 0 {
			fail(c.f.Name(), these(h), "Arrives was already called for another tensor")
		}
		a.c, h.st.coming = c, a
	}
	a.parts = append(a.parts, arrival{lo, hi, p})
}

// mustHide fails if Arrives was called for a tensor that is neither an output nor a gradient: nobody would wait for it.
func (c *Ctx) mustHide(a *arriving, what string) {
	if len(a.parts) > 0 && a.ptr == nil {
		fail(c.f.Name(), nil, "Arrives was called for a tensor that is not %s", what)
	}
}

// hideUntilArrival takes the pointer away from memory that is still being filled, so that a reader must wait.
func (s *storage) hideUntilArrival() {
	if a := s.coming; a != nil && len(a.parts) > 0 && s.ptr != nil {
		a.ptr, s.ptr = s.ptr, nil
	}
}

// waitArrival waits for memory that is being filled, and fetches memory that was freed. It reports whether the memory can be read.
func (s *storage) waitArrival() bool {
	a := s.coming
	if a != nil && a.later != nil {
		a.c.t.compute(a.later)
		return true
	}
	if a == nil || a.ptr == nil && !s.refetch() {
		return false
	}
	for _, p := range a.parts {
		a.await(p.p)
	}
	return s.markArrived()
}

func (a *arriving) await(p Pending) {
	if err := p.Wait(); err != nil {
		fail(a.c.f.Name(), nil, "%w", err)
	}
}

// markArrived gives the pointer back to memory that was being filled. It reports whether it was.
func (s *storage) markArrived() bool {
	a := s.coming
	if a == nil || a.ptr == nil {
		return false
	}
	s.ptr, a.ptr, a.parts = a.ptr, nil, a.parts[:0]
	return true
}

// refetch starts to fill memory that was freed. It reports whether s is such memory.
func (s *storage) refetch() bool {
	a := s.coming
	c := a.c
	if c.out == nil || s != &c.out.own {
		return false
	}
	t := c.t
	if !t.inBackward {
		t.freeFetched(c)
	}
	mark, y := t.nh, t.blankHeader()
	y.sizeAs(c.out)
	b := t.take(y, s.bytes)
	y.st, s.ptr, s.bytes, a.parts = s, b.P, b.Bytes, a.parts[:0]
	quiet := t.quiet
	t.quiet = true
	c.f.(Fetcher).Fetch(c, y.tensor())
	t.quiet = quiet
	a.ptr, s.ptr, y.st = s.ptr, nil, nil
	t.sweep(mark, t.nh, nil, nil) // views would keep the memory until Reset
	return true
}

// prefetch starts to fetch input i of n, if its memory was freed and the gradient of another input reads it. The gradient of input i itself
// does not, in most operations.
func (t *Tape) prefetch(n *Node, i int) {
	s := n.in[i].st
	if s != nil && s.ptr == nil && s.coming != nil && s.coming.ptr == nil && n.op != OpApply && n.need != 1<<i && n.reads(i) {
		s.refetch()
	}
}

// freeFetched frees the output of the last Fetcher; next is the last one from now on. What is freed depends on the program alone, so all
// ranks fetch the same.
func (t *Tape) freeFetched(next *Ctx) {
	c := t.fetched
	if t.fetched = next; c == nil || c == next {
		return
	}
	s := &c.out.own
	if c.out.st != s || s.coming != &c.coming || s.refs == 0 || s.ptr == nil || c.out.kept || t.keepAll {
		return
	}
	if s.busy() && c.released.ptr == nil { // a collective still sends it
		c.released.ptr, c.released.bytes, c.released.arena = s.ptr, s.bytes, s.arena
		c.released.pending, s.pending = s.pending, c.released.pending[:0]
		c.released.numPending, s.numPending = s.numPending, 0
		t.unreferenced = append(t.unreferenced, &c.released)
	} else {
		s.waitUsers()
		t.mem.Free(arena.Block{P: s.ptr, Bytes: s.bytes})
	}
	s.ptr = nil
}

// noteFetched notes that h is the output of c's Function.
func (t *Tape) noteFetched(c *Ctx, h *header) {
	if h.st != nil {
		h.st.hideUntilArrival()
	}
	c.mustHide(&c.coming, "the output")
	if _, ok := c.f.(Fetcher); !ok || !t.record || t.recompute || !t.records() || c.need == 0 || h.st != &h.own {
		return
	}
	c.coming.c, c.out, h.st.coming = c, h, &c.coming
	t.freeFetched(c)
}

// gemmArriving is gemm for an A that arrives in parts. It multiplies them one by one. It reports false if A is whole.
func (t *Tape) gemmArriving(c, a, b *header, g *gemm) bool {
	s := a.st
	if s.coming == nil || g.ta || g.batch != 1 || a.ld != 0 || a.off != 0 || s.coming.ptr == nil && !s.refetch() {
		return false
	}
	parts := s.coming.parts
	rows := 0
	for _, p := range parts {
		rows += p.hi - p.lo
	}
	if len(parts) < 2 || g.m != rows {
		return false
	}
	coming := s.coming
	s.markArrived()
	for _, p := range parts {
		coming.await(p.p)
		if p.hi == p.lo {
			continue
		}
		part := *g
		part.m = p.hi - p.lo
		part.pre, part.add, part.slope = t.rowsOf(g.pre, p), t.rowsOf(g.add, p), t.rowsOf(g.slope, p)
		pc, pa := t.rowsOf(c, p), t.rowsOf(a, p)
		t.gemmWhole(pc, pa, b, &part)
		for _, h := range [...]*header{part.pre, part.add, part.slope, pc, pa} {
			if h != nil {
				t.release(h)
			}
		}
	}
	return true
}

// rowsOf returns the rows of p of h, flattened to a matrix; nil if h is nil.
func (t *Tape) rowsOf(h *header, p arrival) *header {
	if h == nil {
		return nil
	}
	v, cols := t.alias(h), h.dims[h.ndim-1]
	v.off += p.lo * rowStride(h, cols) * h.dtype.Size()
	v.ndim, v.n = 2, (p.hi-p.lo)*cols
	v.dims[0], v.dims[1] = p.hi-p.lo, cols
	return v
}
