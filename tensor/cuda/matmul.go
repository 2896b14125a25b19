package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// blasTypes are cuBLASLt's names of the element types.
var blasTypes = map[tensor.DType]blas.Type{tensor.Float32: blas.Float32, tensor.Float64: blas.Float64,
	tensor.BFloat16: blas.BFloat16, tensor.Float16: blas.Float16}

// products computes matrix products in one type: with cuBLASLt, or with own kernels if cuBLASLt cannot.
type products struct {
	t           tensor.DType
	blas        blas.Type
	bias, scale *kernel
}

var matmulKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpMatMul:      productRow((*products).matmul, tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16),
	tensor.OpLinears:     productRow((*products).matmul, tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16),
	tensor.OpLinearAct:   productRow((*products).linearAct, tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16),
	tensor.OpLinearAdd:   productRow((*products).linearAdd, tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16),
	tensor.OpActGrad:     productRow((*products).actGrad, tensor.Float32, tensor.Float64),
	tensor.OpLinearGradX: productRow((*products).linearGradX, tensor.BFloat16, tensor.Float16),
	tensor.OpLinearGradW: productRow((*products).linearGradW, tensor.Float32, tensor.BFloat16, tensor.Float16),
	ops.OpGroupedLinear:  floats("gemm.cu", "grouped", grouped),
	ops.OpGroupedGrad:    floats("gemm.cu", "grouped_grad", groupedGrad),
}

func productRow(fn func(p *products, q *Queue, a *tensor.Args), types ...tensor.DType) (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range types {
		p := &products{t: t, blas: blasTypes[t], bias: newKernel("gemm.cu", "add_bias", elems[t]),
			scale: newKernel("gemm.cu", "scale_product", elems[t])}
		r[t] = func(queue tensor.Queue, a *tensor.Args) {
			q := queue.(*Queue)
			q.op = a.Op
			fn(p, q, a)
		}
	}
	return r
}

// matmul computes OpMatMul and OpLinears: see Tape.gemm of package tensor for the arguments.
func (p *products) matmul(q *Queue, a *tensor.Args) {
	p.describe(q, a)
	p.linear(q)
}

// describe sets q.gemm. C is the first output.
func (p *products) describe(q *Queue, a *tensor.Args) {
	in := a.Outs
	q.gemm = blas.Gemm{Type: p.blas, TransA: a.I[0] != 0, TransB: a.I[1] != 0, M: a.Dim[1], N: a.Dim[2], K: a.Dim[3],
		Alpha: 1, Beta: a.F[0], A: devPtr(a.X[in]), B: devPtr(a.X[in+1]), C: devPtr(a.X[0]),
		LDA: a.Stride[1][1], LDB: a.Stride[2][1], LDC: a.Stride[0][1],
		Batch: a.Dim[0], StrideA: a.Stride[1][0], StrideB: a.Stride[2][0], StrideC: a.Stride[0][0]}
	if a.N > in+2 {
		q.gemm.Bias = devPtr(a.X[in+2])
	}
	if q.gemm.Batch > 1 {
		q.gemm.StrideBias = a.Stride[0][2]
	}
}

// linear computes q.gemm, with its bias if it has one.
func (p *products) linear(q *Queue) {
	g := &q.gemm
	g.Epilogue = blas.None
	if g.Bias != 0 {
		g.Epilogue = blas.Bias
		if p.fused(q) {
			return
		}
		g.Epilogue = blas.None
	}
	if g.K == 0 {
		q.args.Reset().Ptr(g.C)
		q.i64(g.Batch).i64(g.M).i64(g.N).i64(g.StrideC).i64(g.LDC).wide(p.t, g.Beta).spread(p.scale, g.Batch*g.M*g.N)
	} else if err := q.multiply(); err != nil {
		panic(q.dev.fail(q.op.String(), err))
	}
	if g.Bias != 0 {
		size := cuda.Ptr(p.t.Size())
		for i := range cuda.Ptr(g.Batch) {
			q.args.Reset().Ptr(g.Out() + i*cuda.Ptr(g.StrideC)*size).Ptr(g.Bias + i*cuda.Ptr(g.StrideBias)*size)
			q.i64(g.M).i64(g.N).i64(g.LDC).spread(p.bias, g.M*g.N)
		}
	}
}

// fused computes q.gemm with its epilogue. It reports false if cuBLASLt cannot do that.
func (p *products) fused(q *Queue) bool {
	if q.gemm.K == 0 {
		return false
	}
	err := q.multiply()
	if err != nil && !blas.IsUnsupported(err) {
		panic(q.dev.fail(q.op.String(), err))
	}
	return err == nil
}

// multiply computes q.gemm with cuBLASLt. If the context was not current, it tries again, bound to the thread.
func (q *Queue) multiply() error {
	d := q.dev
	q.fixed("a product")
	if f := d.failed.Load(); f != nil {
		panic(f)
	}
	err := d.blas.MatMul(q.stream, &q.gemm)
	if err == nil || blas.IsUnsupported(err) {
		return err
	}
	if err := d.Bind(); err != nil {
		return err
	}
	if _, lost := q.stream.Done(); lost != nil {
		return lost // cuBLASLt does not report errors of earlier kernels
	}
	return d.blas.MatMul(q.stream, &q.gemm)
}

