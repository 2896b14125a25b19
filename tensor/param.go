package tensor

import (
	"cmp"
	"fmt"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor/memory"
)

type gradState uint8

const (
	gradEmpty   gradState = iota // consumed, or never written
	gradPartial                  // written; more may come
	gradSummed                   // complete, and the ranks have added theirs up
)

// Param is a trainable tensor, a leaf of every tape. It is made with a shape only; nn.Init or an Attach gives it values.
type Param struct {
	Value Tensor // what Forward uses
	Local Tensor // what the optimizer updates: Value itself, or this rank's shard of it
	Grad  Tensor // gradient of Local; made at the first Backward unless the owner provides it

	name                       string
	place                      layout.Placement
	n                          int   // elements of place
	ty                         Types // of place
	at                         place // the dimensions that place cuts
	init                       Initializer
	frozen, buffer, transposed bool
	stored                     []Stored    // its segments in files; nil: one tensor
	owner                      Hooks       // nil: none
	through                    Function    // nil: none
	beside                     *neighbours // nil: none
	state                      gradState
	version                    uint32 // counts changes of the values
	sync                       Pending
	last                       *leafState
	lossScale                  *float64 // nil: no optimizer
	scaled                     float64  // LossScale of the first Backward since Consume; 0: there was none
}

// NewParam returns a parameter of the given shape, without values.
func NewParam(init Initializer, dims ...int) *Param {
	for i, d := range dims {
		if d < 0 {
			fail("NewParam", nil, "dimension %d of %v is negative", i, append([]int(nil), dims...))
		}
	}
	p := &Param{init: init, name: "a parameter"}
	p.put(layout.Whole(dims...))
	return p
}

// Buffer is state of a model that has no gradient, such as running statistics. It is broadcast and saved like a Param.
type Buffer struct{ Param }

// NewBuffer returns a buffer of the given shape, without values.
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

// SetTransposed says whether files hold this matrix as [in, out]. nn.ParamsOf calls it, if a tag or Storer says so.
func (p *Param) SetTransposed(yes bool) { p.transposed = yes }

// Transposed reports whether files hold this matrix as [in, out].
func (p *Param) Transposed() bool { return p.transposed }

// Freeze excludes the parameter from training: from its next use on, no gradient is computed for it. Uses before, also of the same forward
// pass, stay as they were, and so do those of a Checkpoint when Backward runs it again.
func (p *Param) Freeze() { p.frozen = true }

// Unfreeze takes Freeze back. An Attach and an optimizer make memory only for parameters that are not frozen by then; if such a parameter
// is trained later, they return an error. A Buffer stays frozen.
func (p *Param) Unfreeze() { p.frozen = p.buffer }

// Changed says that values in Local, or in Value if that is the whole, were changed, on all ranks that share the parameter. Optimizers and
// loads call it; whoever writes values by other means has to. A Backward that needs the old values is a Failure, the next use gathers those
// that other ranks hold (package fsdp), and an optimizer takes what is new into its masters of 16-bit parameters.
func (p *Param) Changed() {
	p.version++
	if p.owner != nil {
		p.owner.Changed(p)
	}
}

// Version counts the calls of Changed.
func (p *Param) Version() uint32 { return p.version }

// Frozen reports whether the parameter is excluded from training.
func (p *Param) Frozen() bool { return p.frozen }

// Make gives the parameter memory on dev and its initial values. These depend only on seed, name and the element's index in the model's
// tensor.
func (p *Param) Make(dev Device, dtype DType, seed uint64) {
	if !dtype.IsFloat() {
		fail("Make", nil, "%v: a parameter is of floats, not of %v", p, dtype)
	}
	p.SetValue(p.blank(memory.Parameters, dev, dtype))
	p.Fill(p.Value, seed, 0)
}

// Fill writes the initial values of elements first, first+1, … of this rank's part into x. They are those of Make: a shard gets its values
// without the whole parameter, with the same bits. Local begins with element lo of Placement().Range(); call Changed after writing to it.
func (p *Param) Fill(x Tensor, seed uint64, first int) {
	p.mustBegin(x.hdr(), first)
	key, at := RandomKey(seed, HashName(p.name)), 0
	for global, n := range p.Runs(first, first+x.Len()) {
		p.init.Fill(x.Range(at, at+n), key, uint64(global))
		at += n
	}
}

