package tensor

import (
	"fmt"
	"slices"
)

// Phase is the part of a step in which a parameter is used.
type Phase uint8

// The phases.
const (
	Forward Phase = iota
	Backward
)

// Hooks is implemented by a package that divides a model over ranks. It owns the gradients of parameters (Param.Own).
type Hooks interface {
	// BeforeUse makes p.Value resident. In the phase Backward it also gives p.Grad memory.
	BeforeUse(p *Param, phase Phase)
	// BackwardBegin is called once when a Backward starts. last is false when More microbatches follow.
	BackwardBegin(last bool)
	// GradReady is called when all uses of p on the tape have been differentiated. p.Grad is complete when after is over. GradReady does
	// not wait for it; whoever communicates p.Grad waits just before. The result is what must be over before p.Grad may be read or written.
	GradReady(p *Param, after Pending) Pending
	// BackwardDone is called once at the end of a Backward. It waits, and completes the gradients of unused parameters.
	BackwardDone(last bool) error
	// Changed is called when the values of p were changed (Param.Changed): what was gathered of them is stale.
	Changed(p *Param)
}

// Own makes h the owner of p's gradient, which it sums over the ranks along axes (see SumOver). Only one package may: a second owner is an
// error, and so are axes along which the gradient would be wrong.
func (p *Param) Own(h Hooks, axes Axes) error {
	if p.owner != nil {
		return fmt.Errorf("the gradient of %s belongs to %s already: %s cannot have it, too", p.name, ownerName(p.owner), ownerName(h))
	}
	if p.owner = h; !p.Grad.IsZero() {
		p.markPart()
	}
	if h := p.Value.h; h != nil && h.st.wholeName() == "" {
		if h.st.names == nil {
			h.st.names = &names{}
		}
		h.st.names.parts = append(h.st.names.parts, p)
	}
	return Try(func() { p.SumOver(axes) })
}

// Owner returns the owner of p's gradient, or nil.
func (p *Param) Owner() Hooks { return p.owner }

// ownerName is the name of an owner in errors.
func ownerName(h Hooks) string {
	if s, ok := h.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", h)
}

// Partial reports whether p has a gradient to which others will add: microbatches (it waits for a Backward without More), or ranks, if its
// owner never heard of it.
func (p *Param) Partial() bool { return p.state == gradPartial }

// Through makes Use apply f to the parameter, so that f's Backward is a part of the graph: with every owner, in every microbatch and in a
// Checkpoint. It is mainly for a parameter that is whole on ranks with different tokens or heads (norms under sequence parallelism,
// replicated keys): there f is the identity, and its Backward an all-reduce. A second Through is a Failure.
func (p *Param) Through(f Function) {
	switch {
	case f == nil:
		fail("Through", nil, "%s: there is no Function", p.name)
	case p.through != nil:
		fail("Through", nil, "%s goes through %s already; %s cannot be added", p.name, p.through.Name(), f.Name())
	}
	p.through = f
}

// HasThrough reports whether Through was called: also by who divides a model over one rank, which cuts nothing.
func (p *Param) HasThrough() bool { return p.through != nil }

// leafState is the state of a parameter on one tape.
type leafState struct {
	p       *Param
	t       *Tape
	h       header
	other   *header // of uses since Reset for which Freeze or Unfreeze changed what h needs; nil: none yet
	pending int     // uses that Backward has not differentiated yet
	early   int     // of these, differentiated by a Backward that puts weight gradients off
	serial  uint32  // of the tape, when pending was last set to 0
	version uint32  // of the parameter's values, at their first use since the last Backward
	hooked  bool    // the tape's next Backward calls the owner
	told    bool    // also if nothing uses the parameter: see TellOwner

	more          *contrib // to its gradient, with collectives that still run
	due, complete uint64   // how many of these the owner was told of, and how many were added
}

// Use puts a parameter on the tape and returns its tensor. Layers call it in Forward, once for each use.
func (t *Tape) Use(p *Param) Tensor {
	s := t.leaf(p)
	phase := Forward
	if t.inBackward {
		phase = Backward
	}
	if p.owner != nil {
		p.owner.BeforeUse(p, phase)
	}
	s.refresh()
	if !t.reaches(&s.h) {
		fail("Use", these(&s.h), "%s is on %v, the tape on %v (see Param.To)", p.name, s.h.st.dev, t.dev)
	}
	trains := t.trains(s)
	s.enter(trains)
	h := s.header(trains)
	h.ty, h.at = p.ty, p.at
	s.registerOwner()
	if t.inBackward && s.version != p.version {
		s.failStale("Use")
	}
	x := h.tensor()
	if p.through != nil {
		return t.Apply(p.through, x)
	}
	return x
}

// TellOwner makes the next Backward call the owner of p also if nothing on the tape uses p. In a pipeline, one owner has the parameters of
// all stages of a rank: it hears of each microbatch, and when a step ends, whatever the last stage or microbatch of the rank uses.
func (t *Tape) TellOwner(p *Param) {
	s := t.leaf(p)
	s.enter(t.trains(s))
	if s.told = p.owner != nil; s.told {
		s.registerOwner()
	}
}

// Told reports whether TellOwner named p on the tape whose Backward runs. An owner asks in BackwardDone.
func (p *Param) Told() bool { return p.Tape() != nil && p.last.told }

