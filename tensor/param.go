package tensor

import (
	"fmt"
	"slices"
)

// Phase is where in a step a parameter is used.
type Phase uint8

// The phases.
const (
	Forward Phase = iota
	Backward
)

// Hooks is what a parallel package attaches to parameters. Hooks of a parameter are called in the order of attaching.
type Hooks interface {
	// BeforeUse makes p's Value resident; in the phase Backward it also gives p.Grad memory.
	BeforeUse(p *Param, phase Phase)
	// BackwardBegin is called once when a Backward starts. last is false when More microbatches follow.
	BackwardBegin(last bool)
	// GradReady is called when all uses of p on the tape have been differentiated. after is what the previous hook
	// started; the result is what must be over before p.Grad may be read or written.
	GradReady(p *Param, after Pending) Pending
	// BackwardDone is called once at the end of a Backward: wait, and complete what was not used.
	BackwardDone(last bool) error
}

// Box is a rectangular part of a tensor: elements [Lo[i], Hi[i]) of each dimension.
type Box struct{ Lo, Hi []int }

// Shard says which part of a parameter this rank holds: boxes of the global shape (tensor and expert parallel), then a
// flat range of these (sharded data parallel). The zero Shard is the whole.
type Shard struct {
	Global []int  // shape of the whole
	Boxes  []Box  // empty: all of it
	Flat   [2]int // elements of the boxes, in order; {0,0}: all of them
	Counts bool   // this copy counts in norms and checkpoints (one of all copies does)

	// Flat ranges come from cutting a buffer in which several parameters lie, one after another: its name, "" if there is
	// none, and this parameter's place in that row, from 0 on.
	Unit  string
	Place int
}

type gradState uint8

const (
	gradEmpty   gradState = iota // consumed, or never written
	gradPartial                  // written; more may come
	gradReady                    // complete and synchronized
)

// Param is a trainable tensor, a leaf of every tape. It is made with a shape only; nn.Init or an Attach makes values.
type Param struct {
	Value Tensor // what Forward uses
	Local Tensor // what the optimizer updates: Value itself, or this rank's shard of it
	Grad  Tensor // gradient of Local; made at the first Backward unless a hook provides it
	Shard Shard

	layout     layout
	name       string
	dims       []int
	init       Initializer
	frozen     bool
	buffer     bool
	transposed bool
	hooks      []Hooks
	state      gradState
	sync       Pending
	last       *leafState
}

// NewParam returns a parameter of a shape, with no values yet.
func NewParam(init Initializer, dims ...int) *Param {
	return &Param{init: init, dims: append([]int(nil), dims...), name: "a parameter"}
}

// Buffer is model state that no gradient flows into, such as running statistics. It is broadcast and saved like a Param.
type Buffer struct{ Param }

// NewBuffer returns a buffer of a shape, with no values yet.
func NewBuffer(init Initializer, dims ...int) *Buffer {
	b := &Buffer{*NewParam(init, dims...)}
	b.frozen, b.buffer = true, true
	return b
}

// IsBuffer reports whether p is the Param of a Buffer.
func (p *Param) IsBuffer() bool { return p.buffer }

// Name returns the dotted name, such as "0.weight".
func (p *Param) Name() string { return p.name }

// SetName sets the dotted name; nn.ParamsOf does.
func (p *Param) SetName(name string) { p.name = name }

// SetTransposed says whether files hold this matrix as [in, out]; nn.ParamsOf does, by the tag of its field.
func (p *Param) SetTransposed(yes bool) { p.transposed = yes }

// Transposed reports whether files hold this matrix as [in, out].
func (p *Param) Transposed() bool { return p.transposed }

// Dims returns the shape of the whole parameter.
func (p *Param) Dims() []int { return p.dims }

// Len returns the number of elements of the whole parameter.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.dims {
		n *= d
	}
	return n
}

// Freeze excludes the parameter from training: no gradient is computed for it.
func (p *Param) Freeze() { p.frozen = true }

// Frozen reports whether the parameter is excluded from training.
func (p *Param) Frozen() bool { return p.frozen }

// Hook attaches hooks behind those already there.
func (p *Param) Hook(h Hooks) { p.hooks = append(p.hooks, h) }

// Hooks returns what is attached, in order.
func (p *Param) Hooks() []Hooks { return p.hooks }

// Make gives the parameter memory on dev and its initial values, a function of seed, name and element index alone.
func (p *Param) Make(dev Device, dtype DType, seed uint64) {
	p.SetValue(NewFor(Parameters, dev, dtype, p.dims...))
	p.Fill(p.Value, seed, 0)
}

// Fill writes the initial values of elements first, first+1, … of the parameter into x, those of Make: a shard is made
// without the whole.
func (p *Param) Fill(x Tensor, seed uint64, first int) {
	p.init.Fill(x, RandomKey(seed, HashName(p.name)), uint64(first))
}

