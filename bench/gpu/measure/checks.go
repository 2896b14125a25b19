package measure

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// Checks compare samples with float64 results that the host computes from the same operands. A wrong kernel is wrong almost everywhere, and
// the host would need longer for whole results than the device.

// part reads n elements from element i on.
func part(x tensor.Tensor, i, n int) []float64 { return tensor.Floats(x.Range(i, i+n)) }

// kept is a copy of a result that is on a tape.
func (m *meter) kept(x tensor.Tensor) tensor.Tensor {
	y := tensor.New(m.dev, x.DType(), x.Shape().Dims...)
	tensor.Copy(y, x)
	return y
}

// samples compares n of total elements: some at the beginning, in the middle and at the end.
func samples(total, n int, limit bound, at func(i int) (got, want []float64)) error {
	for _, i := range []int{0, total / 2 / n * n, total - n} {
		got, want := at(i)
		if err := limit.near(got, want); err != nil {
			return fmt.Errorf("from element %d on: %w", i, err)
		}
	}
	return nil
}

// bound is the largest allowed difference: a fraction of the element itself plus a fraction of the largest one.
type bound struct{ own, most float64 }

// exact is the bound of results that are copied, not computed.
var exact bound

// rounded is the bound of results of type t that are rounded once, at the end.
func rounded(t tensor.DType) bound {
	if t.IsHalf() {
		return bound{1. / 128, 1e-5}
	}
	return bound{1e-4, 1e-5}
}

func (b bound) near(got, want []float64) error {
	most := 0.
	for _, w := range want {
		most = max(most, math.Abs(w))
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= b.own*math.Abs(w)+b.most*most) {
			return fmt.Errorf("element %d is %.6g instead of %.6g", i, got[i], w)
		}
	}
	return nil
}

// dot computes the sum of n products, and compares it with got, an element of a result of type t.
func dot(t tensor.DType, got float64, n int, pair func(i int) (x, y float64)) error {
	sum, size := 0., 0.
	for i := range n {
		x, y := pair(i)
		sum, size = sum+x*y, size+math.Abs(x*y)
	}
	if !(math.Abs(got-sum) <= rounded(t).own*math.Abs(sum)+1e-4*size) {
		return fmt.Errorf("%.6g instead of %.6g", got, sum)
	}
	return nil
}

// checkProduct checks some elements of x·wᵀ.
func (m *meter) checkProduct(tape *tensor.Tape, x, w tensor.Tensor) (failed error) {
	y := m.kept(tensor.MatMul(tape.Input(x), tape.Input(w), false, true))
	tape.Reset()
	k, n := x.Dim(1), w.Dim(0)
	for _, i := range []int{0, x.Dim(0) / 2, x.Dim(0) - 1} {
		for _, j := range []int{0, n / 2, n - 1} {
			a, b := part(x, i*k, k), part(w, j*k, k)
			if err := dot(x.DType(), part(y, i*n+j, 1)[0], k, func(l int) (float64, float64) { return a[l], b[l] }); err != nil {
				failed = errors.Join(failed, fmt.Errorf("element %d, %d: %w", i, j, err))
			}
		}
	}
	return failed
}

func addRow(x, y, _, _ []float64) {
	for i := range x {
		x[i] += y[i]
	}
}

func geluRow(x, _, _, _ []float64) {
	for i, v := range x {
		x[i] = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	}
}

func softmaxRow(x, _, _, _ []float64) {
	sum := 0.
	for i, v := range x {
		x[i] = math.Exp(v)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

func layerNormRow(x, _, w, b []float64) {
	normalize(x)
	for i, v := range x {
		x[i] = v*w[i] + b[i]
	}
}

func rmsNormRow(x, _, w, _ []float64) {
	square := 0.
	for _, v := range x {
		square += v * v / float64(len(x))
	}
	for i, v := range x {
		x[i] = v / math.Sqrt(square+1e-5) * w[i]
	}
}

// experts are products of groups of rows, each with its own matrix.
type experts struct {
	sizes    []int64
	in, out  int
	x, w, gy tensor.Tensor
}

// group returns the group of a row.
func (e *experts) group(row int) int {
	for g, n := range e.sizes {
		if row -= int(n); row < 0 {
			return g
		}
	}
	return -1
}

func (e *experts) rows() []int { return []int{0, e.x.Dim(0) / 2, e.x.Dim(0) - 1} }

// outputs checks some elements of y.
func (e *experts) outputs(y tensor.Tensor) (failed error) {
	for _, r := range e.rows() {
		for _, o := range []int{0, e.out - 1} {
			x, w := part(e.x, r*e.in, e.in), part(e.w, (e.group(r)*e.out+o)*e.in, e.in)
			if err := dot(tensor.BFloat16, part(y, r*e.out+o, 1)[0], e.in, func(i int) (float64, float64) { return x[i], w[i] }); err != nil {
				failed = errors.Join(failed, fmt.Errorf("output %d of row %d: %w", o, r, err))
			}
		}
	}
	return failed
}

// gradients checks some elements of the gradient of x, and one of the gradient of the first matrix.
func (e *experts) gradients(gx, gw tensor.Tensor) (failed error) {
	for _, r := range e.rows() {
		gy, i := part(e.gy, r*e.out, e.out), e.in-1
		first := e.group(r) * e.out * e.in
		err := dot(tensor.BFloat16, part(gx, r*e.in+i, 1)[0], e.out, func(o int) (float64, float64) {
			return gy[o], part(e.w, first+o*e.in+i, 1)[0]
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("gradient of input %d of row %d: %w", i, r, err))
		}
	}
	o, i := e.out-1, e.in/2
	err := dot(tensor.BFloat16, part(gw, o*e.in+i, 1)[0], int(e.sizes[0]), func(r int) (float64, float64) {
		return part(e.gy, r*e.out+o, 1)[0], part(e.x, r*e.in+i, 1)[0]
	})
	if err != nil {
		failed = errors.Join(failed, fmt.Errorf("gradient of weight %d, %d of the first matrix: %w", o, i, err))
	}
	return failed
}
