package gorgonia

import (
	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Add returns a + b.
func (e *Engine) Add(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.binary(tensor.OpAdd, e.StdEng.Add, a, b, opts)
}

// Sub returns a − b.
func (e *Engine) Sub(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.binary(tensor.OpSub, e.StdEng.Sub, a, b, opts)
}

// Mul returns a·b, element by element.
func (e *Engine) Mul(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.binary(tensor.OpMul, e.StdEng.Mul, a, b, opts)
}

// Div returns a/b.
func (e *Engine) Div(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.binary(tensor.OpDiv, e.StdEng.Div, a, b, opts)
}

// Lt returns a < b.
func (e *Engine) Lt(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.compare(tensor.OpLt, e.StdEng.Lt, a, b, opts)
}

// Lte returns a ≤ b.
func (e *Engine) Lte(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.compare(tensor.OpLe, e.StdEng.Lte, a, b, opts)
}

// Gt returns a > b.
func (e *Engine) Gt(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.compare(tensor.OpGt, e.StdEng.Gt, a, b, opts)
}

// Gte returns a ≥ b.
func (e *Engine) Gte(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.compare(tensor.OpGe, e.StdEng.Gte, a, b, opts)
}

// ElEq returns a = b.
func (e *Engine) ElEq(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.compare(tensor.OpEq, e.StdEng.ElEq, a, b, opts)
}

// ElNe returns a ≠ b.
func (e *Engine) ElNe(a, b gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.compare(tensor.OpNe, e.StdEng.ElNe, a, b, opts)
}

// Neg returns −a.
func (e *Engine) Neg(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpNeg, e.StdEng.Neg, a, opts)
}

// Inv returns 1/a.
func (e *Engine) Inv(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpRecip, e.StdEng.Inv, a, opts)
}

// Square returns a².
func (e *Engine) Square(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpSquare, e.StdEng.Square, a, opts)
}

// Sqrt returns √a.
func (e *Engine) Sqrt(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpSqrt, e.StdEng.Sqrt, a, opts)
}

// Abs returns |a|.
func (e *Engine) Abs(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpAbs, e.StdEng.Abs, a, opts)
}

// Exp returns eᵃ.
func (e *Engine) Exp(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpExp, e.StdEng.Exp, a, opts)
}

// Log returns the natural logarithm of a.
func (e *Engine) Log(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpLog, e.StdEng.Log, a, opts)
}

// Tanh returns the hyperbolic tangent of a.
func (e *Engine) Tanh(a gt.Tensor, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.unary(tensor.OpTanh, e.StdEng.Tanh, a, opts)
}

// SoftMax returns eᵃ normalized to sum 1 along an axis.
func (e *Engine) SoftMax(a gt.Tensor, axis int, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.lastAxis(ops.OpSoftmax, e.StdEng.SoftMax, a, axis, opts)
}

// LogSoftMax returns the logarithm of SoftMax.
func (e *Engine) LogSoftMax(a gt.Tensor, axis int, opts ...gt.FuncOpt) (gt.Tensor, error) {
	return e.lastAxis(ops.OpLogSoftmax, e.StdEng.LogSoftMax, a, axis, opts)
}
