package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
)

// A part of a gradient is refused by all that could compute with it as if it were the whole, and ToLocal hands it out.
func TestPartOfGradient(t *testing.T) {
	for _, name := range []string{"cut", "sharded"} {
		p := NewParam(Constant(2), 6, 2)
		if name == "cut" {
			p.Place(axis(1, 2), layout.Division{})
		}
		p.Make(hostDevice, Float64, 1)
		if name == "sharded" { // as fsdp does
			p.Local = p.Value.View(12).Range(3, 6)
			p.Shard(3, 6)
		}
		tape := NewTape(hostDevice)
		tape.Backward(tape.Use(p).Scale(2).Sum())
		g := p.Grad
		copied := New(hostDevice, Float64, g.Shape().Dims...)
		for how, read := range map[string]func(){
			"Data":   func() { Data[float64](g) },
			"Floats": func() { Floats(g) },
			"Bytes":  func() { g.Bytes() },
			"view":   func() { Floats(g.View(g.Len())) },
			"range":  func() { g.View(g.Len()).Range(0, 1).Item() },
			"copy":   func() { Copy(copied, g) },
			"slice":  func() { Floats(g.Slice(0, 0, 1)) },
			"cast":   func() { g.Cast(Float32) },
			"input":  func() { NewTape(hostDevice, NoGrad()).Input(g) },
			"op":     func() { tape := NewTape(hostDevice, NoGrad()); tape.New(Float64, g.Shape().Dims...).Mul(g) },
		} {
			assert.ErrorContains(t, Try(read), "a gradient's elements on this rank alone", "%s, %s", name, how)
		}
		require.Equal(t, 2.0, Floats(g.ToLocal())[0], name)
		Data[float64](g.ToLocal().View(g.Len()))[0] = 7
		require.Equal(t, 7.0, Floats(p.Grad.ToLocal())[0], name)
		require.Contains(t, g.String(), "7 2", name)
		one := New(hostDevice, Float64, 1)
		require.Equal(t, one, one.ToLocal(), "what is not a part")
	}
}

// A gradient that its owner sums behind the last microbatch is refused before: what the host changes then, it changes of own rows.
func TestGradientOfSomeMicrobatches(t *testing.T) {
	p := NewParam(Constant(2), 3)
	over := axis(1, 2).Axes
	p.Make(hostDevice, Float64, 1)
	require.NoError(t, p.Own(fills{p}, over))
	tape := NewTape(hostDevice)
	x := FromSlice([]float64{1, 1, 1, 1, 1, 1}, 2, 3).WithRows(Rows{Stride: 1, Total: 4, Over: over})
	backward := func(o ...BackwardOption) { tape.Backward(tape.Input(x).Mul(tape.Use(p)).Sum(), o...) }
	backward(More())
	for range 2 {
		assert.ErrorContains(t, Try(func() { Data[float64](p.Grad)[0] = 0 }), "add up behind the last microbatch")
		require.Equal(t, 2.0, Floats(p.Grad.ToLocal())[0])
		backward()
		require.Equal(t, 4.0, Floats(p.Grad)[0])
		p.Consume()
		backward(More())
	}
}

// fills is an owner that sums behind the last microbatch.
type fills struct{ p *Param }

func (fills) BeforeUse(*Param, Phase)                   {}
func (fills) BackwardBegin(bool)                        {}
func (fills) GradReady(_ *Param, after Pending) Pending { return after }
func (fills) Changed(*Param)                            {}
func (f fills) BackwardDone(last bool) error {
	if last {
		f.p.FillGrad()
	}
	return nil
}
