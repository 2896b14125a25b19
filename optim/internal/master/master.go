package master

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Param is a parameter with its values.
type Param struct {
	P       *tensor.Param
	DType   tensor.DType  // of the optimizer's state
	Master  tensor.Tensor // of a 16-bit parameter
	Synced  bool          // Master holds the parameter's value
	Average tensor.Tensor // see Averages
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

// Sync copies a 16-bit parameter to its master before the first step. It is not done earlier, because a checkpoint may set the value until
// then.
func (p *Param) Sync(exec *tensor.Exec) {
	if !p.Master.IsZero() && !p.Synced {
		exec.Cast(p.Master, p.P.Local)
		p.Synced = true
	}
}

// WriteBack rounds the master to the parameter.
func (p *Param) WriteBack(exec *tensor.Exec) {
	if !p.Master.IsZero() {
		exec.Cast(p.P.Local, p.Master)
	}
}
