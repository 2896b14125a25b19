package measure

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// convolution is one of kernels of 3x3 with a margin of 1, and its operands on the host.
type convolution struct {
	n, in, out, size int
	x, w, b, g       []float64
}

// measureConv measures the second layer of the network of measureCNN, and a larger one of 16 bits.
func measureConv(m *meter) error {
	first := convolution{n: m.pick(128, 2), in: m.pick(32, 3), out: m.pick(64, 5), size: m.pick(14, 6)}
	second := convolution{n: m.pick(128, 2), in: m.pick(64, 4), out: m.pick(128, 6), size: m.pick(32, 6)}
	return errors.Join(first.measure(m, tensor.Float32), second.measure(m, tensor.BFloat16))
}

// measure measures forward, and the gradients of x and of w.
func (c *convolution) measure(m *meter, dtype tensor.DType) error {
	pictures := func(key uint64, channels int) tensor.Tensor {
		return m.random(key, dtype, c.n, channels, c.size, c.size)
	}
	x, w, b, g := pictures(1, c.in), m.random(2, dtype, c.out, c.in, 3, 3), m.random(3, dtype, c.out), pictures(4, c.out)
	y, dx, dw := m.kept(g), m.kept(x), m.kept(w)
	c.x, c.w, c.b, c.g = tensor.Floats(x), tensor.Floats(w), tensor.Floats(b), tensor.Floats(g)
	name := fmt.Sprintf("%v, %d pictures of %dx%d, %d to %d channels, ", dtype, c.n, c.size, c.size, c.in, c.out)
	work := 2e-12 * 9 * float64(len(c.g)*c.in)
	var failed error
	for _, k := range []struct {
		what     string
		op       tensor.Op
		operands []tensor.Tensor
		sum      func(i int) (u, v []float64)
	}{
		{"forward", ops.OpConv2d, []tensor.Tensor{y, x, w, b}, c.output},
		{"gradient of x", ops.OpConv2dGradX, []tensor.Tensor{dx, g, w, {}}, c.gradX},
		{"gradient of w", ops.OpConv2dGradW, []tensor.Tensor{dw, x, g}, c.gradW},
	} {
		a := &tensor.Args{Op: k.op, DType: dtype, Outs: 1, Dim: [6]int{c.n, c.in, c.size, c.size, c.out, 1},
			I: [8]int{3, 3, 1, 1, 1, 1, 1, 1}}
		call := func() { m.launch(a, k.operands...) }
		check := func() (failed error) {
			call()
			got := tensor.Floats(k.operands[0])
			for _, i := range []int{0, len(got) / 3, len(got)/2 + 1, len(got) - 1} {
				u, v := k.sum(i)
				if err := dot(dtype, got[i], len(u), func(j int) (float64, float64) { return u[j], v[j] }); err != nil {
					failed = errors.Join(failed, fmt.Errorf("element %d: %w", i, err))
				}
			}
			return failed
		}
		failed = errors.Join(failed, m.add(name+k.what, "TFLOP/s", work, check, call))
	}
	return failed
}

// pixel is an element of pictures with so many channels; 0 in the margin.
func (c *convolution) pixel(x []float64, channels, n, ch, row, col int) float64 {
	if min(row, col) < 0 || max(row, col) >= c.size {
		return 0
	}
	return x[((n*channels+ch)*c.size+row)*c.size+col]
}

// place is where element i of pictures with so many channels is.
func (c *convolution) place(i, channels int) (n, ch, row, col int) {
	return i / (c.size * c.size * channels), i / (c.size * c.size) % channels, i / c.size % c.size, i % c.size
}

// output returns the factors of element i of the output, and the bias with a factor of 1.
func (c *convolution) output(i int) (u, v []float64) {
	n, o, row, col := c.place(i, c.out)
	for j := range c.in * 9 {
		u = append(u, c.pixel(c.x, c.in, n, j/9, row+j%9/3-1, col+j%3-1))
		v = append(v, c.w[o*c.in*9+j])
	}
	return append(u, c.b[o]), append(v, 1)
}

// gradX returns the factors of element i of the gradient of x.
func (c *convolution) gradX(i int) (u, v []float64) {
	n, ch, row, col := c.place(i, c.in)
	for o := range c.out {
		for tap := range 9 {
			u = append(u, c.pixel(c.g, c.out, n, o, row+1-tap/3, col+1-tap%3))
			v = append(v, c.w[(o*c.in+ch)*9+tap])
		}
	}
	return u, v
}

// gradW returns the factors of element i of the gradient of w.
func (c *convolution) gradW(i int) (u, v []float64) {
	o, ch, tap := i/(9*c.in), i/9%c.in, i%9
	for n := range c.n {
		for p := range c.size * c.size {
			row, col := p/c.size, p%c.size
			u = append(u, c.pixel(c.g, c.out, n, o, row, col))
			v = append(v, c.pixel(c.x, c.in, n, ch, row+tap/3-1, col+tap%3-1))
		}
	}
	return u, v
}

func measureCNN(m *meter) error {
	batch := m.pick(128, 2)
	start := func(m *meter) *training { return m.cnn(batch) }
	_, err := m.addSteps("steps/s", 1, func() *training { return start(m) }, func(t *training) error { return m.likeCPU(t, start) })
	return err
}

// cnn is the network of examples/ddp-mnist -model cnn.
func (m *meter) cnn(batch int) *training {
	first, second, wide := m.pick(32, 2), m.pick(64, 3), m.pick(128, 8)
	same := ops.Conv2dOptions{Padding: [2]int{1, 1}}
	net := nn.Sequential{nn.NewConv2d(1, first, 3, same), nn.ReLU, nn.NewMaxPool2d(2), nn.NewConv2d(first, second, 3, same), nn.ReLU,
		nn.NewMaxPool2d(2), nn.Flatten{}, nn.NewLinear(second*7*7, wide), nn.ReLU, nn.NewLinear(wide, 10)}
	t := &training{name: fmt.Sprintf("batch %d", batch), params: nn.Init(net, m.dev, tensor.Float32, 1), tape: tensor.NewTape(m.dev)}
	t.opt = optim.NewSGD(t.params, optim.SGDConfig{LR: 0.01, Momentum: 0.9})
	t.x, t.y = m.random(1, tensor.Float32, batch, 1, 28, 28), m.whole(2, 10, batch)
	t.loss = func() tensor.Tensor { return nn.CrossEntropy(net.Forward(t.tape.Input(t.x)), t.y) }
	return t
}
