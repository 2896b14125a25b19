package tensor

func init() {
	define(OpAnd, OpSpec{Name: "and", Const: true})
	define(OpOr, OpSpec{Name: "or", Const: true})
}

// And returns x && y of Bool tensors, broadcast.
func (x Tensor) And(y Tensor) Tensor { return binaryOp(OpAnd, x, y) }

// Or returns x || y of Bool tensors, broadcast. The exclusive or is Ne.
func (x Tensor) Or(y Tensor) Tensor { return binaryOp(OpOr, x, y) }

// Not returns !x of a Bool tensor.
func (x Tensor) Not() Tensor {
	t := tapeOf("not", x)
	in := t.arg(x)
	if in.dtype != Bool {
		fail("not", these(in), "needs bool")
	}
	no := t.newTensor(Bool)
	t.fill(no, 0)
	return x.Eq(no.tensor())
}
