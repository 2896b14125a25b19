package tensor

import "github.com/ringo-ml/ringo/tensor/typing"

// The built-in operations. The tape records those that users call; the others are steps of rules.
const (
	OpApply Op = iota
	OpAux
	OpCheckpoint

	OpCopy // strided copy, also to a broadcast shape
	OpAddTo
	OpFill
	OpCast
	OpReshape
	OpPermute
	OpSlice
	OpConcat
	OpBroadcast

	OpAdd
	OpSub
	OpMul
	OpDiv
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpAffine

	OpNeg
	OpAbs
	OpExp
	OpLog
	OpSqrt
	OpSquare
	OpRecip
	OpSin
	OpCos
	OpTanh
	OpSigmoid
	OpReLU
	OpGELU
	OpGELUTanh
	OpSiLU
	OpAbsGrad
	OpSqrtGrad
	OpSquareGrad
	OpRecipGrad
	OpSinGrad
	OpCosGrad
	OpTanhGrad
	OpSigmoidGrad
	OpReLUGrad
	OpGELUGrad
	OpGELUTanhGrad
	OpSiLUGrad

	OpMatMul
	OpLinear
	OpLinearAct
	OpActGrad
	OpLinearAdd
	OpLinearGradX
	OpLinearGradW
	OpLinears // several layers of one input
	OpColSum

	OpSum

	OpSumSquares
	OpGradNorm
	OpClip
	OpSGD
	OpAdam

	OpSecond // a second result of the operation before
	numBuiltin
)

// BuiltinOps is the number of built-in operations; registered ones have this number or a larger one.
const BuiltinOps = numBuiltin

