package tensortest

import (
	"fmt"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// both is attention with its lse.
func (c crossing) both(x []tensor.Tensor) (out, lse tensor.Tensor) {
	return ops.CrossAttentionLSE(x[0], x[1], x[2], crossHead, c.masks.of(c.o, x[0].Dim(0), x[0].Dim(1), x[1].Dim(1)))
}

func lseCases() (cases []ValueCase) {
	for _, c := range crossings {
		cases = append(cases, ValueCase{Name: "logarithmic sums of " + c.name(), Dims: c.dims(), Loss: true, Rounds: true,
			F: func(x []tensor.Tensor) tensor.Tensor {
				_, lse := c.both(x)
				return lse
			},
			Want: func(x []Array) Array {
				_, lse := attended(x, c.masks.of(c.o, x[0].Dims[0], x[0].Dims[1], x[1].Dims[1]))
				return lse
			}})
	}
	return cases
}

// finite returns x with infinite elements replaced by 0.
func finite(x tensor.Tensor) tensor.Tensor {
	return ops.Where(x.Gt(constant(x, -1e30)), x, constant(x, 0))
}

// constant returns v in the type of x, in host memory.
func constant(x tensor.Tensor, v float64) tensor.Tensor { return Of(x.DType(), []float64{v}, 1) }

// lseGrads use lse alone, and together with the output.
func lseGrads() (cases []GradCase) {
	for i, c := range crossings[1:] {
		if i%3 == 1 {
			c.o.Drop, c.o.Layer = 0.4, 3
		}
		shapes := func(r *rand.Rand) [][]int { return crossDims(1+r.IntN(2), c.tq, c.tk, c.heads, c.kv) }
		cases = append(cases, GradCase{Name: fmt.Sprintf("%s, drop %v", c.name(), c.o.Drop), Shapes: shapes,
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				out, lse := c.both(x)
				if i%2 == 0 {
					return finite(lse)
				}
				return finite(lse).Square().Sum().Scale(1 / float64(out.Len())).Add(out.Cast(lse.DType()))
			}})
	}
	return cases
}
