package ops

import (
	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/typing"
)

// The operations that choose elements by indices.
var OpEmbedding, OpEmbeddingGrad, OpGather, OpScatterAdd tensor.Op

func init() {
	indexed := func(name string, rows tensor.RowsRule, vjp tensor.VJP) tensor.OpSpec {
		return tensor.OpSpec{Name: name, Class: typing.Indexed, Saves: 2, Rows: rows, Index: 2, VJP: vjp}
	}
	OpEmbedding = registerAll(indexed("embedding", tensor.RowsByCaller, embeddingVJP),
		cpu.BySize(embeddingKernel[uint8](), embeddingKernel[tensor.BF16](), embeddingKernel[int32](), embeddingKernel[int64]()))
	OpEmbeddingGrad = register(tensor.OpSpec{Name: "embedding_grad", Const: true},
		embeddingGradKernel[float32](), embeddingGradKernel[float64]())
	OpGather = registerAll(indexed("gather", tensor.RowsPicked, gatherVJP),
		cpu.BySize(gatherKernel[uint8](), gatherKernel[tensor.BF16](), gatherKernel[int32](), gatherKernel[int64]()))
	OpScatterAdd = registerAll(indexed("scatter_add", tensor.RowsAdded, scatterAddVJP), numbers(scatterAddKernel[float32](),
		scatterAddKernel[float64](), scatterAddKernel[int32](), scatterAddKernel[int64](), scatterAddKernel[uint8]()))
}

// Embedding returns rows of the table w [n, d]: [..., d] for ids [...], Int64 or Int32.
func Embedding(w, ids tensor.Tensor) tensor.Tensor {
	t := OpEmbedding.Tape(w, ids)
	w, ids = t.Packed(w), t.Integers(ids)
	if w.NDim() != 2 {
		OpEmbedding.Fail([]tensor.Tensor{w, ids}, "wants a table [n, d]")
	}
	t.CheckIndices(OpEmbedding, w, ids, w.Dim(0))
	d, rank := dimsOf(ids)
	if rank == tensor.MaxNDim {
		OpEmbedding.Fail([]tensor.Tensor{ids}, "too many dimensions")
	}
	d[rank] = w.Dim(1)
	out := t.New(w.DType(), d[:rank+1]...)
	if out.Len() > 0 {
		a := t.Args(OpEmbedding, w.DType()).Out(out).In(w).In(ids)
		a.Dim[0], a.Dim[1] = ids.Len(), w.Dim(1)
		t.Launch()
	}
	t.Record(OpEmbedding, out, w, ids)
	t.LookupTypes(OpEmbedding, out, w, ids)
	return out
}

func embeddingVJP(t *tensor.Tape, n *tensor.Node, _ uint8) {
	w, ids := n.In(0), n.In(1)
	dst, beta := t.GradTarget(n, 0)
	if beta == 0 {
		t.Fill(dst, 0)
	}
	if n.Out().Len() > 0 {
		a := t.Args(OpEmbeddingGrad, dst.DType()).Out(dst).In(n.Grad()).In(ids)
		a.Dim[0], a.Dim[1] = ids.Len(), w.Dim(1)
		t.Launch()
	}
	t.GradDone(n, 0, dst)
}

// checkAlong checks indices along dimension dim of x. It returns that dimension, and sizes for the kernels: of the dimensions before it,
// its own, that of idx, and of those behind it.
func checkAlong(t *tensor.Tape, op tensor.Op, x tensor.Tensor, dim int, idx tensor.Tensor) [8]int {
	dim = axis(op, x, dim)
	mustBeAlikeBut(op, dim, x, "the input", idx, "the indices", x, idx)
	t.CheckIndices(op, x, idx, x.Dim(dim))
	d, rank := dimsOf(x)
	return [8]int{dim, product(d[:dim]), d[dim], idx.Dim(dim), product(d[dim+1 : rank])}
}

// indexed launches OpGather or OpScatterAdd from x to out, with what checkAlong returned.
func indexed(t *tensor.Tape, op tensor.Op, out, x, idx tensor.Tensor, at *[8]int) {
	if idx.Len() > 0 {
		copy(t.Args(op, x.DType()).Out(out).In(x).In(idx).Dim[:4], at[1:])
		t.Launch()
	}
}

