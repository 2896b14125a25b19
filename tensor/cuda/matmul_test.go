package cuda_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
)

// product is a launch of OpMatMul or OpLinearAct, with rows that have `extra` unused elements.
type product struct {
	batch, m, n, k int
	ta, tb, bias   bool
	extra          int
	beta           float64
	act            tensor.Activation
	pre            bool
	repeatB        bool
}

// sumsOf is the tolerance for sums of k products in different orders.
func sumsOf(k int) tolerance {
	s := math.Sqrt(float64(k)) + 1
	return tolerance{f32: 1e-6 * s, f64: 1e-14 * s, half: 0x1p-7, floor: 10}
}

func (p product) launch(r *rand.Rand, d tensor.DType) launch {
	lda, ldb, ldc := p.k+p.extra, p.n+p.extra, p.n+p.extra
	ar, br := p.m, p.k
	if p.ta {
		lda, ar = p.m+p.extra, p.k
	}
	if p.tb {
		ldb, br = p.k+p.extra, p.n
	}
	sb := br * ldb
	if p.repeatB {
		sb = 0
	}
	l := launch{op: tensor.OpMatMul, d: d, outs: 1}
	if p.act != tensor.NoActivation {
		l.op = tensor.OpLinearAct
	}
	if p.pre {
		l.outs = 2
		l.x = append(l.x, blank(d, p.m*ldc))
	}
	l.x = append(l.x, random(r, d, p.batch*p.m*ldc), random(r, d, p.batch*ar*lda).shifted(p.extra%2), random(r, d, max(p.batch*br*ldb, 1)))
	if p.bias {
		l.x = append(l.x, random(r, d, p.n))
	}
	l.set = func(a *tensor.Args) {
		a.Dim = [6]int{p.batch, p.m, p.n, p.k}
		a.Rank = 4
		a.I[0], a.I[1], a.I[5] = truth(p.ta), truth(p.tb), int(p.act)
		a.F[0] = p.beta
		a.Stride[0][0], a.Stride[0][1] = p.m*ldc, ldc
		a.Stride[1][0], a.Stride[1][1] = ar*lda, lda
		a.Stride[2][0], a.Stride[2][1] = sb, ldb
	}
	return l
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestMatMul(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(2)
		for _, s := range [][3]int{{1, 1, 1}, {5, 7, 3}, {16, 24, 32}, {65, 10, 33}, {3, 4, 0}} {
			for i := range 16 {
				p := product{batch: 1, m: s[0], n: s[1], k: s[2], ta: i&1 != 0, tb: i&2 != 0, bias: i&4 != 0, extra: i / 8 * 3,
					beta: float64(i % 3 / 2)}
				if p.bias {
					p.beta = 0
				}
				if p.extra > 0 {
					p.bias = false
				}
				p.launch(r, d).agree(t, dev, sumsOf(p.k))
			}
		}
		for _, p := range []product{
			{batch: 3, m: 4, n: 5, k: 6}, {batch: 3, m: 4, n: 5, k: 6, ta: true, beta: 1}, {batch: 2, m: 8, n: 8, k: 8, tb: true, repeatB: true},
		} {
			p.launch(r, d).agree(t, dev, sumsOf(p.k))
		}
	})
}

func TestLinearAct(t *testing.T) {
	dev := device(t)
	each(t, floatTypes[:2], func(t *testing.T, d tensor.DType) {
		r := rng(3)
		for _, act := range []tensor.Activation{tensor.ActReLU, tensor.ActGELU, tensor.ActGELUTanh, tensor.ActSiLU} {
			for _, pre := range []bool{false, true} {
				if pre && act == tensor.ActReLU {
					continue // its gradient takes the output
				}
				for _, n := range []int{16, 13} {
					for _, bias := range []bool{false, true} {
						product{batch: 1, m: 9, n: n, k: 12, tb: true, act: act, pre: pre, bias: bias}.launch(r, d).agree(t, dev, sumsOf(12))
					}
				}
			}
		}
	})
}

func TestActGrad(t *testing.T) {
	dev := device(t)
	each(t, floatTypes[:2], func(t *testing.T, d tensor.DType) {
		r := rng(4)
		for _, act := range []tensor.Activation{tensor.ActReLU, tensor.ActGELU, tensor.ActGELUTanh, tensor.ActSiLU} {
			for _, s := range [][2]int{{1, 1}, {33, 7}, {300, 5}} {
				for outs := 1; outs <= 2; outs++ {
					l := launch{op: tensor.OpActGrad, d: d, outs: outs, x: []operand{blank(d, s[0]*s[1])},
						set: func(a *tensor.Args) { a.Dim[0], a.Dim[1], a.I[0] = s[0], s[1], int(act) }}
					if outs == 2 {
						l.x = append(l.x, blank(d, s[1]))
					}
					l.x = append(l.x, random(r, d, s[0]*s[1]), random(r, d, s[0]*s[1]))
					l.agree(t, dev, sumsOf(s[0]))
				}
			}
		}
	})
}
