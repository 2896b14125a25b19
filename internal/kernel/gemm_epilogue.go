package kernel

// Activation is a function that [Gemm] applies to its result.
type Activation uint8

// The activations. Their functions and gradients are [ReLU] and [ReLUGrad], and so on.
const (
	NoActivation Activation = iota
	ActReLU
	ActGELU
	ActGELUTanh
	ActSiLU
)

// NeedsInput reports whether the gradient of a is computed from its input. Otherwise it is computed from its output.
func (a Activation) NeedsInput() bool { return a > ActReLU }

// Activate computes dst = a(x).
func Activate[T Float](a Activation, dst, x []T) {
	switch a {
	case ActReLU:
		ReLU(dst, x)
	case ActGELU:
		GELU(dst, x)
	case ActGELUTanh:
		GELUTanh(dst, x)
	case ActSiLU:
		SiLU(dst, x)
	default:
		copy(dst, x)
	}
}

// activateGrad computes dst = g times the derivative of a, where s is a's input or output (see NeedsInput).
func activateGrad[T Float](a Activation, dst, g, s []T) {
	switch a {
	case ActReLU:
		ReLUGrad(dst, g, s)
	case ActGELU:
		GELUGrad(dst, g, s)
	case ActGELUTanh:
		GELUTanhGrad(dst, g, s)
	case ActSiLU:
		SiLUGrad(dst, g, s)
	default:
		copy(dst, g)
	}
}

// ActivateGradColSum computes columns lo to hi of two results in one pass over the
// rows of matrices [rows, cols]: dst = g times the derivative of a, and sum[j] =
// the sum of column j of dst, in the order of [ColSum]. s is a's input or output
// (see [Activation.NeedsInput]). dst may be g or s. If sum is nil, only dst is
// computed.
func ActivateGradColSum[T Float](a Activation, sum, dst, g, s []T, rows, cols, lo, hi int) {
	for lo < hi {
		w := min(sumTile, hi-lo)
		var t [sumTile]T
		gradRows(a, t[:w], dst[lo:], g[lo:], s[lo:], rows, cols, sum != nil)
		if sum != nil {
			clear(sum[lo : lo+w]) // as in ColSum, so that a sum of zeros has the right sign
			addTo(sum[lo:lo+w], t[:w])
		}
		lo += w
	}
}

// gradRows is sumRows for a matrix that it computes at the same time.
func gradRows[T Float](a Activation, sum, dst, g, s []T, n, ld int, add bool) {
	if n > rowBlock {
		h := half(n, rowBlock)
		var t [sumTile]T
		gradRows(a, sum, dst, g, s, h, ld, add)
		gradRows(a, t[:len(sum)], dst[h*ld:], g[h*ld:], s[h*ld:], n-h, ld, add)
		if add {
			addTo(sum, t[:len(sum)])
		}
		return
	}
	w := len(sum)
	clear(sum)
	for r := range n {
		row := dst[r*ld : r*ld+w]
		activateGrad(a, row, g[r*ld:r*ld+w], s[r*ld:r*ld+w])
		if add {
			addTo(sum, row)
		}
	}
}

// finishColumns is the number of panels of C after which Act is applied to them:
// the rows are long enough for the vector kernels, and still in the cache.
const finishColumns = 8

// finish applies Act to a block of C.
func (g *Gemm[T]) finish(i0, i1, j0, j1 int) {
	out := g.Out
	if out == nil {
		out = g.C
	}
	for i := i0; i < i1; i++ {
		lo, hi := i*g.LDC+j0, i*g.LDC+j1
		Activate(g.Act, out[lo:hi], g.C[lo:hi])
	}
}
