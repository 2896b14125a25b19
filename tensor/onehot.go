package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

func init() {
	k := numbers(oneHotKernel[float32](), oneHotKernel[float64](), oneHotKernel[int32](), oneHotKernel[int64](), oneHotKernel[uint8]())
	k[Bool] = oneHotKernel[uint8]()
	define(OpOneHot, OpSpec{Name: "one_hot", Const: true, CPU: k})
	define(OpBincount, OpSpec{Name: "bincount", Const: true, CPU: [NumDTypes]Kernel{Int64: bincountKernel}})
}

// OneHot returns [..., classes] of type d for ids [...], Int64 or Int32: row i is 1 at ids[i] and 0 elsewhere, as
// torch.nn.functional.one_hot (which returns Int64). An id outside [0,classes) is an error.
func OneHot(ids Tensor, classes int, d DType) Tensor {
	t := tapeOf("one_hot", ids)
	in := t.integers(ids)
	if int(in.ndim) == MaxNDim || classes < 0 {
		fail("one_hot", these(in), "%d classes; at most %d dimensions", classes, MaxNDim-1)
	}
	t.checkIndex("one_hot", in, in, classes)
	out := t.newHeader(d, in.dims[:in.ndim]...)
	out.dims[out.ndim] = classes
	out.setDims(out.dims[:out.ndim+1])
	t.alloc(out)
	if out.n > 0 {
		a := t.Args(OpOneHot, d)
		a.out(out).in(in)
		a.Dim[0], a.Dim[1] = in.n, classes
		t.Launch()
	}
	out.ty, out.at = in.ty, in.at
	return out.tensor()
}

func oneHotKernel[T kernel.Number]() Kernel {
	return Parallel(dim0, dim1, func(a *Args, lo, hi int) {
		classes, y := a.Dim[1], slice[T](a, 0)
		clear(y[lo*classes : hi*classes])
		for r, id := range slice[int64](a, 1)[lo:hi] {
			y[(lo+r)*classes+int(id)] = 1
		}
	})
}

// Bincount counts how often each of 0 to bins−1 occurs in x, Int64 or Int32 of any shape, as Int64 [bins]. The size of torch.bincount's
// result depends on the largest element, so it must read x first. This one does not: an element outside [0,bins) is an error.
func (x Tensor) Bincount(bins int) Tensor {
	t := tapeOf("bincount", x)
	in := t.integers(x)
	t.checkIndex("bincount", in, in, bins)
	out := t.newTensor(Int64, bins)
	switch {
	case in.n == 0:
		t.fill(out, 0)
	case bins > 0:
		t.Args(OpBincount, Int64).out(out).in(in)
		t.Launch()
	}
	out.ty = in.ty.With(in.ty.On(Varying), Partial)
	return out.tensor()
}

func bincountKernel(_ Queue, a *Args) {
	counts := slice[int64](a, 0)
	clear(counts)
	for _, v := range slice[int64](a, 1) {
		counts[v]++
	}
}
