package orthogonal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The columns of a tall matrix, and the rows of a wide one, get lengths near 1 and products near 0. Signs stay.
func TestReplace(t *testing.T) {
	for _, c := range []struct{ rows, cols int }{{5, 3}, {3, 5}, {4, 4}, {1, 7}} {
		for _, half := range []bool{false, true} {
			t.Run(fmt.Sprint(c, half), func(t *testing.T) {
				dev := cpu.New(1)
				tape := tensor.NewTape(dev, tensor.NoGrad())
				defer tape.Close()
				x := tensor.New(dev, tensor.Float64, c.rows*c.cols)
				tensor.NormalInit(0, 1).Fill(x, 3, 0)
				before := tensor.Floats(x)
				Replace(tape, x, c.rows, c.cols, 3, half)
				m := tape.Input(x.View(c.rows, c.cols))
				gram := tensor.MatMul(m, m, c.rows > c.cols, c.rows <= c.cols)
				along := 0.0
				for i, v := range tensor.Floats(x) {
					along += v * before[i]
				}
				assert.Positive(t, along)
				n := gram.Dim(0)
				for i, v := range tensor.Floats(gram) {
					if i/n == i%n {
						assert.InDelta(t, 9, v, 9*0.55)
					} else {
						assert.InDelta(t, 0, v, 9*0.45)
					}
				}
			})
		}
	}
}
