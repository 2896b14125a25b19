package cuda

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

const sortShort = 1024 // SHORT of sort.cu

// sorts makes the kernels that sort the positions of the elements of rows.
func sorts() (r [tensor.NumDTypes]tensor.Kernel) {
	of := func(name string, d tensor.DType) *kernel { return newKernel("sort.cu", name, elems[d]) }
	for _, d := range numberTypes {
		short, begin, step, end := of("sort_short", d), of("sort_begin", d), of("sort_step", d), of("sort_end", d)
		r[d] = cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
			rows, n := a.Dim[0], a.Dim[1]
			size := 1 << bits.Len(uint(n-1))
			if size <= sortShort {
				q.ptrs(a, 2).i64(n).args.I32(size).I32(a.I[0])
				q.run(short, cuda.Dim{X: rows}, cuda.Dim{X: min(max(size/2, 32), threads)}, 0)
				return
			}
			at := q.scratch(4 * rows * size)
			q.args.Reset().Ptr(at)
			q.i64(size).i64(rows*size).spread(begin, rows*size)
			for run := 2; run <= size; run *= 2 {
				for far := run / 2; far > 0; far /= 2 {
					q.args.Reset().Ptr(at)
					q.ptr(a, 1).i64(n).i64(size).i64(rows).i64(run).i64(far).args.I32(a.I[0])
					q.spread(step, rows*size/2)
				}
			}
			q.args.Reset()
			q.ptr(a, 0).args.Ptr(at)
			q.i64(n).i64(size).i64(rows*n).spread(end, rows*n)
		})
	}
	return r
}

// cumSums makes the kernels of running sums, with a block for each row or a thread for each column.
func cumSums() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, d := range numberTypes {
		rows, columns := newKernel("cumsum.cu", "cumsum_rows", elems[d]), newKernel("cumsum.cu", "cumsum_columns", elems[d])
		r[d] = cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
			outer, n, inner := a.Dim[0], a.Dim[1], a.Dim[2]
			q.ptrs(a, 2).i64(n)
			if inner == 1 {
				q.args.I32(a.I[0])
				q.run(rows, cuda.Dim{X: outer}, cuda.Dim{X: threads}, 0)
			} else {
				q.i64(inner).i64(outer * inner).args.I32(a.I[0])
				q.spread(columns, outer*inner)
			}
		})
	}
	return r
}

// bounds adds the bounds of a clamp, in the type in which elements are computed.
func (q *Queue) bounds(a *tensor.Args) *Queue {
	for i := range 2 {
		switch a.DType {
		case tensor.Int64:
			q.i64(a.I[i])
		case tensor.Int32:
			q.args.I32(a.I[i])
		case tensor.Uint8:
			q.args.U32(uint32(a.I[i]))
		default:
			q.wide(a.DType, a.F[i])
		}
	}
	return q
}

func clamp(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).i64(a.Len[0]).bounds(a).spread(k, a.Len[0])
}

func clampGrad(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 3).i64(a.Len[0]).bounds(a).spread(k, a.Len[0])
}

func oneHot(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 2).i64(a.Len[0]).i64(a.Dim[1]).check().spread(k, a.Len[0])
}

func bincount(q *Queue, k *kernel, a *tensor.Args) {
	q.zero(a.X[0], 2*a.Len[0])
	q.op = a.Op
	q.args.Reset()
	q.ptrs(a, 2).i64(a.Len[1]).i64(a.Len[0]).check().spread(k, a.Len[1])
}

func arange(q *Queue, k *kernel, a *tensor.Args) {
	q.ptr(a, 0).i64(a.Len[0]).args.F64(a.F[0]).F64(a.F[1])
	q.spread(k, a.Len[0])
}
