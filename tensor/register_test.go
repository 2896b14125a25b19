package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// cube is a registered operation: x³, with a kernel for float32 and float64.
var cube = cpu.Register(tensor.Register(tensor.OpSpec{Name: "test_cube", Saves: 1, VJP: cubeVJP}),
	[tensor.NumDTypes]tensor.Kernel{tensor.Float32: cubeKernel[float32], tensor.Float64: cubeKernel[float64]})

func cubeKernel[T float32 | float64](_ tensor.Queue, a *tensor.Args) {
	dst, x := tensor.Operand[T](a, 0), tensor.Operand[T](a, 1)
	for i, v := range x {
		dst[i] = v*v*v + T(a.F[0])
	}
}

func cubeVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	if need != 1 {
		panic("need")
	}
	g, three := n.Grad(), n.In(0).Scale(float64(n.I[0])) // freed by the tape
	t.AddGrad(n, 0, g.Mul(three.Mul(n.In(0))))
}

func cubeOf(x tensor.Tensor) tensor.Tensor {
	t := x.Tape()
	x = x.Reshape(x.Shape().Dims...) // makes a view with gaps contiguous
	y := t.NewLike(x)
	t.Args(cube, x.DType()).Out(y).In(x)
	t.Launch()
	if n := t.Record(cube, y, x); n != nil {
		n.I[0] = 3
	}
	return y
}

func TestRegister(t *testing.T) {
	assert.Equal(t, "test_cube", cube.String())
	dev := cpu.New(1)
	defer dev.Close()
	c := tensortest.GradCase{F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return cubeOf(x[0]) }}
	for k := range 3 {
		g := newGradRun(t, dev, cube, c, [][]int{{2, k + 1}}, uint64(k))
		_, plain := g.Grads(tensortest.How{})
		tensortest.RequireGrads(t, g.Numeric(plain), plain, 1e-6, "cube")
		_, scope := g.Grads(tensortest.How{Inner: true, Scope: true})
		tensortest.RequireGrads(t, plain, scope, 1e-13, "in a scope")
	}
	tape := tensor.NewTape(dev)
	x := tape.Input(tensor.FromSlice([]tensor.BF16{0x3fc0, 0xc000}, 2)) // 1.5, −2: through float32
	assert.Equal(t, []float64{3.375, -8}, tensor.Floats(cubeOf(x)))
	column := tape.Input(tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2)).Slice(1, 1, 2)
	assert.Equal(t, []float64{8, 64}, tensor.Floats(cubeOf(column)))
	assert.ErrorContains(t, tensor.Try(func() { tape.Args(cube, tensor.Float32).In(column) }), "test_cube float32[2,1]: not contiguous")
	assert.ErrorContains(t, tensor.Try(func() { cubeOf(tape.Input(tensor.FromSlice([]int32{1}, 1))) }),
		"test_cube int32[1], int32[1]: cpu has no kernel for int32")
}
