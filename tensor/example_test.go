package tensor_test

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Fit y = 2x + 1 by gradient descent.
func Example() {
	dev := cpu.New(1)
	defer dev.Close()
	weight, bias := tensor.NewParam(tensor.Constant(0), 1, 1), tensor.NewParam(tensor.Constant(0), 1)
	for _, p := range []*tensor.Param{weight, bias} {
		p.Make(dev, tensor.Float32, 0)
	}
	x := tensor.FromSlice([]float32{-2, -1, 0, 1, 2}, 5, 1)
	y := tensor.FromSlice([]float32{-3, -1, 1, 3, 5}, 5, 1)

	tape := tensor.NewTape(dev)
	for range 100 {
		loss := ops.MSE(tensor.Linear(tape.Input(x), tape.Use(weight), tape.Use(bias)), y)
		tape.Backward(loss)
		for _, p := range []*tensor.Param{weight, bias} { // package optim has better ones
			value, grad := tensor.Data[float32](p.Value), tensor.Data[float32](p.Grad)
			for i := range value {
				value[i] -= 0.1 * grad[i]
			}
			p.Consume()
		}
		tape.Reset()
	}
	fmt.Printf("y = %.3f x + %.3f\n", weight.Value.Item(), bias.Value.Item())
	// Output: y = 2.000 x + 1.000
}

// softsign is x / (1 + |x|). Its rule needs the input, so Saves has bit 0.
var softsign = cpu.Register(tensor.Register(tensor.OpSpec{
	Name:  "softsign",
	Saves: 1,
	VJP: func(t *tensor.Tape, n *tensor.Node, _ uint8) {
		d := n.In(0).Abs().Affine(1, 1) // 1 + |x|; operations inside a rule are not recorded
		t.AddGrad(n, 0, n.Grad().Div(d.Square()))
	},
}), [tensor.NumDTypes]tensor.Kernel{tensor.Float32: softsignKernel()}) // 16-bit floats are computed through it

func softsignKernel() tensor.Kernel {
	elements := func(a *tensor.Args) int { return a.Len[0] }
	cost := func(*tensor.Args) int { return 1 }
	return cpu.Parallel(elements, cost, func(a *tensor.Args, lo, hi int) {
		dst, x := tensor.Operand[float32](a, 0), tensor.Operand[float32](a, 1)
		for i := lo; i < hi; i++ {
			dst[i] = x[i] / (1 + max(x[i], -x[i]))
		}
	})
}

// Softsign is what a package with a new operation exports.
func Softsign(x tensor.Tensor) tensor.Tensor {
	tape := x.Tape()
	y := tape.NewLike(x)
	tape.Args(softsign, x.DType()).Out(y).In(x)
	tape.Launch()
	tape.Record(softsign, y, x)
	return y
}

func ExampleRegister() {
	dev := cpu.New(1)
	defer dev.Close()
	p := tensor.NewParam(tensor.Constant(0), 3)
	p.SetValue(tensor.FromSlice([]float32{-3, 0, 1}, 3))
	tape := tensor.NewTape(dev)
	y := tape.Keep(Softsign(tape.Use(p)))
	tape.Backward(y.Sum())
	fmt.Println(y)
	fmt.Println(p.Grad)
	// Output:
	// float32[3] [-0.75 0 0.5]
	// float32[3] [0.0625 1 0.25]
}

// reverseGradient is the identity, whose gradient is −1 times the true one (domain-adversarial training).
type reverseGradient struct{}

func (reverseGradient) Name() string { return "reverse_gradient" }

func (reverseGradient) Forward(_ *tensor.Ctx, in []tensor.Tensor) tensor.Tensor { return in[0] }

func (reverseGradient) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g.Neg()
}

func ExampleTape_Apply() {
	dev := cpu.New(1)
	defer dev.Close()
	p := tensor.NewParam(tensor.Constant(3), 2)
	p.Make(dev, tensor.Float32, 0)
	tape := tensor.NewTape(dev)
	x := tape.Apply(reverseGradient{}, tape.Use(p))
	tape.Backward(x.Square().Sum())
	fmt.Println(p.Grad)
	// Output: float32[2] [-6 -6]
}

// A checkpointed part of a model keeps nothing but its result, and is run again in Backward.
func ExampleTape_Checkpoint() {
	dev := cpu.New(1)
	defer dev.Close()
	p := tensor.NewParam(tensor.Constant(0.5), 1000)
	p.Make(dev, tensor.Float32, 0)
	runs := 0
	block := func(in ...tensor.Tensor) tensor.Tensor {
		runs++
		return in[0].Exp().Tanh().Square()
	}
	tape := tensor.NewTape(dev)
	y := tape.Checkpoint(block, tape.Use(p))
	live, _ := tape.Memory()
	tape.Backward(y.Sum())
	fmt.Printf("%d bytes, %d runs, gradient %.4f\n", live, runs, tensor.Floats(p.Grad)[0])
	// Output: 4096 bytes, 2 runs, gradient 0.4212
}

// Try makes an error of a misuse.
func ExampleTry() {
	dev := cpu.New(1)
	defer dev.Close()
	tape := tensor.NewTape(dev)
	x, y := tape.Input(tensor.New(dev, tensor.Float32, 2, 3)), tensor.New(dev, tensor.Float32, 4, 5)
	err := tensor.Try(func() { tensor.MatMul(x, y, false, false) }) // also says at which line
	fail, _ := errors.AsType[*tensor.Failure](err)
	fmt.Println(fail.Op, fail.Shapes, fail.Err)
	// Output: matmul [float32[2,3] float32[4,5]] dimension 1 of the first is 3, dimension 0 of the second is 4
}