// activations are the operations that apply an activation, and its gradient.
var activations = map[tensor.Activation][2]tensor.Op{
	tensor.ActReLU:     {tensor.OpReLU, tensor.OpReLUGrad},
	tensor.ActGELU:     {tensor.OpGELU, tensor.OpGELUGrad},
	tensor.ActGELUTanh: {tensor.OpGELUTanh, tensor.OpGELUTanhGrad},
	tensor.ActSiLU:     {tensor.OpSiLU, tensor.OpSiLUGrad},
}

// linearAct computes OpLinearAct. If there are two outputs, the first one is the input of the activation. ReLU is computed in the epilogue.
// So is GELU, but only for 16-bit floats: the precision of cuBLASLt's tanh in float32 is not documented.
func (p *products) linearAct(q *Queue, a *tensor.Args) {
	p.describe(q, a)
	act, g := tensor.Activation(a.I[5]), &q.gemm
	out := devPtr(a.X[a.Outs-1])
	switch {
	case act == tensor.ActReLU && a.Outs == 1:
		g.Epilogue = blas.ReLU
	case act == tensor.ActGELUTanh && p.t.IsHalf() && a.Outs == 1:
		g.Epilogue = blas.GELU
	case act == tensor.ActGELUTanh && p.t.IsHalf():
		g.Epilogue, g.Aux, g.LDAux, g.C = blas.GELUAux, g.C, g.LDC, out
	}
	if g.Epilogue != 0 {
		if g.Bias != 0 {
			g.Epilogue |= blas.Bias
		}
		if p.fused(q) {
			return
		}
		g.C = devPtr(a.X[0])
	}
	p.linear(q)
	q.apply(activations[act][0], p.t, g.Batch*g.M*g.N, a.X[a.Outs-1], a.X[0])
}

// linearAdd computes OpLinearAdd. Operands: the output, the two matrices, the bias, which may be missing, and the summand.
func (p *products) linearAdd(q *Queue, a *tensor.Args) {
	p.describe(q, a)
	g := &q.gemm
	g.Beta, g.C, g.D = 1, devPtr(a.X[4]), g.C
	p.linear(q)
}

// linearGradX computes OpLinearGradX. Operands: the output, the two matrices and the activation's input.
func (p *products) linearGradX(q *Queue, a *tensor.Args) {
	p.describe(q, a)
	act, g := tensor.Activation(a.I[5]), &q.gemm
	if g.Bias = 0; act == tensor.ActGELUTanh {
		g.Epilogue, g.Aux, g.LDAux = blas.DGELU, devPtr(a.X[3]), g.N
		if p.fused(q) {
			return
		}
	}
	p.linear(q)
	q.apply(activations[act][1], p.t, g.M*g.N, a.X[0], a.X[0], a.X[3])
}

// linearGradW computes OpLinearGradW, also of a batch. Operands: the product, the sums of the columns of A, and the two matrices.
func (p *products) linearGradW(q *Queue, a *tensor.Args) {
	p.describe(q, a)
	g := &q.gemm
	g.Epilogue, g.Bias = blas.BiasGradA, devPtr(a.X[1])
	if p.fused(q) {
		return
	}
	g.Bias = 0
	p.linear(q)
	for i, size := 0, p.t.Size(); i < a.Dim[0]; i++ {
		q.sumColumns(p.t, unsafe.Add(a.X[1], i*g.StrideBias*size), unsafe.Add(a.X[2], i*g.StrideA*size), a.Dim[3], a.Dim[1])
	}
}

// apply launches another operation of the table on n elements: x[0] is written.
func (q *Queue) apply(op tensor.Op, t tensor.DType, n int, x ...tensor.Ptr) {
	a := &q.sub
	*a = tensor.Args{Op: op, DType: t, Outs: 1, N: len(x)}
	for i, p := range x {
		a.X[i], a.Len[i], a.DT[i] = p, n, t
	}
	table[op][t](q, a)
}

// actGrad computes OpActGrad. Operands: the gradient and, optionally, the sum of its rows; then g and the activation's input or output.
func (p *products) actGrad(q *Queue, a *tensor.Args) {
	in := a.Outs
	q.apply(activations[tensor.Activation(a.I[0])][1], p.t, a.Len[0], a.X[0], a.X[in], a.X[in+1])
	if in == 2 {
		q.sumColumns(p.t, a.X[1], a.X[0], a.Dim[0], a.Dim[1])
	}
}

// sumColumns launches OpColSum for x [rows, cols].
func (q *Queue) sumColumns(t tensor.DType, y, x tensor.Ptr, rows, cols int) {
	a := &q.sub
	*a = tensor.Args{Op: tensor.OpColSum, DType: t, Outs: 1, N: 2}
	a.X[0], a.Len[0], a.DT[0] = y, cols, t
	a.X[1], a.Len[1], a.DT[1] = x, rows*cols, t
	a.Dim[0], a.Dim[1] = rows, cols
	table[tensor.OpColSum][t](q, a)
}
