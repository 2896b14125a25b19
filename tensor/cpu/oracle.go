package cpu

import (
	"math"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// reference holds the plain kernels where these differ from the fast ones. All other kernels are compared with their own result on one
// thread.
var reference = map[tensor.Op]kernels{
	tensor.OpMatMul: {tensor.Float32: refMatMul[float32](), tensor.Float64: refMatMul[float64](),
		tensor.BFloat16: ThroughFloat32(refMatMul[float32]()), tensor.Float16: ThroughFloat32(refMatMul[float32]())},
}

func refMatMul[T kernel.Float]() tensor.Kernel {
	return func(_ tensor.Queue, a *tensor.Args) {
		var l GemmWorkspace[T]
		for b := range a.Dim[0] {
			l.set(a, b)
			kernel.RefGemm(&l.Gemm)
		}
	}
}

// oracle runs a kernel, and the reference on copies of its operands, and compares the results. It also checks that the kernel did not
// change its inputs.
type oracle struct {
	d *Device
	q *Queue // of one thread
}

// Checked returns what checks a launch in debug mode.
func (d *Device) Checked() func(k tensor.Kernel, q tensor.Queue, a *tensor.Args) {
	pool := &pool{n: 1, grain: grainElems}
	return (&oracle{d, &Queue{pool: pool, half: scratch{use: new(memory.Counter)}}}).launch
}

func (o *oracle) launch(k tensor.Kernel, q tensor.Queue, a *tensor.Args) {
	if len(a.List) > 0 {
		k(q, a)
		return
	}
	before, want := cloneArgs(a), cloneArgs(a)
	var bound *tensor.Args // of the error: the result of the operation on absolute values, in units of rounding errors
	ref := reference[a.Op][a.DType]
	if ref == nil {
		k(o.q, want)
	} else {
		bound = cloneArgs(a)
		for i := range a.N {
			o.absolute(bound, i)
		}
		ref(o.q, want)
		ref(o.q, bound)
	}
	k(q, a)
	for i := range a.N {
		if i < a.Outs {
			o.compare(a, want, bound, i, "differs from the reference")
		} else if !aliases(a, i) {
			o.compare(a, before, nil, i, "was written to by the kernel")
		}
	}
}

func cloneArgs(a *tensor.Args) *tensor.Args {
	c := *a
	for i := range a.N {
		c.X[i] = cloneOperand(a, i)
	}
	return &c
}

// absolute makes operand i, floats, its absolute values.
func (o *oracle) absolute(a *tensor.Args, i int) {
	x := tensor.Args{Op: tensor.OpAbs, DType: a.DT[i], Outs: 1, N: 2}
	for k := range x.N {
		x.X[k], x.Len[k], x.DT[k] = a.X[i], a.Len[i], a.DT[i]
	}
	table[x.Op][x.DType](o.q, &x)
}

func aliases(a *tensor.Args, i int) bool {
	for j := range a.Outs {
		lo, hi := uintptr(a.X[j]), uintptr(a.X[j])+uintptr(a.Len[j]*a.DT[j].Size())
		if p := uintptr(a.X[i]); p < hi && p+uintptr(a.Len[i]*a.DT[i].Size()) > lo {
			return true
		}
	}
	return false
}

func cloneOperand(a *tensor.Args, i int) tensor.Ptr {
	if a.X[i] == nil {
		return nil
	}
	n := a.Len[i] * a.DT[i].Size()
	p := alignedBytes(max(n, 1))
	copy(unsafe.Slice((*byte)(p), n), unsafe.Slice((*byte)(a.X[i]), n))
	return p
}

// roundings is one unit in the last place of an output, relative to its value. When two nearly equal sums are rounded to the type in which
// they are stored, they may differ by this much.
var roundings = map[tensor.DType]float64{tensor.Float32: 0, tensor.Float64: 0, tensor.BFloat16: 0x1p-7, tensor.Float16: 0x1p-10}

func (o *oracle) compare(got, want, bound *tensor.Args, i int, what string) {
	if got.X[i] == nil {
		return
	}
	eps := 0x1p-23
	if got.DT[i] == tensor.Float64 {
		eps = 0x1p-52
	}
	var sums []float64
	if bound != nil {
		sums = o.values(bound, i)
	}
	wants := o.values(want, i)
	for j, x := range o.values(got, i) {
		y := wants[j]
		if x == y || x != x && y != y {
			continue
		}
		if bound != nil {
			if math.Abs(x-y) <= float64(4*eps*math.Sqrt(float64(got.Dim[3]+16))*sums[j])+float64(roundings[got.DT[i]]*math.Abs(y))+0x1p-126 {
				continue
			}
		}
		got.Op.Fail(nil, "operand %d element %d is %v, want %v: it %s", i, j, x, y, what)
	}
}

// values are the elements of operand i.
func (o *oracle) values(a *tensor.Args, i int) []float64 {
	return tensor.Floats(tensor.FromPtr(o.d, a.X[i], a.DT[i], a.Len[i]))
}