// Gather returns x[..., idx[i], ...] along dim, as torch.gather: idx (Int64 or Int32) has x's shape but for dim.
func Gather(x tensor.Tensor, dim int, idx tensor.Tensor) tensor.Tensor {
	t := OpGather.Tape(x, idx)
	x, idx = t.Packed(x), t.Integers(idx)
	at := checkAlong(t, OpGather, x, dim, idx)
	d, rank := dimsOf(idx)
	out := t.New(x.DType(), d[:rank]...)
	indexed(t, OpGather, out, x, idx, &at)
	if n := t.Record(OpGather, out, x, idx); n != nil {
		n.I = at
	}
	t.PickTypes(OpGather, out, x, idx, at[0])
	return out
}

func gatherVJP(t *tensor.Tape, n *tensor.Node, _ uint8) { scatterGrad(t, n, n.In(1), &n.I) }

// scatterGrad adds n's gradient to that of input 0 where idx says.
func scatterGrad(t *tensor.Tape, n *tensor.Node, idx tensor.Tensor, at *[8]int) {
	d := t.NewLike(n.In(0))
	t.Fill(d, 0)
	indexed(t, OpScatterAdd, d, n.Grad(), idx, at)
	t.AddGrad(n, 0, d)
}

// ScatterAdd returns x with src[i] added at x[..., idx[i], ...] along dim, as torch.scatter_add. Elements with the same index are added in
// order.
func ScatterAdd(x tensor.Tensor, dim int, idx, src tensor.Tensor) tensor.Tensor {
	t := OpScatterAdd.Tape(x, src)
	x, idx, src = t.Packed(x), t.Integers(idx), t.Packed(src)
	OpScatterAdd.SameDType(x, src)
	at := checkAlong(t, OpScatterAdd, x, dim, idx)
	mustBeAlike(OpScatterAdd, idx, "the indices", src, "the source", x, idx, src)
	out := t.NewLike(x)
	t.CopyInto(out, 0, 0, x)
	indexed(t, OpScatterAdd, out, src, idx, &at)
	if n := t.Record(OpScatterAdd, out, x, idx, src); n != nil {
		n.I = at
	}
	t.ScatterTypes(OpScatterAdd, out, x, idx, src, at[0])
	return out
}

func scatterAddVJP(t *tensor.Tape, n *tensor.Node, need uint8) {
	if need&4 != 0 {
		d := t.NewLike(n.In(2))
		indexed(t, OpGather, d, n.Grad(), n.In(1), &n.I)
		t.AddGrad(n, 2, d)
	}
	if need&1 != 0 {
		t.AddGrad(n, 0, n.Grad())
	}
}

func embeddingKernel[T tensor.Elem]() tensor.Kernel {
	return cpu.Parallel(dim0, dim1, func(a *tensor.Args, lo, hi int) {
		kernel.GatherRows(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[int64](a, 2), a.Dim[1], lo, hi)
	})
}

// embeddingGradKernel gives each thread some columns: rows may occur several times, and must be added in order.
func embeddingGradKernel[T float]() tensor.Kernel {
	return aligned(dim1, dim0, func(a *tensor.Args, lo, hi int) {
		kernel.ScatterAddRows(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[int64](a, 2), a.Dim[1], lo, hi)
	})
}

func gatherCost(a *tensor.Args) int { return a.Dim[2] * a.Dim[3] }

func gatherKernel[T tensor.Elem]() tensor.Kernel {
	return cpu.Parallel(dim0, gatherCost, func(a *tensor.Args, lo, hi int) {
		kernel.GatherDim(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[int64](a, 2), a.Dim[1], a.Dim[2], a.Dim[3], lo, hi)
	})
}

func scatterAddKernel[T number]() tensor.Kernel {
	return cpu.Parallel(dim0, gatherCost, func(a *tensor.Args, lo, hi int) {
		kernel.ScatterAddDim(tensor.Operand[T](a, 0), tensor.Operand[T](a, 1), tensor.Operand[int64](a, 2), a.Dim[1], a.Dim[2], a.Dim[3], lo, hi)
	})
}