// SetValue makes v, of p's shape, the parameter's value and what the optimizer updates. If v's memory is counted, it counts
// as Parameters from now on.
func (p *Param) SetValue(v Tensor) {
	h := v.hdr()
	if h.n != p.Len() || h.tape != nil || h.ld != 0 {
		fail("SetValue", []Shape{h.shape()}, "%s has shape %v, and needs a contiguous tensor outside tapes", p.name, p.dims)
	}
	h.st.name = p.name
	if h.st.acct != nil {
		h.st.acct.recount(Parameters)
	}
	p.Value, p.Local = v, v
}

// To copies the value to dev, unless it is there or in host memory that dev shares.
func (p *Param) To(dev Device) {
	if from := p.Value.Device(); from == dev || from.Host() && dev.Host() {
		return
	}
	v := NewFor(Parameters, dev, p.Value.DType(), p.dims...)
	Copy(v, p.Value)
	p.SetValue(v)
}

// HasGrad reports whether gradients were written since the last Consume.
func (p *Param) HasGrad() bool { return p.state != gradEmpty }

// Consume marks the gradient as used: the next Backward overwrites it. Optimizers call it in Step.
func (p *Param) Consume() { p.state = gradEmpty }

// FillGrad marks the gradient as written, by a hook that completed it itself (zeros for an unused parameter).
func (p *Param) FillGrad() { p.state = gradReady }

// undoWrite takes back what leafGrad noted: the gradient is added by another way.
func (p *Param) undoWrite(beta float64) {
	if beta == 0 {
		p.state = gradEmpty
	}
}

func (p *Param) beforeUse(phase Phase) {
	for _, h := range p.hooks {
		h.BeforeUse(p, phase)
	}
}

// gradReady fires the hooks in order, each after what the one before started.
func (p *Param) gradReady() {
	var after Pending
	for _, h := range p.hooks {
		after = h.GradReady(p, after)
	}
	p.sync = after
}

// Awaited reports whether a gradient may still come in this Backward: whether its tape has uses of p that it has not
// differentiated.
func (p *Param) Awaited() bool {
	s := p.last
	return s != nil && s.t.inBackward && s.serial == s.t.serial && s.pending > 0
}

// leafState is a parameter on one tape.
type leafState struct {
	p       *Param
	t       *Tape
	h       header
	pending int    // uses that Backward has not differentiated yet
	serial  uint32 // of the tape, when pending was reset
	hooked  bool   // the tape's next Backward calls the hooks
}

// ready is called when all uses have been differentiated.
func (s *leafState) ready() {
	if s.p.HasGrad() {
		s.p.gradReady()
	}
}

// refresh makes the leaf's header refer to the parameter's present value: hooks may have moved it.
func (s *leafState) refresh() {
	if s.p.Value.IsZero() {
		fail("Use", nil, "%s of shape %v was never made: call nn.Init or Attach first", s.p.name, s.p.dims)
	}
	v := s.p.Value.hdr()
	s.h.st, s.h.off, s.h.dtype, s.h.ld = v.st, v.off, v.dtype, v.ld
}

// Use puts a parameter on the tape and returns its tensor. Layers call it in Forward, once for each use.
func (t *Tape) Use(p *Param) Tensor {
	s := t.leaf(p)
	phase := Forward
	if t.inBackward {
		phase = Backward
	}
	p.beforeUse(phase)
	s.refresh()
	s.h.ty = p.Types()
	if !t.reaches(&s.h) {
		fail("Use", []Shape{s.h.shape()}, "%s is on %v, the tape on %v (see Param.To)", p.name, s.h.st.dev, t.dev)
	}
	if s.serial != t.serial {
		s.serial, s.pending = t.serial, 0
		s.h.needs = !p.frozen && !t.noGrad
		t.used = append(t.used, s)
	}
	s.enlist()
	return Tensor{&s.h, s.h.gen}
}

// leaf returns p's state on t. Param.last saves the look-up in training; inference does not touch it, so that several
// goroutines may use a model at the same time, each with a NoGrad tape.
func (t *Tape) leaf(p *Param) *leafState {
	if !t.noGrad && p.last != nil && p.last.t == t {
		return p.last
	}
	s := t.leaves[p]
	if s == nil {
		s = &leafState{p: p, t: t}
		s.h.tape, s.h.leaf = t, s
		s.h.setDims(p.dims)
		t.leaves[p] = s
	}
	if !t.noGrad {
		p.last = s
	}
	return s
}

// enlist makes the next Backward call the parameter's hooks. It is called for each use: a handle may be older than the
// last Backward.
func (s *leafState) enlist() {
	if s.hooked {
		return
	}
	s.hooked = true
	for _, k := range s.p.hooks {
		if !slices.Contains(s.t.hooks, k) {
			s.t.hooks = append(s.t.hooks, k)
		}
	}
}

// dismiss forgets the hooks of the leaves used.
func (t *Tape) dismiss() {
	for _, s := range t.used {
		s.hooked = false
	}
	t.hooks = t.hooks[:0]
}

// String returns the name and shape.
func (p *Param) String() string { return fmt.Sprintf("%s%v", p.name, p.dims) }
