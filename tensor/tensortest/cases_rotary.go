package tensortest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const (
	rotaryHead      = 6
	rotaryPositions = 9
)

// angle is the angle of feature pair i at a position.
func angle(position, i int) float64 {
	return float64(position) * math.Pow(100, -float64(2*i)/rotaryHead)
}

// rotaryTable returns the cosines and sines for x.
func rotaryTable(x tensor.Tensor) tensor.Tensor {
	v := make([]float64, 0, rotaryPositions*rotaryHead)
	for p := range rotaryPositions {
		for _, f := range []func(float64) float64{math.Cos, math.Sin} {
			for i := range rotaryHead / 2 {
				v = append(v, f(angle(p, i)))
			}
		}
	}
	d := tensor.Float32
	if x.DType() == tensor.Float64 {
		d = tensor.Float64
	}
	return x.Tape().Input(Of(d, v, rotaryPositions, rotaryHead))
}

// rotated multiplies pairs, as complex numbers.
func rotated(x Array, o ops.RotaryOptions) Array {
	y := Array{x.Dims, append([]float64(nil), x.V...)}
	for at := range x.V {
		head, i := at/rotaryHead*rotaryHead, at%rotaryHead
		first, second := head+i, head+i+rotaryHead/2
		if o.Interleaved {
			first, second = head+2*i, head+2*i+1
		}
		if i < rotaryHead/2 {
			sin, cos := math.Sincos(angle(o.First+at/x.Dims[2]%x.Dims[1], i))
			z := complex(x.V[first], x.V[second]) * complex(cos, sin)
			y.V[first], y.V[second] = real(z), imag(z)
		}
	}
	return y
}

func rotaryCases() (cases []ValueCase) {
	for _, o := range []ops.RotaryOptions{{}, {First: 4}, {Interleaved: true, First: 1}} {
		cases = append(cases, ValueCase{Name: fmt.Sprintf("rotary %+v", o),
			Dims: [][][]int{{{2, 5, 12}}, {{1, 1, 6}}, {{3, 4, 18}}, {{0, 3, 6}}, {{2, 0, 6}}},
			F:    func(x []tensor.Tensor) tensor.Tensor { return ops.Rotary(x[0], rotaryTable(x[0]), o) },
			Want: func(x []Array) Array { return rotated(x[0], o) }})
	}
	return cases
}

func rotaryGrads() map[tensor.Op][]GradCase {
	on := func(name string, o ops.RotaryOptions) GradCase {
		return GradCase{Name: name, Shapes: func(r *rand.Rand) [][]int {
			return [][]int{{1 + r.IntN(3), 1 + r.IntN(5), rotaryHead * (1 + r.IntN(3))}}
		},
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.Rotary(x[0], rotaryTable(x[0]), o)
			}}
	}
	return map[tensor.Op][]GradCase{
		ops.OpRotary: {on("halves", ops.RotaryOptions{First: 2}), on("neighbours", ops.RotaryOptions{Interleaved: true})},
	}
}
