package orthogonal

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

// Replace replaces a matrix x = U·S·Vᵀ, in contiguous memory, by U·Vᵀ, nearly, times scale. With half, the iteration is in bfloat16. tape
// is for the steps in between, and is Reset.
//
// All products are of the tall form z of x, n×m with n ≥ m. z is x times the fourth root of c: then (zᵀz)² has the factor c, and no product
// needs one. Between steps, z is in x's memory.
func Replace(tape *tensor.Tape, x tensor.Tensor, rows, cols int, scale float64, half bool) {
	root, d := math.Sqrt(math.Sqrt(quinticC)), x.DType()
	replace := func(y tensor.Tensor) {
		tensor.Copy(x, y.Reshape(x.Len()))
		tape.Reset()
	}
	z := tape.Input(x.View(rows, cols))
	z = z.Div(ops.Clamp(z.Square().Sum().Sqrt(), smallestNorm, math.Inf(1)).Scale(1 / root))
	replace(tall(z, rows, cols))
	n, k := max(rows, cols), min(rows, cols)
	for range quinticSteps {
		z = tape.Input(x.View(n, k))
		if half {
			z = z.Cast(tensor.BFloat16)
		}
		replace(quintic(z).Cast(d))
	}
	replace(tall(tape.Input(x.View(n, k)), rows, cols).Scale(scale / root))
}

// tall returns z, or its transpose if the matrix is wide.
func tall(z tensor.Tensor, rows, cols int) tensor.Tensor {
	if rows < cols {
		return z.Transpose(0, 1)
	}
	return z
}

// quintic returns a·z + z·(b/√c·g + g²), where g = zᵀz. g is symmetric: gᵀ in LinearAdd is g.
func quintic(z tensor.Tensor) tensor.Tensor {
	none := tensor.Tensor{}
	g := tensor.MatMul(z, z, true, false)
	p := tensor.LinearAdd(g, g, none, g.Scale(quinticB/math.Sqrt(quinticC)))
	return tensor.LinearAdd(z, p, none, z.Scale(quinticA))
}