// rules is the table of the built-in operations and their gradient rules. Their kernels on the CPU are in package cpu. An operation with
// its own file is defined there, by an init function.
var rules = map[Op]OpSpec{
	OpApply:      {Name: "apply", VJP: applyVJP, Compute: computeLate},
	OpAux:        {Name: "aux", Class: typing.Linear, VJP: auxVJP},
	OpCheckpoint: {Name: "checkpoint", Saves: SaveAll &^ SaveOut, VJP: checkpointVJP},

	OpCopy:      {Name: "copy", Class: typing.Linear, VJP: passVJP},
	OpAddTo:     {Name: "addto", Const: true},
	OpFill:      {Name: "fill", Const: true},
	OpCast:      {Name: "cast", Class: typing.Linear, VJP: castVJP},
	OpReshape:   {Name: "reshape", Class: typing.Linear, VJP: passVJP},
	OpPermute:   {Name: "permute", Class: typing.Linear, VJP: permuteVJP},
	OpSlice:     {Name: "slice", Class: typing.Linear, VJP: sliceVJP},
	OpConcat:    {Name: "concat", Class: typing.Linear, VJP: concatVJP},
	OpBroadcast: {Name: "broadcast", Class: typing.Linear, VJP: broadcastVJP},

	OpAdd:    {Name: "add", Class: typing.Linear, VJP: addVJP},
	OpSub:    {Name: "sub", Class: typing.Linear, VJP: subVJP},
	OpMul:    {Name: "mul", Class: typing.Multilinear, Saves: 3, VJP: mulVJP},
	OpDiv:    {Name: "div", Class: typing.Ratio, Saves: 2 | SaveOut, VJP: divVJP},
	OpEq:     {Name: "eq", Const: true},
	OpNe:     {Name: "ne", Const: true},
	OpLt:     {Name: "lt", Const: true},
	OpLe:     {Name: "le", Const: true},
	OpGt:     {Name: "gt", Const: true},
	OpGe:     {Name: "ge", Const: true},
	OpAffine: {Name: "affine", Class: typing.Linear, VJP: affineVJP},

	OpNeg:      {Name: "neg", Class: typing.Linear, VJP: negVJP},
	OpAbs:      {Name: "abs", Saves: 1, VJP: unaryVJP(OpAbsGrad, 0)},
	OpExp:      {Name: "exp", Saves: SaveOut, VJP: unaryVJP(OpMul, -1)},
	OpLog:      {Name: "log", Saves: 1, VJP: unaryVJP(OpDiv, 0)},
	OpSqrt:     {Name: "sqrt", Saves: SaveOut, VJP: unaryVJP(OpSqrtGrad, -1)},
	OpSquare:   {Name: "square", Saves: 1, VJP: unaryVJP(OpSquareGrad, 0)},
	OpRecip:    {Name: "recip", Saves: SaveOut, VJP: unaryVJP(OpRecipGrad, -1)},
	OpSin:      {Name: "sin", Saves: 1, VJP: unaryVJP(OpSinGrad, 0)},
	OpCos:      {Name: "cos", Saves: 1, VJP: unaryVJP(OpCosGrad, 0)},
	OpTanh:     {Name: "tanh", Saves: SaveOut, VJP: unaryVJP(OpTanhGrad, -1)},
	OpSigmoid:  {Name: "sigmoid", Saves: SaveOut, VJP: unaryVJP(OpSigmoidGrad, -1)},
	OpReLU:     {Name: "relu", Saves: SaveOut, VJP: unaryVJP(OpReLUGrad, -1)},
	OpGELU:     {Name: "gelu", Saves: 1, VJP: unaryVJP(OpGELUGrad, 0)},
	OpGELUTanh: {Name: "gelu_tanh", Saves: 1, VJP: unaryVJP(OpGELUTanhGrad, 0)},
	OpSiLU:     {Name: "silu", Saves: 1, VJP: unaryVJP(OpSiLUGrad, 0)},

	OpAbsGrad:      {Name: "abs_grad", Const: true},
	OpSqrtGrad:     {Name: "sqrt_grad", Const: true},
	OpSquareGrad:   {Name: "square_grad", Const: true},
	OpRecipGrad:    {Name: "recip_grad", Const: true},
	OpSinGrad:      {Name: "sin_grad", Const: true},
	OpCosGrad:      {Name: "cos_grad", Const: true},
	OpTanhGrad:     {Name: "tanh_grad", Const: true},
	OpSigmoidGrad:  {Name: "sigmoid_grad", Const: true},
	OpReLUGrad:     {Name: "relu_grad", Const: true},
	OpGELUGrad:     {Name: "gelu_grad", Const: true},
	OpGELUTanhGrad: {Name: "gelu_tanh_grad", Const: true},
	OpSiLUGrad:     {Name: "silu_grad", Const: true},

	OpMatMul:      {Name: "matmul", Class: typing.Multilinear, Saves: 3, VJP: matmulVJP},
	OpLinear:      {Name: "linear", Class: typing.Multilinear, Saves: 3, VJP: linearVJP},
	OpLinearAct:   {Name: "linear_act", Saves: 3 | SaveOut, VJP: linearActVJP, Optional: true},
	OpActGrad:     {Name: "act_grad", Const: true, Optional: true},
	OpLinearAdd:   {Name: "linear_add", Class: typing.Multilinear, Saves: 3, VJP: linearAddVJP, Optional: true},
	OpLinearGradX: {Name: "linear_grad_x", Const: true, Optional: true},
	OpLinearGradW: {Name: "linear_grad_w", Const: true, Optional: true},
	OpLinears:     {Name: "linears", Const: true, Optional: true},
	OpColSum:      {Name: "colsum", Const: true},

	OpSum: {Name: "sum", Class: typing.Linear, VJP: sumVJP},

	OpSumSquares: {Name: "sum_squares", Const: true},
	OpGradNorm:   {Name: "grad_norm", Const: true},
	OpClip:       {Name: "clip", Const: true},
	OpSGD:        {Name: "sgd", Const: true},
	OpAdam:       {Name: "adam", Const: true},
}

func init() {
	for op, s := range rules {
		define(op, s)
	}
}
