package cuda_test

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// twice is a user's operation. Its CPU kernel is left out here.
var twice = tensor.Register(tensor.OpSpec{Name: "twice", VJP: func(t *tensor.Tape, n *tensor.Node, _ uint8) {
	t.AddGrad(n, 0, n.Grad().Scale(2))
}})

// Register gives a registered operation its CUDA kernel.
func ExampleRegister() {
	// var twice = tensor.Register(tensor.OpSpec{Name: "twice", VJP: …, CPU: …})
	register := func() { // in an init function
		cuda.Register(twice, cuda.Source{File: "double.cu", Kernel: "doubled", Text: `
			extern "C" __global__ void doubled(T* y, const T* x, i64 n) {
			  for (i64 i = first_item(); i < n; i += all_threads()) y[i] = narrow<T>(2 * widen(x[i]));
			}`,
			Types:  []tensor.DType{tensor.Float32, tensor.BFloat16},
			Launch: func(l cuda.Launch, a *tensor.Args) { l.Operands(a, 2).Int(a.Len[0]).Spread(a.Len[0]) },
		})
	}
	_ = register
}
