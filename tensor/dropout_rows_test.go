package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two views of a batch behind each other, and steps in front of the rows, have the masks of one rank, also where they are cut and turned.
func TestDropoutOfRowsElsewhere(t *testing.T) {
	const total, width = 7, 5
	forms := map[string]func(x Tensor) Tensor{
		"two views":          func(x Tensor) Tensor { return Concat(0, x, x.Scale(2)) },
		"time first":         func(x Tensor) Tensor { return x.Reshape(-1, width, 1).Permute(1, 0, 2) },
		"tokens, time first": func(x Tensor) Tensor { return x.Reshape(-1, width, 1).Permute(1, 0, 2).Reshape(-1, 1) },
		"features first":     func(x Tensor) Tensor { return x.Transpose(0, 1) },
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			run := func(first, stride, n int) (y, grad [][]float64) { // by row
				tape := NewTape(hostDevice, Seed(3))
				defer tape.Close()
				x := New(hostDevice, Float64, n, width)
				Constant(1).Fill(x, 0, 0)
				in := tape.Leaf(x.WithRows(Rows{First: first, Stride: stride, Total: total, Over: 1}))
				h := form(in)
				out := h.Dropout(0.4, 9)
				place, values := h.hdr().at.Rows(), Floats(out)
				right := 1
				for d := h.Rank() - 1; place.Dims()>>d == 0; d-- {
					right *= h.Dim(d)
				}
				y, grad = make([][]float64, n), make([][]float64, n)
				for i, v := range values {
					row := i / right % n
					y[row] = append(y[row], v)
				}
				tape.Backward(AsPart(out.Sum(), 1))
				for i, v := range Floats(tape.GradOf(in)) {
					grad[i/width] = append(grad[i/width], v)
				}
				return y, grad
			}
			want, wantGrad := run(0, 1, total)
			for _, part := range [][3]int{{0, 1, 3}, {3, 1, 1}, {4, 1, 3}, {1, 2, 3}, {0, 3, 3}} {
				got, grad := run(part[0], part[1], part[2])
				for i := range part[2] {
					require.Equal(t, want[part[0]+i*part[1]], got[i], part)
					require.Equal(t, wantGrad[part[0]+i*part[1]], grad[i], part)
				}
			}
		})
	}
	masks := func(rows int, form func(x Tensor) Tensor) []float64 {
		tape := NewTape(hostDevice, Seed(3))
		defer tape.Close()
		x := New(hostDevice, Float64, rows, width)
		Constant(1).Fill(x, 0, 0)
		return Floats(form(tape.Input(x.WithRows(Rows{Stride: 1, Total: rows, Over: 1}))).Dropout(0.4, 9))
	}
	require.Equal(t, masks(2*total, func(x Tensor) Tensor { return x }), masks(total, func(x Tensor) Tensor { return Concat(0, x, x) }),
		"views have masks of their own")
	tape := NewTape(hostDevice)
	defer tape.Close()
	x := tape.Input(New(hostDevice, Float64, 4, 2).WithRows(Rows{Stride: 1, Total: total, Over: 1}))
	require.ErrorContains(t, Try(func() { x.Slice(0, 1, 3).Dropout(0.5, 1) }), "which are not known here")
}
