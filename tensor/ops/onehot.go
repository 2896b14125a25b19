package ops

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The operations of OneHot and Bincount.
var OpOneHot, OpBincount tensor.Op

func init() {
	k := numbers(oneHotKernel[float32](), oneHotKernel[float64](), oneHotKernel[int32](), oneHotKernel[int64](), oneHotKernel[uint8]())
	k[tensor.Bool] = oneHotKernel[uint8]()
	OpOneHot = registerAll(tensor.OpSpec{Name: "one_hot", Const: true}, k)
	OpBincount = registerAll(tensor.OpSpec{Name: "bincount", Const: true}, kernels{tensor.Int64: bincountKernel})
}

// OneHot returns [..., classes] of type d for ids [...], Int64 or Int32: row i is 1 at ids[i] and 0 elsewhere, as
// torch.nn.functional.one_hot (which returns Int64). An id outside [0,classes) is an error.
func OneHot(ids tensor.Tensor, classes int, d tensor.DType) tensor.Tensor {
	t := OpOneHot.Tape(ids)
	in := t.Integers(ids)
	dims, rank := dimsOf(in)
	if rank == tensor.MaxNDim || classes < 0 {
		OpOneHot.Fail([]tensor.Tensor{in}, "%d classes; at most %d dimensions", classes, tensor.MaxNDim-1)
	}
	t.CheckIndices(OpOneHot, in, in, classes)
	dims[rank] = classes
	out := t.New(d, dims[:rank+1]...)
	if out.Len() > 0 {
		a := t.Args(OpOneHot, d).Out(out).In(in)
		a.Dim[0], a.Dim[1] = in.Len(), classes
		t.Launch()
	}
	t.SamePlaces(out, in)
	return out
}

func oneHotKernel[T number]() tensor.Kernel {
	return cpu.Parallel(dim0, dim1, func(a *tensor.Args, lo, hi int) {
		classes, y := a.Dim[1], tensor.Operand[T](a, 0)
		clear(y[lo*classes : hi*classes])
		for r, id := range tensor.Operand[int64](a, 1)[lo:hi] {
			y[(lo+r)*classes+int(id)] = 1
		}
	})
}

// Bincount counts how often each of 0 to bins−1 occurs in x, Int64 or Int32 of any shape, as Int64 [bins]. The size of torch.bincount's
// result depends on the largest element, so it must read x first. This one does not: an element outside [0,bins) is an error.
func Bincount(x tensor.Tensor, bins int) tensor.Tensor {
	t := OpBincount.Tape(x)
	in := t.Integers(x)
	t.CheckIndices(OpBincount, in, in, bins)
	out := t.New(tensor.Int64, bins)
	switch {
	case in.Len() == 0:
		fill(t, out, 0)
	case bins > 0:
		t.Args(OpBincount, tensor.Int64).Out(out).In(in)
		t.Launch()
	}
	t.SumTypes(out, in)
	return out
}

func bincountKernel(_ tensor.Queue, a *tensor.Args) {
	counts := tensor.Operand[int64](a, 0)
	clear(counts)
	for _, v := range tensor.Operand[int64](a, 1) {
		counts[v]++
	}
}
