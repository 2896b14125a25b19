package tensor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/layout"
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
