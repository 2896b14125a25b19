package optim

import (
	"math"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The quintic of Jordan 2024, a·x + b·x³ + c·x⁵, five times: it brings singular values in (0, 1] to about 0.7 to 1.2.
const (
	quinticA, quinticB, quinticC = 3.4445, -4.7750, 2.0315
	quinticSteps                 = 5
	smallestNorm                 = 1e-7
)

// newtonSchulz returns U·Vᵀ, nearly, for a matrix x = U·S·Vᵀ. All products are of the tall form z of x, n×m with n ≥ m. z is x times the
// fourth root of c: then (zᵀz)² has the factor c, and no product needs one.
func newtonSchulz(in ...tensor.Tensor) tensor.Tensor {
	x := in[0]
	wide := x.Dim(0) < x.Dim(1)
	if wide {
		x = x.Transpose(0, 1)
	}
	root := math.Sqrt(math.Sqrt(quinticC))
	norm := ops.Clamp(x.Square().Sum().Sqrt(), smallestNorm, math.Inf(1))
	z := x.Div(norm.Scale(1 / root))
	for range quinticSteps {
		z = z.Tape().Scope(quintic, z)
	}
	if wide {
		z = z.Transpose(0, 1)
	}
	return z.Scale(1 / root)
}

// quintic returns a·z + z·(b/√c·g + g²), where g = zᵀz. g is symmetric: gᵀ in LinearAdd is g.
func quintic(in ...tensor.Tensor) tensor.Tensor {
	z, none := in[0], tensor.Tensor{}
	g := tensor.MatMul(z, z, true, false)
	p := tensor.LinearAdd(g, g, none, g.Scale(quinticB/math.Sqrt(quinticC)))
	return tensor.LinearAdd(z, p, none, z.Scale(quinticA))
}
