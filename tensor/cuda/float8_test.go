package cuda_test

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// 16-bit numbers halfway between two 8-bit ones, and their neighbours, round as on the CPU.
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

// A product of 8-bit floats and its gradients equal those of the CPU, with cuBLASLt and without. cuBLASLt sums with fewer bits in the
// forward pass, and only there.
func TestFloat8Linear(t *testing.T) {
	r := rng(5)
	xs, ws, gs := random(r, tensor.Float32, 32*48), random(r, tensor.Float32, 64*48), random(r, tensor.Float32, 32*64)
	run := func(dev tensor.Device, d tensor.DType, s tensor.Float8) (out [3][]float64) {
		param := func(o operand, rows, cols int) *tensor.Param {
			p := tensor.NewParam(tensor.Constant(0), rows, cols)
			p.Make(dev, d, 0)
			host := values(d, o.n(), o.at)
			x := tensor.New(dev, d, rows, cols)
			dev.Copy(x.Ptr(), unsafe.Pointer(unsafe.SliceData(host.bytes)), len(host.bytes), dev.Queue(0))
			tensor.Copy(p.Value, x)
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
	for _, plain := range []bool{false, true} {
		dev := device(t)
		cuda.Plain(dev, plain)
		for d, eps := range map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.BFloat16: 0x1p-7, tensor.Float16: 0x1p-10} {
			for _, s := range []tensor.Float8{tensor.PerTensor, tensor.PerRow} {
				want, got := run(cpu, d, s), run(dev, d, s)
				worst := 0.0
				for i := range want {
					for k, v := range want[i] {
						eps := eps
						if i == 0 && !plain {
							worst = max(worst, math.Abs(v-got[i][k])/max(math.Abs(v), 1))
							eps += 0x1p-12 // fast accumulation
						}
						require.InDelta(t, v, got[i][k], eps*max(math.Abs(v), 1), "%v, scaling %d, result %d, element %d", d, s, i, k)
					}
				}
				if d == tensor.Float32 && !plain && !emu.OnGPU() {
					require.Greater(t, worst, eps, "sums of the forward product have few bits, those of gradients have not")
				}
			}
		}
		if plain || !emu.OnGPU() {
			require.Equal(t, plain, len(cuda.Compiled(dev, "numbers8")) > 0, "what computed it")
		}
	}
}
