package measure

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// factor8 is a matrix of a product of 8-bit floats, on the host. A line is what is summed over: a row or, with columns, a column.
type factor8 struct {
	values  []float64
	cols    int
	columns bool
	format  kernel.Float8
	scales  []float32 // one, or one for each line
}

// scaled8 is x with the scales of a format: of the whole, or of each line.
func scaled8(x tensor.Tensor, format kernel.Float8, s ops.Float8, columns bool) *factor8 {
	f := &factor8{values: tensor.Floats(x), cols: x.Dim(1), columns: columns, format: format}
	most := make([]float64, 1)
	if s == ops.PerRow {
		most = make([]float64, f.lines())
	}
	for i, v := range f.values {
		k := 0
		if len(most) > 1 && columns {
			k = i % f.cols
		} else if len(most) > 1 {
			k = i / f.cols
		}
		most[k] = max(most[k], math.Abs(v))
	}
	for _, a := range most {
		f.scales = append(f.scales, format.Max()/float32(a))
	}
	return f
}

// lines is the number of rows or, with columns, of columns.
func (f *factor8) lines() int {
	if f.columns {
		return f.cols
	}
	return len(f.values) / f.cols
}

// raw is a line before it is rounded.
func (f *factor8) raw(line int) []float64 {
	if !f.columns {
		return f.values[line*f.cols : (line+1)*f.cols]
	}
	x := make([]float64, 0, len(f.values)/f.cols)
	for i := line; i < len(f.values); i += f.cols {
		x = append(x, f.values[i])
	}
	return x
}

// line is a line of rounded numbers, without the scale.
func (f *factor8) line(line int) []float64 {
	scale := f.scales[min(line, len(f.scales)-1)]
	x := append([]float64(nil), f.raw(line)...)
	for i, v := range x {
		x[i] = float64(f.format.Float32(f.format.Code(float32(v)*scale))) / float64(scale)
	}
	return x
}

// The largest error of a sum of products, as a part of the sum of their magnitudes. With fast accumulation, Hopper's tensor cores keep 14
// bits of a sum. For 4096 products of independent signs, an error of 3.4% of the whole result (its Frobenius norm) was measured on an H100;
// that is 7e-4 of the magnitudes, and it grows with the root of the number of products. fast8 is four times that of 8192. Sums of equal
// signs would lose 5%.
const (
	slow8 = 1e-4
	fast8 = 4e-3
)

// checkProduct8 checks some elements of y, whose rows are the lines of a and whose columns are those of b.
func checkProduct8(y tensor.Tensor, a, b *factor8, most float64, of func(f *factor8, line int) []float64) (failed error) {
	rows, cols := a.lines(), b.lines()
	for _, i := range []int{0, rows / 2, rows - 1} {
		for _, j := range []int{0, cols / 2, cols - 1} {
			sum, size, u, v := 0., 0., of(a, i), of(b, j)
			for k := range u {
				sum, size = sum+u[k]*v[k], size+math.Abs(u[k]*v[k])
			}
			if got := part(y, i*cols+j, 1)[0]; !(math.Abs(got-sum) <= math.Abs(sum)/128+most*size) {
				failed = errors.Join(failed, fmt.Errorf("element %d, %d is %.6g instead of %.6g", i, j, got, sum))
			}
		}
	}
	return failed
}

// checkLinear8 checks some elements of y = x·wᵀ and of the gradients dx and dw, where the gradient of y is g.
func checkLinear8(s ops.Float8, y, x, w, g, dx, dw tensor.Tensor) error {
	wrong := func(what string, err error) error {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return err
	}
	of := (*factor8).line
	err := wrong("output", checkProduct8(y, scaled8(x, kernel.E4M3, s, false), scaled8(w, kernel.E4M3, s, false), fast8, of))
	err = errors.Join(err,
		wrong("gradient of x", checkProduct8(dx, scaled8(g, kernel.E5M2, s, false), scaled8(w, kernel.E4M3, s, true), slow8, of)))
	if s == ops.PerRow { // this one is a product of bfloat16
		of = (*factor8).raw
	}
	return errors.Join(err,
		wrong("gradient of w", checkProduct8(dw, scaled8(g, kernel.E5M2, s, true), scaled8(x, kernel.E4M3, s, true), slow8, of)))
}
