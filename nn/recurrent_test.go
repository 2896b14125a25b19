package nn_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// sequence is one result of PyTorch in testdata/recurrent.json.
type sequence struct {
	Dims           []int
	Hidden, Layers int
	Both           bool
	LSTM           bool
	States         bool
	Y              []float64
	Ends           [][]float64
	Names          []string
	Grads          map[string][]float64
}

// recurrentLayer is a layer, and what it does from states.
type recurrentLayer struct {
	nn.Layer
	from func(x nn.T, states [2]nn.T) (y nn.T, ends []nn.T)
}

func (c *sequence) layer() recurrentLayer {
	o := nn.RecurrentOptions{Layers: c.Layers, Bidirectional: c.Both}
	if c.LSTM {
		l := nn.NewLSTM(c.Dims[2], c.Hidden, o)
		return recurrentLayer{l, func(x nn.T, s [2]nn.T) (nn.T, []nn.T) {
			y, h, c := l.ForwardFrom(x, s[0], s[1])
			return y, []nn.T{h, c}
		}}
	}
	g := nn.NewGRU(c.Dims[2], c.Hidden, o)
	return recurrentLayer{g, func(x nn.T, s [2]nn.T) (nn.T, []nn.T) {
		y, h := g.ForwardFrom(x, s[0])
		return y, []nn.T{h}
	}}
}

// storedNames are the names that files have for parameters.
func storedNames(ps nn.Params) (names []string) {
	for _, p := range ps {
		names = append(names, p.Stored()[0].Name)
	}
	return names
}

func sequences(t *testing.T) (cases map[string]*sequence) {
	b, err := os.ReadFile("testdata/recurrent.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &cases))
	return cases
}

// weighed is the sum of x's elements times value(salt).
func weighed(x nn.T, salt int) nn.T {
	g := tensor.New(host, x.DType(), x.Shape().Dims...)
	value(g, salt, 1)
	return x.Mul(x.Tape().Input(g)).Sum()
}

func TestRecurrentMatchesTorch(t *testing.T) {
	for name, want := range sequences(t) {
		for _, d := range dtypes[:2] {
			t.Run(name+"/"+d.dtype.String(), func(t *testing.T) {
				layer := want.layer()
				ps := nn.Init(layer.Layer, host, d.dtype, 1)
				fill(ps)
				require.Equal(t, want.Names, storedNames(ps))
				x, tape := input(d.dtype, 1, 2, want.Dims...), tensor.NewTape(host)
				leaves, states := []*tensor.Param{x}, [2]nn.T{}
				for k := range len(want.Ends) {
					if !want.States {
						break
					}
					s := input(d.dtype, 3+k, 1, len(ps)/4, want.Dims[0], want.Hidden)
					s.SetName([]string{"h", "c"}[k])
					leaves, states[k] = append(leaves, s), tape.Use(s)
				}
				y, ends := layer.from(tape.Use(x), states)
				loss := weighed(tape.Keep(y), 2)
				for i, e := range ends {
					near(t, want.Ends[i], tape.Keep(e), d.tol, "end")
					loss = loss.Add(weighed(e, 5+i))
				}
				tape.Backward(loss)
				near(t, want.Y, y, d.tol, "y")
				for i, name := range storedNames(ps) {
					near(t, want.Grads[name], ps[i].Grad, d.tol, name)
				}
				for _, p := range leaves {
					near(t, want.Grads[p.Name()], p.Grad, d.tol, p.Name())
				}
				require.Len(t, want.Grads, len(ps)+len(leaves))
			})
		}
	}
}

// A sequence in two parts is the sequence, if the state goes along.
func TestRecurrentGoesOn(t *testing.T) {
	for name, c := range sequences(t) {
		if c.Both || c.Dims[1] < 2 {
			continue
		}
		layer := c.layer()
		nn.Init(layer.Layer, host, tensor.Float64, 1)
		tape := tensor.NewTape(host, tensor.NoGrad())
		x := tape.Input(input(tensor.Float64, 1, 2, c.Dims...).Value)
		y, ends := layer.from(x, [2]nn.T{})
		a, state := layer.from(x.Slice(1, 0, 2), [2]nn.T{})
		b, last := layer.from(x.Slice(1, 2, c.Dims[1]), [2]nn.T(append(state, nn.T{})[:2]))
		assert.InDeltaSlice(t, tensor.Floats(y), tensor.Floats(tensor.Concat(1, a, b)), 1e-15, name)
		for i := range ends {
			assert.InDeltaSlice(t, tensor.Floats(ends[i]), tensor.Floats(last[i]), 1e-15, name)
		}
	}
}

// A part of each sequence is refused by words that say what to write.
func TestRecurrentRefusesPartsOfSequences(t *testing.T) {
	g := nn.NewGRU(2, 3, nn.RecurrentOptions{})
	nn.Init(g, host, tensor.Float64, 1)
	x := tensor.New(host, tensor.Float64, 2, 4, 2).WithRows(tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 4, Total: 8}})
	assert.ErrorContains(t, tensor.Try(func() { g.Forward(tensor.NewTape(host).Input(x)) }),
		"a part of each sequence, and a position needs all before it; gather them: x = tape.Apply(&autograd.AllGather{Group: g, Dim: 1}, x)")
}
