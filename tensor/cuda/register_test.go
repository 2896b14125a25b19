package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// cube is x³ + c, a registered operation with kernels for CPU and CUDA.
var cube = cpu.Register(tensor.Register(tensor.OpSpec{Name: "cube", Saves: 1, VJP: cubeVJP}),
	[tensor.NumDTypes]tensor.Kernel{tensor.Float32: cubeKernel[float32], tensor.Float64: cubeKernel[float64],
		tensor.Int64: cubeKernel[int64]})

// One of these has a text that does not compile, the other a kernel that is not in its text.
var (
	broken  = tensor.Register(tensor.OpSpec{Name: "broken", Const: true})
	missing = tensor.Register(tensor.OpSpec{Name: "missing", Const: true})
)

const cubeSource = `
extern "C" __global__ void cube(T* y, const T* x, i64 n, W c) {
  for (i64 i = first_item(); i < n; i += all_threads()) {
    W v = widen(x[i]);
    y[i] = narrow<T>(v * v * v + c);
  }
}`

func init() {
	cuda.Register(cube,
		cuda.Source{File: "cube.cu", Text: cubeSource, Kernel: "cube", Types: floatTypes, Launch: func(l cuda.Launch, a *tensor.Args) {
			l.Operands(a, 2).Int(a.Len[0]).Float(a.F[0]).Spread(a.Len[0])
		}})
	nothing := func(l cuda.Launch, a *tensor.Args) { l.Grid(1, 32, 0) }
	one := []tensor.DType{tensor.Float32}
	cuda.Register(broken, cuda.Source{File: "broken.cu", Text: "\nthis is no kernel;", Kernel: "broken", Types: one, Launch: nothing})
	cuda.Register(missing, cuda.Source{File: "missing.cu", Text: cubeSource, Kernel: "sphere", Types: one, Launch: nothing})
}

func cubeKernel[T float32 | float64 | int64](_ tensor.Queue, a *tensor.Args) {
	y, x := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1)
	for i, v := range x {
		y[i] = v*v*v + T(a.F[0])
	}
}

func cubeVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	t.AddGrad(n, 0, n.Grad().Mul(n.In(0).Square().Scale(3)))
}

func cubeOf(x tensor.Tensor) tensor.Tensor {
	t := x.Tape()
	x = x.Reshape(x.Shape().Dims...) // makes a view with gaps contiguous
	y := t.NewLike(x)
	a := t.Args(cube, x.DType()).Out(y).In(x)
	a.F[0] = 0.25
	t.Launch()
	t.Record(cube, y, x)
	return y
}

// TestRegister: a registered operation has the values and gradients of the CPU, in all float types, for views, and for more elements than
// threads.
func TestRegister(t *testing.T) {
	dev, host := device(t), cpu.New(1)
	defer host.Close()
	c := tensortest.GradCase{F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return cubeOf(x[0]) }}
	for _, d := range floatTypes {
		tol := map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.Float64: 1e-12, tensor.BFloat16: 0x1p-5, tensor.Float16: 0x1p-8}[d]
		for _, dims := range [][]int{{3, 5}, {7, 1000}} {
			for _, h := range append(tensortest.Ways(), tensortest.How{Name: "plain"}) {
				_, want := tensortest.NewGradRun(t, host, d, c, [][]int{dims}, 7).Grads(h)
				_, got := tensortest.NewGradRun(t, dev, d, c, [][]int{dims}, 7).Grads(h)
				tensortest.RequireGrads(t, want, got, tol, d.String()+" "+h.Name)
			}
		}
		x := tensortest.Of(d, []float64{1.5, -2, 0, 4}, 4)
		want := tensor.Floats(cubeOf(tensor.NewTape(host).Input(x)))
		assert.Equal(t, want, tensor.Floats(cubeOf(tensor.NewTape(dev).Input(x))), "%v", d)
	}
}

// TestRegisterRefuses: a type without a kernel, a wrong text and a second registration are errors that name the operation.
func TestRegisterRefuses(t *testing.T) {
	dev := device(t)
	tape := tensor.NewTape(dev)
	ints := tape.Input(tensor.FromSlice([]int64{2}, 1))
	assert.ErrorContains(t, tensor.Try(func() { cubeOf(ints) }), "cube int64[1], int64[1]: cuda:0 has no kernel for int64")
	x := tape.Input(tensor.FromSlice([]float32{2}, 1))
	for op, want := range map[tensor.Op]string{broken: "broken.cu", missing: "sphere"} {
		err := tensor.Try(func() {
			tape.Args(op, tensor.Float32).Out(tape.NewLike(x))
			tape.Launch()
		})
		require.ErrorContains(t, err, op.String()+": cuda:0: kernel")
		assert.ErrorContains(t, err, want)
	}
	assert.ErrorContains(t, tensor.Try(func() { cuda.Register(tensor.OpExp, cuda.Source{}) }), "exp: is built in")
	assert.ErrorContains(t, tensor.Try(func() { cuda.Register(cube, cuda.Source{}) }), "cube: a device is open already")
}
