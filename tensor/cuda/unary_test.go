package cuda_test

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
)

var maps = []tensor.Op{tensor.OpNeg, tensor.OpAbs, tensor.OpExp, tensor.OpLog, tensor.OpSqrt, tensor.OpSquare, tensor.OpRecip,
	tensor.OpSin, tensor.OpCos, tensor.OpTanh, tensor.OpSigmoid, tensor.OpReLU, tensor.OpGELU, tensor.OpGELUTanh, tensor.OpSiLU,
	tensor.OpAffine}

var gradients = []tensor.Op{tensor.OpAbsGrad, tensor.OpSqrtGrad, tensor.OpSquareGrad, tensor.OpRecipGrad,
	tensor.OpSinGrad, tensor.OpCosGrad, tensor.OpTanhGrad, tensor.OpSigmoidGrad, tensor.OpReLUGrad, tensor.OpGELUGrad,
	tensor.OpGELUTanhGrad, tensor.OpSiLUGrad}

// roundedAlike are operations with the CPU's additions, multiplications, divisions and square roots, and so with its bits.
var roundedAlike = map[tensor.Op]bool{tensor.OpNeg: true, tensor.OpAbs: true, tensor.OpSqrt: true, tensor.OpSquare: true,
	tensor.OpRecip: true, tensor.OpReLU: true, tensor.OpAffine: true, tensor.OpAbsGrad: true,
	tensor.OpSqrtGrad: true, tensor.OpSquareGrad: true, tensor.OpRecipGrad: true, tensor.OpTanhGrad: true,
	tensor.OpSigmoidGrad: true, tensor.OpReLUGrad: true}

func toleranceOf(op tensor.Op) tolerance {
	if roundedAlike[op] {
		return exact
	}
	return near
}

// lengths are not multiples of the elements of a thread, a vector or a block.
var lengths = []int{1, 3, 16, 257, 5003}

var specials = []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), math.NaN(), 1e-30, -1e-30, 88, -88, 300, -300, 6e4}

func TestFunctions(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(1)
		for _, op := range append(append([]tensor.Op(nil), maps...), gradients...) {
			for i, n := range lengths {
				l := launch{op: op, d: d, outs: 1, x: []operand{blank(d, n).shifted(i % 2), random(r, d, n).shifted(i % 3)},
					set: func(a *tensor.Args) { a.F = [8]float64{1.7, -0.3} }}
				if op >= tensor.OpAbsGrad {
					l.x = append(l.x, random(r, d, n))
				}
				l.agree(t, dev, toleranceOf(op))
			}
		}
	})
}

func TestFunctionsOfSpecialValues(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		n := len(specials)
		at := func(i int) float64 { return specials[i] }
		for _, op := range maps {
			tol := toleranceOf(op)
			tol.floor = 1e-30
			launch{op: op, d: d, outs: 1, x: []operand{blank(d, n), values(d, n, at)}, set: func(a *tensor.Args) { a.F = [8]float64{2, 1} }}.agree(t,
				dev, tol)
		}
		for _, op := range gradients {
			launch{op: op, d: d, outs: 1, x: []operand{blank(d, n), values(d, n, func(int) float64 { return 0.5 }), values(d, n, at)}}.agree(t, dev,
				toleranceOf(op))
		}
	})
}
