package measure

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// scalings are those of 8-bit floats, with the names that torch_gpu.py has for them.
var scalings = []struct {
	name string
	s    ops.Float8
}{{"per tensor", ops.PerTensor}, {"per row", ops.PerRow}}

// float8s are m, n and k of products of 8-bit floats, and the last is rows, outputs and inputs of a Linear.
var float8s = [][3]int{{4096, 4096, 4096}, {8192, 8192, 8192}, {32768, 768, 3072}, {8192, 4096, 4096}}

// measureFloat8 measures products of 8-bit floats, as a forward pass has them, and steps of a Linear: scales, rounding, the product and
// both gradients. A host has no such products, only the Linear.
func measureFloat8(m *meter) error {
	shapes := float8s
	if m.small {
		shapes = [][3]int{{32, 64, 48}, {32, 48, 64}}
	}
	last := len(shapes) - 1
	var failed error
	for _, s := range shapes[:last] {
		for _, scaling := range scalings {
			if m.dev.Kernels()[ops.OpScaledMM][tensor.BFloat16] != nil {
				failed = errors.Join(failed, m.float8Product(s, scaling.name, scaling.s))
			}
		}
	}
	for _, scaling := range scalings {
		failed = errors.Join(failed, m.float8Step(shapes[last], scaling.name, scaling.s))
	}
	return failed
}

// float8Product measures x·wᵀ of codes.
func (m *meter) float8Product(shape [3]int, name string, s ops.Float8) error {
	rows, out, in := shape[0], shape[1], shape[2]
	x, w := m.uneven(1, rows, in), m.uneven(2, out, in)
	fx, fw := scaled8(x, kernel.E4M3, s, false), scaled8(w, kernel.E4M3, s, false)
	y := tensor.New(m.dev, tensor.BFloat16, rows, out)
	cx, sx := m.quantized(x, fx)
	cw, sw := m.quantized(w, fw)
	a := &tensor.Args{Op: ops.OpScaledMM, DType: tensor.BFloat16, Outs: 1, Dim: [6]int{rows, out, in}}
	a.I[0], a.I[1], a.I[3] = int(kernel.E4M3), int(kernel.E4M3), 1
	if s == ops.PerRow {
		a.I[2] = 1
	}
	product := func() { m.launch(a, y, cx, cw, sx, sw) }
	check := func() error {
		product()
		return checkProduct8(y, fx, fw, fast8, (*factor8).line)
	}
	return m.add(fmt.Sprintf("%dx%dx%d %s", rows, out, in, name), "TFLOP/s", 2e-12*float64(rows)*float64(out)*float64(in), check, product)
}

// uneven makes a matrix of random numbers whose rows differ in size, so that a product with the scales of other rows is wrong.
func (m *meter) uneven(key uint64, rows, cols int) tensor.Tensor {
	tape := tensor.NewTape(m.dev, tensor.NoGrad())
	defer tape.Reset()
	sizes := m.uniform(key+3, 0.25, tensor.BFloat16, rows, 1)
	return m.kept(tape.Input(m.random(key, tensor.BFloat16, rows, cols)).Mul(tape.Input(sizes)))
}

// quantized is the codes of x and the inverse scales, on the device.
func (m *meter) quantized(x tensor.Tensor, f *factor8) (codes, inverse tensor.Tensor) {
	codes, inverse = tensor.New(m.dev, tensor.Uint8, x.Dim(0), x.Dim(1)), tensor.New(m.dev, tensor.Float32, len(f.scales))
	a := &tensor.Args{Op: ops.OpQuantize8, DType: x.DType(), Outs: 3, Dim: [6]int{x.Dim(0), x.Dim(1)}, I: [8]int{int(f.format)}}
	if len(f.scales) > 1 {
		a.I[1] = 1
	}
	m.launch(a, codes, tensor.Tensor{}, inverse, x)
	return codes, inverse
}

// float8Step measures a Linear without a bias: its output and both gradients.
func (m *meter) float8Step(shape [3]int, name string, s ops.Float8) error {
	rows, out, in := shape[0], shape[1], shape[2]
	param := func(key uint64, rows, cols int) *tensor.Param {
		p := tensor.NewParam(tensor.Constant(0), rows, cols)
		p.SetValue(m.uneven(key, rows, cols))
		return p
	}
	x, w, g := param(1, rows, in), param(2, out, in), m.uneven(3, rows, out)
	tape := tensor.NewTape(m.dev)
	forward := func() tensor.Tensor { return ops.Float8Linear(tape.Use(x), tape.Use(w), s) }
	step := func() {
		x.Consume() // the gradients are overwritten, not added to
		w.Consume()
		tape.BackwardFrom([]tensor.Tensor{forward()}, []tensor.Tensor{tape.Input(g)})
		tape.Reset()
	}
	check := func() error {
		y := m.kept(forward())
		tape.Reset()
		step()
		return checkLinear8(s, y, x.Value, w.Value, g, x.Grad, w.Grad)
	}
	return m.add(fmt.Sprintf("Linear of %d rows, %d to %d %s, and backward", rows, in, out, name), "TFLOP/s",
		6e-12*float64(rows)*float64(out)*float64(in), check, step)
}
