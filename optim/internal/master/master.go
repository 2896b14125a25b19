package master

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Param is a parameter with its values.
type Param struct {
	P       *tensor.Param
	DType   tensor.DType  // of the optimizer's state
	Master  tensor.Tensor // of a 16-bit parameter
	Synced  bool          // Master holds the parameter's value
	Average tensor.Tensor // see Averages
	version uint32        // of the value that the master was last compared with
}

// New returns p, with memory for its master.
func New(p *tensor.Param) Param {
	m := Param{P: p, DType: p.Local.DType()}
	if m.DType.IsHalf() {
		m.DType = tensor.Float32
		m.Master = m.newState()
	}
	return m
}

// newState returns memory for one value of each element.
func (p *Param) newState() tensor.Tensor {
	return tensor.NewFor(memory.OptimizerState, p.P.Local.Device(), p.DType, p.P.Local.Len())
}

// Value returns the tensor that an optimizer updates.
func (p *Param) Value() tensor.Tensor {
	if !p.Master.IsZero() {
		return p.Master
	}
	return p.P.Local
}

// Sync copies a 16-bit parameter to its master before the first step, and what the program has written to it since. It is not done earlier,
// because a checkpoint may set the value until then.
func (p *Param) Sync(exec *tensor.Exec) {
	switch {
	case p.Master.IsZero():
		return
	case !p.Synced:
		exec.Cast(p.Master, p.P.Local)
	case p.Written():
		p.takeWritten()
	}
	p.Leads()
}

// Written reports whether the program may have written the parameter, so that the master is not its value.
func (p *Param) Written() bool {
	return !p.Master.IsZero() && p.Synced && p.version != p.P.Version() && p.P.Local.Len() > 0
}

// takeWritten copies the elements of the parameter that are not their masters, rounded: the others keep all bits.
func (p *Param) takeWritten() {
	t := tensor.NewTape(p.P.Local.Device(), tensor.NoGrad())
	defer t.Close()
	n := p.P.Local.Len()
	value, master := t.Input(p.P.Local.View(n)), t.Input(p.Master.View(n))
	tensor.Copy(p.Master, ops.Where(master.Cast(value.DType()).Eq(value), master, value.Cast(p.DType)))
}

// Changed is that of the parameter, whose value comes from the master.
func (p *Param) Changed() {
	p.P.Changed()
	p.Leads()
}

// Leads says that the master counts, and not the value, until that is written again.
func (p *Param) Leads() { p.Synced, p.version = true, p.P.Version() }

// WriteBack rounds the master to the parameter.
func (p *Param) WriteBack(exec *tensor.Exec) {
	if !p.Master.IsZero() {
		exec.Cast(p.P.Local, p.Master)
	}
}