// enter puts s on the tape, if it is new there since Reset.
func (s *leafState) enter(trains bool) {
	if t := s.t; s.serial != t.serial {
		s.serial, s.pending, s.early = t.serial, 0, 0
		s.h.needs = trains
		t.used = append(t.used, s)
		if r := t.Recording(); r != nil && !t.noGrad {
			r.uses[s.p] = s.p.frozen
		}
	}
}

// trains reports whether this use of s's parameter wants a gradient. When a Checkpoint runs its function again, it is as in the first run.
func (t *Tape) trains(s *leafState) bool {
	frozen := s.p.frozen
	if c := t.replayed; c != nil {
		frozen = slices.Contains(c.frozen, s)
	}
	if c := t.keeper; frozen && c != nil && !slices.Contains(c.frozen, s) {
		c.frozen = append(c.frozen, s)
	}
	return !frozen && !t.noGrad
}

// header returns the header for a use that wants a gradient, or not. Tensors of earlier uses stay as they are: a use that differs from
// the first one since Reset gets the other header.
func (s *leafState) header(needs bool) *header {
	if s.h.needs == needs {
		return &s.h
	}
	if s.other == nil {
		s.other = &header{tape: s.t, base: s}
		s.other.setDims(s.p.Dims())
		s.refresh()
	}
	s.other.needs = needs
	return s.other
}

// invalidate makes the handles of the uses before Reset invalid.
func (s *leafState) invalidate() {
	s.h.gen++
	if s.other != nil {
		s.other.gen++
	}
}

// leaf returns p's state on t. In training, Param.last saves the look-up. Inference does not use it, so that several goroutines may use a
// model at the same time, each with its own NoGrad tape.
func (t *Tape) leaf(p *Param) *leafState {
	if !t.noGrad && p.last != nil && p.last.t == t {
		return p.last
	}
	s := t.leaves[p]
	if s == nil {
		s = &leafState{p: p, t: t}
		s.h.tape, s.h.base = t, s
		s.h.setDims(p.Dims())
		t.leaves[p] = s
	}
	if !t.noGrad {
		p.last = s
	}
	return s
}

// makeResident makes the value resident that h is or views. The owner may have freed it since Use, when other parameters were used or a
// Checkpoint ran its function again.
func (s *leafState) makeResident(h *header) {
	if h.st == nil || h.st.ptr != nil || s.p.owner == nil {
		return
	}
	phase := Forward
	if s.t.inBackward {
		phase = Backward
	}
	s.p.owner.BeforeUse(s.p, phase)
	s.refresh()
}

// failStale fails because the values that the gradient rule of op needs were changed.
func (s *leafState) failStale(op string) {
	fail("Backward", these(&s.h), "%s was changed (by an optimizer's step, SetValue or a load) after %s had used it on this tape: "+
		"run the forward pass again", s.p.name, op)
}

// refresh makes the leaf's headers refer to the current memory of the value: the owner may have moved it.
func (s *leafState) refresh() {
	if s.p.Value.IsZero() {
		fail("Use", nil, "%s of shape %v was never made: call nn.Init or Attach first", s.p.name, s.p.Dims())
	}
	v := s.p.Value.hdr()
	s.h.st, s.h.off, s.h.dtype, s.h.ld = v.st, v.off, v.dtype, v.ld
	if h := s.other; h != nil {
		h.st, h.off, h.dtype, h.ld = v.st, v.off, v.dtype, v.ld
	}
}

// registerOwner makes the next Backward call the parameter's owner. It is called for each use, because a tensor of the leaf may be older
// than the last Backward.
func (s *leafState) registerOwner() {
	if s.hooked {
		return
	}
	s.hooked, s.version = true, s.p.version
	s.t.tellParam(s.p)
	if k := s.p.owner; k != nil && !slices.Contains(s.t.owners, k) {
		s.t.owners = append(s.t.owners, k)
	}
}

// forgetOwners forgets the owners of the used leaves.
func (t *Tape) forgetOwners() {
	for _, s := range t.used {
		s.hooked, s.told = false, false
	}
	t.owners = t.owners[:0]
}

// ready is called when all uses have been differentiated. It tells the owner what to wait for until the gradient is complete.
func (s *leafState) ready() {
	p := s.p
	if p.owner == nil || !p.HasGrad() && s.more == nil {
		return
	}
	var after Pending
	if s.more != nil {
		s.due++
		after = Pending{s, s.due}
	}
	p.sync = p.owner.GradReady(p, after)
}

// FenceDone reports whether the gradient is complete. It makes leafState a Fence.
func (s *leafState) FenceDone(seq uint64) bool { return s.complete >= seq }

// FenceWait waits for the contributions that are still missing, and adds them in the order in which they came.
func (s *leafState) FenceWait(uint64) error {
	c := s.more
	s.more, s.complete = nil, s.due
	for ; c != nil; c = c.next {
		if err := c.p.Wait(); err != nil {
			return fmt.Errorf("gradient of %s: %w", s.p.name, err)
		}
		s.t.addGrad(&s.h, c.g)
	}
	return nil
}

// Awaited reports whether this Backward may still add to the gradient: whether its tape has uses of p that are not differentiated.
func (p *Param) Awaited() bool {
	s := p.last
	return s != nil && s.t.inBackward && s.serial == s.t.serial && s.pending > 0
}
