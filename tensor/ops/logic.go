package ops

import (
	"errors"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The operations of And and Or.
var OpAnd, OpOr tensor.Op

func init() {
	OpAnd = registerAll(tensor.OpSpec{Name: "and", Const: true}, kernels{tensor.Bool: cpu.Zip(kernel.Min[uint8])})
	OpOr = registerAll(tensor.OpSpec{Name: "or", Const: true}, kernels{tensor.Bool: cpu.Zip(kernel.Max[uint8])})
}

// And returns x && y of Bool tensors, broadcast.
func And(x, y tensor.Tensor) tensor.Tensor { return OpAnd.Binary(x, y) }

// Or returns x || y of Bool tensors, broadcast. The exclusive or is Ne.
func Or(x, y tensor.Tensor) tensor.Tensor { return OpOr.Binary(x, y) }

// Not returns !x of a Bool tensor.
func Not(x tensor.Tensor) tensor.Tensor {
	if x.DType() != tensor.Bool {
		panic(&tensor.Failure{Op: "not", Shapes: []tensor.Shape{x.Shape()}, Err: errors.New("needs bool")})
	}
	t := tensor.OpEq.Tape(x)
	no := t.New(tensor.Bool)
	t.Fill(no, 0)
	return x.Eq(no)
}
