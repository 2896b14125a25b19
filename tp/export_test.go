package tp

import "github.com/ringo-ml/ringo/tensor/ops"

// Linear is the Function of LinearLoss.
func (f *CrossEntropy) Linear() *ops.LinearCrossEntropy { return &f.linear }
