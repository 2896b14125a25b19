package cuda_test

import (
	"math"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// listLengths are more tensors than one launch can take; some are empty, some have several blocks.
func listLengths(t *testing.T) []int {
	n := []int{0, 1, 5000, 4096, tensor.SumSquaresBlock, tensor.SumSquaresBlock + 1, 40000, 0}
	if !long(t) {
		n[6] = 2000
	}
	for i := range 130 {
		n = append(n, i)
	}
	return n
}

// groups makes the lists of an optimizer: value, gradient, and moments, of which the second is not negative; then a 16-bit value. Every
// third gradient is subnormal.
func groups(d tensor.DType, moments int, lengths []int) (list []operand, width int) {
	r, wide := rng(21), d
	if d.IsHalf() {
		wide = tensor.Float32
	}
	for i, n := range lengths {
		g := random(r, d, n).shifted(i % 3 / 2)
		for k := 0; k < n; k += 3 {
			g.set(k, 1e-33)
		}
		group := []operand{random(r, wide, n), g}
		for m := range moments {
			x := random(r, wide, n).shifted(i % 5 / 4)
			for k := range n {
				if v := x.at(k); m == 1 {
					x.set(k, v*v)
				} else if k%4 == 1 {
					x.set(k, v*1e-40)
				}
			}
			group = append(group, x)
		}
		if d.IsHalf() {
			group = append(group, random(r, d, n))
		}
		list, width = append(list, group...), len(group)
	}
	return list, width
}

// factors are factors of the gradients.
var factors = [2][]operand{nil, {values(tensor.Float64, 2, func(i int) float64 { return 0.7 + float64(i) })}}

// TestNoStep leaves everything as it is if the factor is NaN.
func TestNoStep(t *testing.T) {
	dev := device(t)
	nan := []operand{values(tensor.Float64, 4, func(int) float64 { return math.NaN() })}
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		for op, moments := range map[tensor.Op]int{tensor.OpSGD: 1, tensor.OpAdam: 2} {
			list, width := groups(d, moments, []int{33, 5000})
			launch{op: op, d: d, x: nan, list: list, group: width, set: func(a *tensor.Args) {
				a.I, a.F = [8]int{0, 1}, [8]float64{0.1, 0.9, 0.2, 0.01}
			}}.agree(t, dev, exact)
		}
	})
}

// stride is 1 where every variant of an optimizer is tested: in the long runs. Else the types share them.
func stride(t *testing.T) int {
	if long(t) {
		return 1
	}
	return 4
}

func TestSGD(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		list, width := groups(d, 1, listLengths(t))
		for i := int(d) % stride(t); i < 8; i += stride(t) {
			momentum := 0.9 * float64(i/4)
			launch{op: tensor.OpSGD, d: d, x: factors[i%2], list: list, group: width, set: func(a *tensor.Args) {
				a.I = [8]int{i & 1, i >> 1 & 1}
				a.F = [8]float64{0.1, momentum, 0.2, 0.01}
			}}.agree(t, dev, exact)
		}
	})
}

func TestLongSGD(t *testing.T) { reliability.AsLong(t, TestSGD) }

// TestSGDWithoutMomentum has no memory for it.
func TestSGDWithoutMomentum(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		list, width := groups(d, 1, []int{33, 5000})
		list[2], list[2+width] = operand{d: list[2].d}, operand{d: list[2].d}
		launch{op: tensor.OpSGD, d: d, list: list, group: width, set: func(a *tensor.Args) { a.F = [8]float64{0.1, 0, 0, 0.01} }}.agree(t, dev,
			exact)
	})
}

func TestAdam(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		list, width := groups(d, 2, listLengths(t))
		for i := int(d) % stride(t); i < 4; i += stride(t) {
			launch{op: tensor.OpAdam, d: d, x: factors[i/2], list: list, group: width, set: func(a *tensor.Args) {
				a.I = [8]int{i & 1, 1 + 10*i}
				a.F = [8]float64{1e-3, []float64{0.9, 0.3}[i/2], 0.999, 1e-8, 0.01}
			}}.agree(t, dev, exact)
		}
	})
}

func TestLongAdam(t *testing.T) { reliability.AsLong(t, TestAdam) }

func TestSumSquares(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			r, blocks := rng(22), 0
			var list []operand
			for i, n := range listLengths(t) {
				list = append(list, random(r, d, n).shifted(i%2))
				blocks += (n + tensor.SumSquaresBlock - 1) / tensor.SumSquaresBlock
			}
			launch{op: tensor.OpSumSquares, d: d, x: []operand{blank(tensor.Float64, blocks+3)}, outs: 1, list: list, group: 1,
				set: func(a *tensor.Args) { a.I[0] = 3 }}.agree(t, dev, near)
		})
	})
}

func TestGradNorm(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		r := rng(23)
		for _, n := range []int{0, 1, 307, 1000} {
			for _, bad := range []int{n, n / 2, n - n/7} { // where numbers are not finite from
				x := random(r, tensor.Float64, n+1)
				for i := bad; i <= n; i++ {
					x.set(i, []float64{math.Inf(1), math.NaN()}[i%2])
				}
				launch{op: tensor.OpGradNorm, d: tensor.Float64, outs: 1, x: []operand{blank(tensor.Float64, 2), x},
					set: func(a *tensor.Args) { a.I[0] = n }}.agree(t, dev, near)
			}
		}
		for _, sum := range []float64{4, 0, math.Inf(1), math.NaN()} {
			for _, f := range [][2]float64{{1, 0}, {1, 1.5}, {0.25, 1.5}, {0.25, 0}} {
				for _, step := range []float64{0, 7} {
					for _, before := range []float64{0, 5} {
						launch{op: tensor.OpClip, d: tensor.Float64, outs: 1, x: []operand{
							values(tensor.Float64, 4, func(int) float64 { return before }),
							values(tensor.Float64, 2, func(i int) float64 { return sum + float64(3*i) })},
							set: func(a *tensor.Args) { a.F = [8]float64{f[0], f[1], step} }}.agree(t, dev, exact)
					}
				}
			}
		}
	})
}
