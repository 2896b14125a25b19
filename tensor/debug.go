package tensor

import (
	"math"
	"os"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// debugMode is set by RINGO_DEBUG=1. It fills new and freed step memory with NaN, and runs each kernel against the reference.
var debugMode = os.Getenv("RINGO_DEBUG") == "1"

// reference holds the plain kernels where these differ from the fast ones. All other kernels are compared with their own result on one
// thread.
var reference = map[Op][NumDTypes]Kernel{
	OpMatMul: {Float32: refMatMul[float32](), Float64: refMatMul[float64](),
		BFloat16: ThroughFloat32(refMatMul[float32]()), Float16: ThroughFloat32(refMatMul[float32]())},
}

func refMatMul[T kernel.Float]() Kernel {
	return func(_ Queue, a *Args) {
		var l GemmWorkspace[T]
		for b := range a.Dim[0] {
			l.set(a, b)
			kernel.RefGemm(&l.Gemm)
		}
	}
}

// oracle runs a kernel, and the reference on copies of its operands, and compares the results. It also checks that the kernel did not
// change its inputs.
type oracle struct{ q *CPUQueue }

func (o *oracle) launch(e *Exec, k Kernel) {
	a := &e.a
	if !e.dev.Host() || len(a.List) > 0 {
		k(e.q, a)
		return
	}
	before, want := cloneArgs(a), cloneArgs(a)
	if o.q == nil {
		o.q = &CPUQueue{pool: &pool{n: 1, grain: grainElems}, half: scratch{use: new(Memory)}}
	}
	var bound *Args // of the error: the result of the operation on absolute values, in units of rounding errors
	ref := reference[a.Op][a.DType]
	if ref == nil {
		k(o.q, want)
	} else {
		bound = cloneArgs(a)
		for i := range a.N {
			absolute(bound, i)
		}
		ref(o.q, want)
		ref(o.q, bound)
	}
	k(e.q, a)
	for i := range a.N {
		if i < a.Outs {
			compareOperand(a, want, bound, i, "differs from the reference")
		} else if !aliases(a, i) {
			compareOperand(a, before, nil, i, "was written to by the kernel")
		}
	}
}

func cloneArgs(a *Args) *Args {
	c := *a
	for i := range a.N {
		c.X[i] = cloneOperand(a, i)
	}
	return &c
}

func absolute(a *Args, i int) {
	for j := range a.Len[i] {
		storeFloat(a.X[i], a.DT[i], j, math.Abs(loadFloat(a.X[i], a.DT[i], j)))
	}
}

func aliases(a *Args, i int) bool {
	for j := range a.Outs {
		lo, hi := uintptr(a.X[j]), uintptr(a.X[j])+uintptr(a.Len[j]*a.DT[j].Size())
		if p := uintptr(a.X[i]); p < hi && p+uintptr(a.Len[i]*a.DT[i].Size()) > lo {
			return true
		}
	}
	return false
}

func cloneOperand(a *Args, i int) Ptr {
	if a.X[i] == nil {
		return nil
	}
	n := a.Len[i] * a.DT[i].Size()
	p, _ := alignedBytes(max(n, 1))
	copy(unsafe.Slice((*byte)(p), n), unsafe.Slice((*byte)(a.X[i]), n))
	return p
}

// roundings is one unit in the last place of an output, relative to its value. When two nearly equal sums are rounded to the type in which
// they are stored, they may differ by this much.
var roundings = map[DType]float64{Float32: 0, Float64: 0, BFloat16: 0x1p-7, Float16: 0x1p-10}

func compareOperand(got, want, bound *Args, i int, what string) {
	if got.X[i] == nil {
		return
	}
	eps := 0x1p-23
	if got.DT[i] == Float64 {
		eps = 0x1p-52
	}
	for j := range got.Len[i] {
		x, y := loadFloat(got.X[i], got.DT[i], j), loadFloat(want.X[i], got.DT[i], j)
		if x == y || x != x && y != y {
			continue
		}
		if bound != nil {
			sum := loadFloat(bound.X[i], got.DT[i], j)
			if math.Abs(x-y) <= float64(4*eps*math.Sqrt(float64(got.Dim[3]+16))*sum)+float64(roundings[got.DT[i]]*math.Abs(y))+0x1p-126 {
				continue
			}
		}
		fail(got.Op.String(), nil, "operand %d element %d is %v, want %v: it %s", i, j, x, y, what)
	}
}
