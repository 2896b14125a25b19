package cuda

import "github.com/ringo-ml/ringo/tensor"

// vecItems is the number of 16-byte vectors in n elements of an operand.
func vecItems(a *tensor.Args, operand, n int) int {
	size := a.DT[operand].Size()
	return (n*size + 15) / 16
}

// mapped launches k(y, x, n).
func mapped(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).i64(a.Len[0]).spread(k, vecItems(a, 0, a.Len[0]))
}

// mapped2 launches k(d, g, s, n).
func mapped2(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 3).i64(a.Len[0]).spread(k, vecItems(a, 0, a.Len[0]))
}

func affine(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).i64(a.Len[0]).wide(a.DType, a.F[0]).wide(a.DType, a.F[1]).spread(k, vecItems(a, 0, a.Len[0]))
}

func unary(name string) [tensor.NumDTypes]tensor.Kernel  { return floats("unary.cu", name, mapped) }
func unary2(name string) [tensor.NumDTypes]tensor.Kernel { return floats("unary.cu", name, mapped2) }

var unaryKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpNeg:      unary("neg"),
	tensor.OpAbs:      unary("abs_value"),
	tensor.OpExp:      unary("exponential"),
	tensor.OpLog:      unary("logarithm"),
	tensor.OpSqrt:     unary("square_root"),
	tensor.OpSquare:   unary("square"),
	tensor.OpRecip:    unary("recip"),
	tensor.OpSin:      unary("sine"),
	tensor.OpCos:      unary("cosine"),
	tensor.OpTanh:     unary("hyperbolic_tangent"),
	tensor.OpSigmoid:  unary("sigmoid"),
	tensor.OpReLU:     unary("relu"),
	tensor.OpGELU:     unary("gelu"),
	tensor.OpGELUTanh: unary("gelu_tanh"),
	tensor.OpSiLU:     unary("silu"),
	tensor.OpAffine:   floats("unary.cu", "affine", affine),

	tensor.OpAbsGrad:      unary2("abs_grad"),
	tensor.OpSqrtGrad:     unary2("sqrt_grad"),
	tensor.OpSquareGrad:   unary2("square_grad"),
	tensor.OpRecipGrad:    unary2("recip_grad"),
	tensor.OpSinGrad:      unary2("sin_grad"),
	tensor.OpCosGrad:      unary2("cos_grad"),
	tensor.OpTanhGrad:     unary2("tanh_grad"),
	tensor.OpSigmoidGrad:  unary2("sigmoid_grad"),
	tensor.OpReLUGrad:     unary2("relu_grad"),
	tensor.OpGELUGrad:     unary2("gelu_grad"),
	tensor.OpGELUTanhGrad: unary2("gelu_tanh_grad"),
	tensor.OpSiLUGrad:     unary2("silu_grad"),
}