// mustBegin fails if x is a part of Local that begins with another element than first.
func (p *Param) mustBegin(x *header, first int) {
	if p.Local.IsZero() || p.Local.Len() != p.place.Len() { // else it is the whole
		return
	}
	l := p.Local.hdr()
	lo, _ := p.place.Range()
	at := (x.off - l.off) / l.dtype.Size()
	if x.st == l.st && at >= 0 && at < l.n && first != lo+at {
		fail("Fill", these(x), "this part of %s begins with element %d, not with %d: write lo, _ := p.Placement().Range(); "+
			"p.Fill(p.Local, seed, lo); p.Changed()", p.name, lo+at, first)
	}
}

// SetValue makes v the parameter's value, which the optimizer updates. If v's memory is counted, it counts as Parameters from now on. For a
// parameter that is cut, v is this rank's part, or the model's tensor, from which it copies the part.
func (p *Param) SetValue(v Tensor) {
	h := v.hdr()
	if p.IsCut() && h.n != p.Len() {
		p.setPart(v)
		return
	}
	if h.n != p.Len() || h.tape != nil || h.ld != 0 {
		fail("SetValue", these(h), "%s has shape %v, and needs a contiguous tensor outside tapes", p.name, p.Dims())
	}
	h.st.names = &names{whole: p.name}
	if h.st.acct != nil {
		h.st.acct.Recount(memory.Parameters)
	}
	p.Value, p.Local = v, v
	p.Changed()
}

// setPart sets the value to this rank's part of v, the model's tensor.
func (p *Param) setPart(v Tensor) {
	h := v.hdr()
	if h.n != product(p.Global()) || h.tape != nil || h.ld != 0 {
		fail("SetValue", these(h), "%s has shape %v here and %v in the model, and needs a contiguous tensor outside tapes",
			p.name, p.Dims(), p.Global())
	}
	host, at := newNamed(p.name, memory.Parameters, hostDevice, h.dtype, p.Dims()), 0
	from, to, size := ToHost(v).Bytes(), host.Bytes(), h.dtype.Size()
	for global, n := range p.Runs(0, p.Len()) {
		at += copy(to[at:], from[global*size:(global+n)*size])
	}
	if dev := h.st.dev; !dev.Host() {
		x := newNamed(p.name, memory.Parameters, dev, h.dtype, p.Dims())
		Copy(x, host)
		host = x
	}
	p.SetValue(host)
}

// To copies the value to dev, unless dev can use its memory already.
func (p *Param) To(dev Device) {
	if from := p.Value.Device(); from == dev || from.Host() && dev.Host() {
		return
	}
	v := p.blank(memory.Parameters, dev, p.Value.DType())
	Copy(v, p.Value)
	p.SetValue(v)
}

// HasGrad reports whether gradients were written since the last Consume.
func (p *Param) HasGrad() bool { return p.state != gradEmpty }

// Consume marks the gradient as used: the next Backward overwrites it. Optimizers call it in Step. One whose gradient was consumed before
// leaves the parameter as it is.
func (p *Param) Consume() { p.state, p.scaled = gradEmpty, 0 }

// SetLossScale says that the optimizer divides the gradient by *by, which may change from step to step. Optimizers call it when they are
// made, and in Step.
func (p *Param) SetLossScale(by *float64) { p.lossScale = by }

// LossScale returns by what the optimizer divides the gradient: Scale of Backward must be the same. It is 0 if there is no optimizer.
func (p *Param) LossScale() float64 {
	if p.lossScale == nil {
		return 0
	}
	return *p.lossScale
}

// Rescaled reports whether LossScale has changed since the Backward that began the gradient, and what it was then.
func (p *Param) Rescaled() (was float64, changed bool) {
	return p.scaled, p.scaled != 0 && p.lossScale != nil && p.scaled != *p.lossScale
}

// FillGrad marks the gradient as complete. An owner calls it that summed the gradient or made it itself (zeros for an unused parameter). If
// it does not, optimizers refuse the gradient (see Partial).
func (p *Param) FillGrad() {
	p.state, p.scaled = gradSummed, cmp.Or(p.scaled, p.LossScale())
	p.markPart()
}

// undoWrite undoes what leafGrad recorded, if the gradient is added in another way.
func (p *Param) undoWrite(beta float64) {
	if beta == 0 {
		p.state = gradEmpty
	}
}

// String returns the name and shape.
func (p *Param) String() string { return fmt.Sprintf("%s%v", p.name, p.Dims()) }
