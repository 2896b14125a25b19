package ops

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

var registered []tensor.Op

// register is registerAll with kernels for float32 and float64 alone, which may be nil.
func register(s tensor.OpSpec, f32, f64 tensor.Kernel) tensor.Op {
	return registerAll(s, floats(f32, f64, nil))
}

// registerAll registers an operation and its kernels for the CPU.
func registerAll(s tensor.OpSpec, k kernels) tensor.Op {
	op := cpu.Register(tensor.Register(s), k)
	registered = append(registered, op)
	return op
}

// All returns the operations of package tensor and of this one: what a device should have kernels for.
func All() []tensor.Op {
	var list []tensor.Op
	for op := range tensor.BuiltinOps {
		list = append(list, op)
	}
	return append(list, registered...)
}

// kernels are those of an operation, by element type.
type kernels = [tensor.NumDTypes]tensor.Kernel

// floats are kernels for floats. Without one for bfloat16, those of 16 bits are computed through float32.
func floats(f32, f64, bf16 tensor.Kernel) (k kernels) {
	k[tensor.Float32], k[tensor.Float64], k[tensor.BFloat16] = f32, f64, bf16
	return k
}

// numbers are kernels for floats and integers.
func numbers(f32, f64, i32, i64, u8 tensor.Kernel) kernels {
	k := floats(f32, f64, nil)
	k[tensor.Int32], k[tensor.Int64], k[tensor.Uint8] = i32, i64, u8
	return k
}

// maybeIn adds an input that may be absent, maybeOut an output.
func maybeIn(a *tensor.Args, x tensor.Tensor) *tensor.Args {
	if x.IsZero() {
		return a.None()
	}
	return a.In(x)
}

func maybeOut(a *tensor.Args, x tensor.Tensor) {
	if x.IsZero() {
		a.Outs++
		a.None()
	} else {
		a.Out(x)
	}
}

// float is the element type of a kernel.
type float interface{ float32 | float64 }

// number is the element type of a kernel for integers, too.
type number interface {
	float | int32 | int64 | uint8
}

// dims are the dimensions of a tensor.
type dims [tensor.MaxNDim]int

func dimsOf(x tensor.Tensor) (d dims, rank int) {
	rank = x.NDim()
	for i := range rank {
		d[i] = x.Dim(i)
	}
	return d, rank
}

// axis is dimension i of x; negative ones count from the end.
func axis(op tensor.Op, x tensor.Tensor, i int) int {
	k := i
	if k < 0 {
		k += x.NDim()
	}
	if k < 0 || k >= x.NDim() {
		op.Fail([]tensor.Tensor{x}, "no dimension %d", i)
	}
	return k
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// statType is the type in which an operation on type d keeps its statistics.
func statType(d tensor.DType) tensor.DType {
	if d.IsHalf() {
		return tensor.Float32
	}
	return d
}

// checkLinear fails unless x·wᵀ exists, as tensor.Linear does.
func checkLinear(x, w tensor.Tensor) {
	in := []tensor.Tensor{x, w}
	tensor.OpLinear.SameDType(in...)
	if x.NDim() < 1 || w.NDim() != 2 {
		tensor.OpLinear.Fail(in, "wants an input [..., in], a weight [out, in] and a bias [out]")
	}
	mustMatch(tensor.OpLinear, x, x.NDim()-1, "the input", w, 1, "the weight", in...)
}

// mustMatch fails unless dimension i of a is equal to dimension j of b. The roles name the operands in the error.
func mustMatch(op tensor.Op, a tensor.Tensor, i int, role string, b tensor.Tensor, j int, other string, in ...tensor.Tensor) {
	if a.Dim(i) != b.Dim(j) {
		op.Fail(in, "dimension %d of %s is %d, dimension %d of %s is %d", i, a.NameOr(role), a.Dim(i), j, b.NameOr(other), b.Dim(j))
	}
}

// mustBeAlike fails unless a and b have the same shape.
func mustBeAlike(op tensor.Op, a tensor.Tensor, role string, b tensor.Tensor, other string, in ...tensor.Tensor) {
	mustBeAlikeBut(op, -1, a, role, b, other, in...)
}

// mustBeAlikeBut is mustBeAlike of all dimensions but dim.
func mustBeAlikeBut(op tensor.Op, dim int, a tensor.Tensor, role string, b tensor.Tensor, other string, in ...tensor.Tensor) {
	if a.NDim() != b.NDim() {
		op.Fail(in, "%s: %s, %s: %s", a.NameOr(role), dimensions(a.NDim()), b.NameOr(other), dimensions(b.NDim()))
	}
	for i := range a.NDim() {
		if i != dim {
			mustMatch(op, a, i, role, b, i, other, in...)
		}
	}
}

func dimensions(n int) string {
	if n == 1 {
		return "1 dimension"
	}
	return fmt.Sprintf("%d dimensions", n)
}

// rowCount is the number of rows of x's last dimension.
func rowCount(x tensor.Tensor) int {
	d, n := dimsOf(x)
	return product(d[:n-1])
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func outLen(a *tensor.Args) int { return a.Len[0] }
func dim0(a *tensor.Args) int   { return a.Dim[0] }
func dim1(a *tensor.Args) int   { return a.Dim[1] }
func one(*tensor.Args) int      { return 1 }
