package gorgonia

import (
	"sync"
	"unsafe"

	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Engine computes gorgonia's arrays with Ringo's kernels. Give it to arrays by gt.WithEngine(e). It embeds gt.StdEng, and replaces these
// operations on arrays of float32 and float64:
//
//   - Add, Sub, Mul, Div; Neg, Inv, Square, Sqrt, Abs, Exp, Log, Tanh, also with WithReuse and UseUnsafe;
//   - Lt, Lte, Gt, Gte, ElEq, ElNe, SoftMax and LogSoftMax of the last axis, without options;
//   - MatMul and MatVecMul, also of transposed and column-major matrices, Inner, Outer.
//
// gt.StdEng computes all else: scalars, other types, arrays that are not row-major without gaps (iterators), masks, WithIncr, memory that
// overlaps in part.
//
// The results have the same bits as gt.StdEng's, with these exceptions. Matrix products sum in another order. Exp, Log and Tanh of float32
// are within 3 ulp of the exact values; gt.StdEng's Exp has errors of up to a hundred ulp, and is infinite from 88.4 on. A division by zero
// follows IEEE 754; gt.StdEng's result is +Inf for every number, also for zero. SoftMax and LogSoftMax differ in their last bits.
//
// Operations of several goroutines run one after the other; each uses all threads of the device.
type Engine struct {
	gt.StdEng
	mu   sync.Mutex // for exec and its arguments
	exec *tensor.Exec
}

// NewEngine returns an Engine that computes on dev, which must stay open as long as arrays use it.
func NewEngine(dev *cpu.Device) *Engine { return &Engine{exec: tensor.NewExec(dev)} }

// launch computes one operation on whole arrays. set, if not nil, sets the attributes of the operation.
func (e *Engine) launch(op tensor.Op, set func(a *tensor.Args), out tensor.Tensor, ins ...tensor.Tensor) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.exec.Args(op, ins[0].DType()).Out(out)
	for _, x := range ins {
		a.In(x)
	}
	a.NDim, a.Dim[0] = 1, out.Len()
	a.Stride[0][0], a.Stride[1][0], a.Stride[2][0] = 1, 1, 1
	if set != nil {
		set(a)
	}
	e.exec.Launch()
}

// floats returns a Dense of floats as a tensor on the same memory; ok is false if the kernels cannot use it.
func floats(t gt.Tensor) (x tensor.Tensor, ok bool) {
	d, isDense := t.(*gt.Dense)
	if !isDense || d.IsScalar() || d.Dtype() != gt.Float32 && d.Dtype() != gt.Float64 {
		return x, false
	}
	x, err := FromDense(d)
	return x, err == nil
}

// newLike returns a new array of a's shape and engine.
func newLike(a gt.Tensor, t gt.Dtype) *gt.Dense {
	return gt.New(gt.Of(t), gt.WithShape(a.Shape().Clone()...), gt.WithEngine(a.Engine()))
}

// apart reports whether writing to out cannot change inputs that are still to be read: each input is out itself, or does not overlap it.
func apart(out tensor.Tensor, ins ...tensor.Tensor) bool {
	for _, x := range ins {
		if !disjoint(out, x) && (out.Ptr() != x.Ptr() || out.Len() != x.Len()) {
			return false
		}
	}
	return true
}

// disjoint reports whether x and y share no memory.
func disjoint(x, y tensor.Tensor) bool {
	a, b := x.Bytes(), y.Bytes()
	at := func(s []byte, i int) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) + uintptr(i) }
	return at(a, len(a)) <= at(b, 0) || at(b, len(b)) <= at(a, 0)
}

// target returns where an operation on a writes its result, by the options, as in gt.StdEng; ok is false if the kernels cannot do that.
func target(a gt.Tensor, x tensor.Tensor, opts []gt.FuncOpt) (ret gt.Tensor, out tensor.Tensor, ok bool) {
	o := gt.ParseFuncOpts(opts...)
	reuse, incr := o.IncrReuse()
	switch {
	case incr:
		return nil, out, false
	case reuse != nil:
		ret = reuse
	case !o.Safe():
		ret = a
	default:
		ret = newLike(a, a.Dtype())
	}
	out, ok = floats(ret)
	return ret, out, ok && out.DType() == x.DType() && ret.Shape().Eq(a.Shape())
}

// standard is an operation of gt.StdEng on two arrays.
type standard func(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error)

// binary computes op(a, b); if the kernels cannot, std does.
func (e *Engine) binary(op tensor.Op, std standard, a, b gt.Tensor, opts []gt.FuncOpt) (gt.Tensor, error) {
	x, okX := floats(a)
	y, okY := floats(b)
	if !okX || !okY || x.DType() != y.DType() || !a.Shape().Eq(b.Shape()) {
		return std(a, b, opts...)
	}
	ret, out, ok := target(a, x, opts)
	if !ok || !apart(out, x, y) {
		return std(a, b, opts...)
	}
	e.launch(op, nil, out, x, y)
	return ret, nil
}

// compare computes an array of bool; if the kernels cannot, std does.
func (e *Engine) compare(op tensor.Op, std standard, a, b gt.Tensor, opts []gt.FuncOpt) (gt.Tensor, error) {
	x, okX := floats(a)
	y, okY := floats(b)
	if !okX || !okY || x.DType() != y.DType() || !a.Shape().Eq(b.Shape()) || len(opts) > 0 {
		return std(a, b, opts...)
	}
	ret := newLike(a, gt.Bool)
	out, err := FromDense(ret)
	if err != nil {
		return nil, err
	}
	e.launch(op, nil, out, x, y)
	return ret, nil
}

// unary computes op(a); if the kernels cannot, std does.
func (e *Engine) unary(op tensor.Op, std func(gt.Tensor, ...gt.FuncOpt) (gt.Tensor, error), a gt.Tensor,
	opts []gt.FuncOpt) (gt.Tensor, error) {
	x, ok := floats(a)
	if !ok {
		return std(a, opts...)
	}
	ret, out, ok := target(a, x, opts)
	if !ok || !apart(out, x) {
		return std(a, opts...)
	}
	e.launch(op, nil, out, x)
	return ret, nil
}

// lastAxis computes op along the last axis; if the kernels cannot, std does.
func (e *Engine) lastAxis(op tensor.Op, std func(gt.Tensor, int, ...gt.FuncOpt) (gt.Tensor, error), a gt.Tensor, axis int,
	opts []gt.FuncOpt) (gt.Tensor, error) {
	x, ok := floats(a)
	if !ok || axis != a.Dims()-1 && axis != -1 || len(opts) > 0 {
		return std(a, axis, opts...)
	}
	ret := newLike(a, a.Dtype())
	out, err := FromDense(ret)
	if err != nil {
		return nil, err
	}
	cols := x.Dim(x.NDim() - 1)
	e.launch(op, func(a *tensor.Args) { a.NDim, a.Dim[0], a.Dim[1] = 2, x.Len()/cols, cols }, out, x)
	return ret, nil
}
