package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Products of queries and keys depend on their distance alone: the same query and the same key at positions p and q.
func TestRotaryDependsOnDistance(t *testing.T) {
	const head, positions = 8, 40
	for _, interleaved := range []bool{false, true} {
		r := nn.NewRotary(head, positions)
		r.Base, r.Interleaved = 100, interleaved
		tape := tensor.NewTape(cpu.New(1), tensor.NoGrad())
		x := make([]float64, 2*head) // a query and a key
		for i := range x {
			x[i] = math.Sin(float64(3*i + 1))
		}
		at := func(position, which int) []float64 {
			in := tape.Input(tensor.FromSlice(x[which*head:][:head], 1, 1, head))
			return tensor.Floats(r.Forward(in, position))
		}
		score := func(p, q int) (s float64) {
			query, key := at(p, 0), at(q, 1)
			for i := range query {
				s += query[i] * key[i]
			}
			return s
		}
		assert.InDeltaSlice(t, x[:head], at(0, 0), 0, "position 0 is not turned")
		for distance := range 20 {
			want := score(distance, 0)
			for q := range positions - distance {
				require.InDelta(t, want, score(q+distance, q), 1e-13)
			}
		}
		assert.Greater(t, math.Abs(score(1, 0)-score(2, 0)), 0.01)
	}
}

// A sequence in two parts, as a cache cuts it, is the sequence.
func TestRotaryFirst(t *testing.T) {
	const head, time = 6, 7
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
		r := nn.NewRotary(head, time)
		tape := tensor.NewTape(cpu.New(2))
		x := tensor.New(cpu.New(1), dtype, 2, time, 2*head)
		tensor.UniformInit(-1, 1).Fill(x, 1, 0)
		in := tape.Input(x)
		whole := r.Forward(in, 0)
		parts := tensor.Concat(1, r.Forward(in.Slice(1, 0, 3), 0), r.Forward(in.Slice(1, 3, time), 3))
		assert.Equal(t, tensor.Floats(whole), tensor.Floats(parts), dtype)
		err := tensor.Try(func() { r.Forward(in, 1) })
		assert.ErrorContains(t, err, "positions 1 to 7 of 7")
	}
}

// A rank's part of each sequence is turned as in the whole.
func TestRotaryOfPartsOfSequences(t *testing.T) {
	const head, time = 4, 6
	r := nn.NewRotary(head, time)
	x := tensor.New(cpu.New(1), tensor.Float64, 2, time, head)
	tensor.UniformInit(-1, 1).Fill(x, 1, 0)
	turn := func(x tensor.Tensor) []float64 {
		return tensor.Floats(r.Forward(tensor.NewTape(cpu.New(1)).Input(x), 0))
	}
	whole, v := turn(x), tensor.Floats(x)
	for _, c := range []struct {
		at   []int
		runs tensor.Spans
	}{{[]int{0, 1}, tensor.Spans{}}, {[]int{2, 3, 4, 5}, tensor.Spans{First: 2}}, {[]int{1, 3, 4}, tensor.Spans{First: 1, Break: 1, Skip: 1}},
		{[]int{0, 1, 5}, tensor.Spans{Break: 2, Skip: 3}}} {
		var mine, want []float64
		for b := range 2 {
			for _, p := range c.at {
				mine = append(mine, v[(b*time+p)*head:(b*time+p+1)*head]...)
				want = append(want, whole[(b*time+p)*head:(b*time+p+1)*head]...)
			}
		}
		c.runs.Total = time
		rows := tensor.Rows{Stride: 1, Total: 2, Seq: c.runs}
		assert.Equal(t, want, turn(tensor.FromSlice(mine, 2, len(c.at), head).WithRows(rows)))
	}
	far := tensor.FromSlice(v[:3*head], 1, 3, head).WithRows(tensor.Rows{Stride: 1, Total: 1, Seq: tensor.Spans{Total: 7, Break: 2, Skip: 4}})
	assert.ErrorContains(t, tensor.Try(func() { turn(far) }), "positions 0 to 6 of 6")
}

// The formula of Hugging Face's rope_type "llama3", by wave lengths.
func TestLlama3Scaling(t *testing.T) {
	const factor, low, high, original = 8.0, 1.0, 4.0, 8192
	r := nn.NewRotary(128, 2)
	r.Base = 500_000
	sines := func() []float64 { // of the angles a position
		one := tensor.FromSlice(make([]float64, 128), 1, 1, 128)
		for i := range 64 {
			tensor.Data[float64](one)[i] = 1
		}
		return tensor.Floats(r.Forward(tensor.NewTape(cpu.New(1)).Input(one), 1))[64:]
	}
	r.Scaling = nn.RotaryScaling{Type: "llama3", Factor: factor, Low: low, High: high, Original: original}
	scaled := sines()
	kinds := map[string]int{}
	for i := range 64 {
		angle := math.Pow(500_000, -float64(i)/64)
		wave, want := 2*math.Pi/angle, 0.0
		switch {
		case wave < original/high:
			want = angle
			kinds["short"]++
		case wave > original/low:
			want = angle / factor
			kinds["long"]++
		default:
			smooth := (original/wave - low) / (high - low)
			want = (1-smooth)*angle/factor + smooth*angle
			kinds["between"]++
		}
		assert.InEpsilon(t, math.Sin(want), scaled[i], 1e-14)
	}
	assert.Len(t, kinds, 3)
	r = nn.NewRotary(4, 9)
	r.Scaling = nn.RotaryScaling{Type: "linear", Factor: 2}
	x := tensor.NewTape(cpu.New(1)).Input(tensor.FromSlice([]float64{1, 2, 3, 4}, 1, 1, 4))
	assert.Equal(t, tensor.Floats(nn.NewRotary(4, 9).Forward(x, 3)), tensor.Floats(r.Forward(x, 6)))
}

func TestRotaryErrors(t *testing.T) {
	for _, c := range [][2]int{{0, 4}, {5, 4}, {4, 0}} {
		assert.ErrorContains(t, tensor.Try(func() { nn.NewRotary(c[0], c[1]) }), "needs an even number of features")
	}
	x := tensor.NewTape(cpu.New(1)).Input(tensor.New(cpu.New(1), tensor.Float32, 2, 3, 10))
	assert.ErrorContains(t, tensor.Try(func() { nn.NewRotary(4, 8).Forward(x, 0) }),
		"rotary float32[2,3,10], float32[8,4]: the input's 10 features are not heads of the table's 4")
	dynamic := nn.NewRotary(2, 8)
	dynamic.Scaling.Type = "dynamic"
	assert.ErrorContains(t, tensor.Try(func() { dynamic.Forward(x, 0) }),
		`nn.Rotary: rotary positions of type "dynamic": there are linear, llama3 and yarn`)
	assert.ErrorContains(t, tensor.Try(func() { nn.NewRotary(2, 8).Forward(x, -1) }), "positions -1 to 1 of 8")
}
