package tensor

import (
	"slices"

	"github.com/ringo-ml/ringo/tensor/stored"
)

// Stored is a segment of a parameter in files.
type Stored = stored.Segment

// SetStored says that files hold the parameter as segments, which follow one another along its dimension 0. nn.ParamsOf calls it, if the
// model is an nn.Storer. Nil: files have one tensor with the parameter's name and shape. It is a Failure if segments do not fill the
// model's shape (Global), lie outside their tensors, or overlap.
func (p *Param) SetStored(as []Stored) {
	if err := stored.Check(p.Global(), as); err != nil {
		fail("SetStored "+p.name, nil, "shape %v: %w", p.Global(), err)
	}
	p.stored = slices.Clone(as)
}

// Stored returns the segments of the parameter in files, or nil: one tensor with its name and shape. The caller must not change them.
func (p *Param) Stored() []Stored { return p.stored }
