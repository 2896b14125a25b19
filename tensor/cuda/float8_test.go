package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

// Numbers of 16 bits, those halfway between two of 8 bits, and their neighbours round as on the CPU.
func TestRound8(t *testing.T) {
	dev := device(t)
	var xs []float64
	for i := range 1 << 16 {
		v := math.Float32frombits(uint32(i) << 16)
		xs = append(xs, float64(v), float64(math.Nextafter32(v, 0)), float64(math.Float32frombits(uint32(i)<<16|0x8000)))
	}
	x := values(tensor.Float32, len(xs), func(i int) float64 { return xs[i] })
	for format := range 2 {
		launch{op: tensor.OpRound8, d: tensor.Float32, outs: 1, x: []operand{blank(tensor.Float32, len(xs)), x},
			set: func(a *tensor.Args) { a.I[0] = format }}.agree(t, dev, exact)
	}
}

// A product of 8-bit floats and its gradients are those of the CPU.
func TestFloat8Linear(t *testing.T) {
	r := rng(5)
	xs, ws, gs := random(r, tensor.Float32, 32*48), random(r, tensor.Float32, 64*48), random(r, tensor.Float32, 32*64)
	run := func(dev tensor.Device, s tensor.Float8) (out [3][]float64) {
		param := func(o operand, rows, cols int) *tensor.Param {
			p := tensor.NewParam(tensor.Constant(0), rows, cols)
			p.Make(dev, tensor.BFloat16, 0)
			halves := make([]tensor.BF16, o.n())
			for i := range halves {
				halves[i] = tensor.ToBF16(float32(o.at(i)))
			}
			tensor.Copy(p.Value, tensor.ToDevice(dev, tensor.FromSlice(halves, rows, cols)))
			return p
		}
		x, w, g := param(xs, 32, 48), param(ws, 64, 48), param(gs, 32, 64)
		tape := tensor.NewTape(dev)
		defer tape.Close()
		y := tensor.Float8Linear(tape.Use(x), tape.Use(w), s)
		out[0] = tensor.Floats(tensor.ToHost(y))
		tape.BackwardFrom([]tensor.Tensor{y}, []tensor.Tensor{tape.Input(g.Value)})
		out[1], out[2] = tensor.Floats(tensor.ToHost(x.Grad)), tensor.Floats(tensor.ToHost(w.Grad))
		return out
	}
	cpu := tensor.NewCPU(1)
	defer cpu.Close()
	dev := device(t)
	for _, s := range []tensor.Float8{tensor.PerTensor, tensor.PerRow} {
		want, got := run(cpu, s), run(dev, s)
		for i := range want {
			for k, v := range want[i] {
				require.InDelta(t, v, got[i][k], 0x1p-7*max(math.Abs(v), 1), "scaling %d, result %d, element %d", s, i, k)
			}
		}
	}
}
