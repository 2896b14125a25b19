package main

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/models/bert/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train"
)

// divide gives each rank its part of the model. It returns the ranks that have other pairs.
func (o options) divide(r *dist.Rank, m *bert.Model) (nn.Params, *dist.Group, error) {
	size, c := r.World.Size(), parallel.Config{}
	if size%(o.fsdp*o.tp) != 0 {
		return nil, nil, train.Usagef("-fsdp %d times -tp %d do not divide %d ranks", o.fsdp, o.tp, size)
	}
	if o.fsdp > 1 {
		c.FSDP = &fsdp.Config{DType: tensor.Float32}
	}
	mesh, err := r.Mesh(fmt.Sprintf("dp=%d,fsdp=%d,tp=%d", size/o.fsdp/o.tp, o.fsdp, o.tp))
	if err != nil {
		return nil, nil, err
	}
	params, err := parallel.Attach(mesh, m, c)
	return params, mesh.Group("dp", "fsdp"), err
}
