package cuda

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// zipped launches k(z, x, y, places) for operands with strides.
func zipped(q *Queue, k *kernel, a *tensor.Args) {
	s, size := &q.s, a.DT[1].Size()
	s.set(a, 3)
	n := 16 / size
	if s.lines(0, a.X[0], a.DT[0].Size(), n, false) && s.lines(1, a.X[1], size, n, true) && s.lines(2, a.X[2], size, n, true) {
		s.vec = 1
	}
	q.ptrs(a, 3).places().spread(k, s.items(n))
}

// addTo launches k(y, x, places).
func addTo(q *Queue, k *kernel, a *tensor.Args) {
	s, size := &q.s, a.DT[0].Size()
	s.set(a, 2)
	n := 16 / size
	if s.lines(0, a.X[0], size, n, false) && s.lines(1, a.X[1], size, n, false) {
		s.vec = 1
	}
	q.ptrs(a, 2).places().spread(k, s.items(n))
}

// items is the number of items of a kernel: vectors of n elements, or single elements.
func (s *strided) items(n int) int {
	if s.vec == 0 {
		return int(s.n)
	}
	return int(s.n)/n + 1
}

func binary(name string) [tensor.NumDTypes]tensor.Kernel { return numbers("arith.cu", name, zipped) }

// boolean makes a row of the table for Bool, with a kernel for bytes: they are 0 or 1.
func boolean(name string) (r [tensor.NumDTypes]tensor.Kernel) {
	r[tensor.Bool] = cell(newKernel("arith.cu", name, elems[tensor.Uint8]), zipped)
	return r
}

func compare(name string) [tensor.NumDTypes]tensor.Kernel {
	r := binary(name)
	r[tensor.Bool] = boolean(name)[tensor.Bool]
	return r
}

var arithKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpAddTo: numbers("arith.cu", "add_to", addTo),
	tensor.OpAdd:   binary("add"),
	tensor.OpSub:   binary("sub"),
	tensor.OpMul:   binary("mul"),
	tensor.OpDiv:   binary("div_"),
	ops.OpMaximum:  binary("maximum"),
	ops.OpMinimum:  binary("minimum"),
	ops.OpPow:      floats("arith.cu", "pow_", zipped),
	tensor.OpEq:    compare("eq"),
	tensor.OpNe:    compare("ne"),
	tensor.OpLt:    compare("lt"),
	tensor.OpLe:    compare("le"),
	tensor.OpGt:    compare("gt"),
	tensor.OpGe:    compare("ge"),
}
