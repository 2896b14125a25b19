package cuda

import (
	"math"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const scatterThreads = 128 // LANES of index.cu

// embeddingGrads makes the kernels that add row r of operand 1 to row ids[r] of operand 0.
func embeddingGrads() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range floatTypes {
		find := newKernel("index.cu", "find_rows", elems[t])
		r[t] = cell(newKernel("index.cu", "scatter_rows", elems[t]), func(q *Queue, k *kernel, a *tensor.Args) {
			n, cols := a.Dim[0], a.Dim[1]
			rows := a.Len[0] / max(cols, 1)
			first := q.scratch(4 * (2*rows + n))
			last := first + cuda.Ptr(4*rows)
			row := last + cuda.Ptr(4*rows)
			q.zero(hostPtr(first), 2*rows)
			q.op = a.Op
			q.args.Reset().Ptr(first).Ptr(last).Ptr(row)
			q.ptr(a, 2).i64(n).i64(rows).check().spread(find, n)
			lanes, vec := cols, 0
			if wholeRows(a, cols*t.Size(), 0, 1) {
				lanes, vec = cols*t.Size()/16, 1
			}
			q.args.Reset()
			q.ptrs(a, 2).args.Ptr(first).Ptr(last).Ptr(row)
			q.i64(n).i64(cols).args.I32(vec)
			q.run(k, cuda.Dim{X: min(n, math.MaxInt32), Y: (lanes + scatterThreads - 1) / scatterThreads}, cuda.Dim{X: scatterThreads}, 0)
		})
	}
	return r
}

// zero launches OpFill of n words of 32 bits with 0.
func (q *Queue) zero(p tensor.Ptr, n int) {
	a := &q.sub
	*a = tensor.Args{Op: tensor.OpFill, DType: tensor.Int32, Outs: 1, N: 1}
	a.X[0], a.Len[0], a.DT[0] = p, n, tensor.Int32
	table[tensor.OpFill][tensor.Int32](q, a)
}

// scatterAdd adds with a thread for each column, or for each element, whichever is faster. For 16-bit floats it must be the column, so that
// sums are rounded once.
func scatterAdd(d tensor.DType) tensor.Kernel {
	columns, elements := newKernel("index.cu", "scatter_columns", elems[d]), newKernel("index.cu", "scatter_elements", elems[d])
	return cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
		outer, n, m, inner := a.Dim[0], a.Dim[1], a.Dim[2], a.Dim[3]
		q.ptrs(a, 3).i64(outer).i64(n).i64(m).i64(inner).check()
		// With a thread per column, each element costs a wait for memory. With a thread per element, each one compares all indices of its
		// column, but many run at the same time. waits is how many comparisons cost as much as a wait.
		const waits = 4096
		if m == 1 || !d.IsHalf() && outer*inner*m > waits*min(outer*inner, q.dev.sms*1024) {
			q.spread(columns, outer*inner)
		} else {
			q.spread(elements, outer*m*inner)
		}
	})
}

func scatterAdds() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, d := range numberTypes {
		r[d] = scatterAdd(d)
	}
	return r
}

// dropout launches k(y, x, n, key, limit, scale, first, stride, elems, cols, line, skip, brk, jump).
func dropout(q *Queue, k *kernel, a *tensor.Args) {
	n, p := a.Len[0], a.F[0]
	first, stride, elems, cols, line, skip := a.I[0], a.I[1], a.I[2], a.I[3], a.I[4], a.I[5]
	if stride == elems && cols == line && a.I[7] == 0 { // indices without gaps
		first, elems = first+skip, 0
	}
	q.ptrs(a, 2).i64(n).args.U64(a.Key).U64(uint64(math.RoundToEven(p * 0x1p32)))
	q.wide(a.DType, 1/(1-p)).i64(first).i64(stride).i64(elems).i64(cols).i64(line).i64(skip).i64(a.I[6]).i64(a.I[7])
	items := n
	if elems == 0 {
		items = n/4 + 2
	}
	q.spread(k, items)
}

// pointLoss launches k(z, x, y, n) and pointLossGrad k(d, x, y, g, n).
func pointLoss(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 3).i64(a.Len[0]).spread(k, a.Len[0])
}

func pointLossGrad(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 4).i64(a.Len[0]).spread(k, a.Len[0])
}

var indexKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpEmbeddingGrad: embeddingGrads(),
	ops.OpScatterAdd:    scatterAdds(),
}

var floatKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpDropout: floats("float.cu", "dropout", dropout),
	ops.OpMSE:     floats("float.cu", "mse", pointLoss),
	ops.OpMSEGrad: floats("float.cu", "mse_grad", pointLossGrad),
	ops.OpBCE:     floats("float.cu", "bce", pointLoss),
	ops.OpBCEGrad: floats("float.cu", "bce_grad", pointLossGrad),
}
