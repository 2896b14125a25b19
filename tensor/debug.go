package tensor

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// debugMode, set by RINGO_DEBUG=1, fills step memory that is new or freed with NaN, refuses writes to borrowed step
// memory, and runs each kernel against the reference.
var debugMode = os.Getenv("RINGO_DEBUG") == "1"

// reference holds the kernels that differ from the fast ones; all other cells are the reference themselves, and are
// compared with one thread's result.
var reference = map[Op][NumDTypes]Kernel{
	OpMatMul: {Float32: refMatMul[float32](), Float64: refMatMul[float64](),
		BFloat16: via32(refMatMul[float32]()), Float16: via32(refMatMul[float32]())},
}

func refMatMul[T kernel.Float]() Kernel {
	return func(_ Queue, a *Args) {
		var l gemmLane[T]
		for b := range a.Dim[0] {
			l.set(a, b)
			kernel.RefGemm(&l.g)
		}
	}
}

// oracle runs a kernel on copies of its operands by the reference and compares. It also checks that the kernel left
// its inputs alone.
type oracle struct{}

func (oracle) launch(e *Exec, k Kernel) {
	a := &e.a
	if !e.dev.Host() || len(a.List) > 0 {
		k(e.q, a)
		return
	}
	ref, tol := reference[a.Op][a.DType], referenceTolerance(a)
	if ref == nil {
		ref, tol = k, 0
	}
	want := *a
	for i := range a.N {
		want.X[i] = cloneOperand(a, i)
	}
	before := want
	for i := range a.N {
		before.X[i] = cloneOperand(a, i)
	}
	k(e.q, a)
	ref(NewCPU(1).Queue(0), &want)
	for i := range a.N {
		if i < a.Outs {
			compareOperand(a, &want, i, tol, "differs from the reference")
		} else if !aliases(a, i) {
			compareOperand(a, &before, i, 0, "was written to by the kernel")
		}
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

func referenceTolerance(a *Args) float64 {
	eps := map[DType]float64{Float32: 1.2e-7, Float64: 2.3e-16, BFloat16: 8e-3, Float16: 1e-3}[a.DType]
	return 8 * eps * math.Sqrt(float64(a.Dim[3]+16))
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

func compareOperand(got, want *Args, i int, tol float64, what string) {
	if got.X[i] == nil {
		return
	}
	for j := range got.Len[i] {
		x, y := loadFloat(got.X[i], got.DT[i], j), loadFloat(want.X[i], got.DT[i], j)
		if x == y || x != x && y != y || math.Abs(x-y) <= tol*(1+math.Abs(y)) {
			continue
		}
		panic(&Failure{Op: got.Op.String(), Err: fmt.Errorf("operand %d element %d is %v, want %v: it %s", i, j, x, y, what)})
	}
}
