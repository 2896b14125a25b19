package tensor

import "github.com/ringo-ml/ringo/internal/kernel"

// The built-in operations. The tape records those with a gradient rule; the others are steps of rules.
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
	OpPad
	OpBroadcast

	OpAdd
	OpSub
	OpMul
	OpDiv
	OpMaximum
	OpMinimum
	OpPow
	OpEq
	OpNe
	OpLt
	OpLe
	OpGt
	OpGe
	OpWhere
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
	OpColSum

	OpSum
	OpMax
	OpMin
	OpSoftmax
	OpSoftmaxGrad
	OpSoftmaxCausal
	OpLogSoftmax
	OpLogSoftmaxGrad
	OpLogSumExp
	OpLogSumExpGrad

	OpEmbedding
	OpEmbeddingGrad
	OpGather
	OpScatterAdd
	OpDropout

	OpSumSquares
	OpGradNorm
	OpClip
	OpSGD
	OpAdam

	OpClamp
	OpClampGrad
	OpArange
	OpAnd
	OpOr
	OpSecond // a second result of the operation before
	numBuiltin
)

// BuiltinOps is the number of built-in operations; registered ones have this number or a larger one.
const BuiltinOps = numBuiltin

// rules is the table of the built-in operations: their gradient rules and their kernels on the CPU. An operation with its own file is
// defined there, by an init function.
var rules = map[Op]OpSpec{
	OpApply:      {Name: "apply", VJP: applyVJP, Compute: computeLate},
	OpAux:        {Name: "aux", Class: classAux, VJP: auxVJP},
	OpCheckpoint: {Name: "checkpoint", Saves: SaveAll &^ SaveOut, VJP: checkpointVJP},

	OpCopy: {Name: "copy", Class: ClassLinear, VJP: passVJP,
		CPU: bySize(copyKernel[uint8](), copyKernel[uint16](), copyKernel[uint32](), copyKernel[uint64]())},
	OpAddTo: {Name: "addto", Const: true,
		CPU: withHalf(numbers(addToKernel[float32](), addToKernel[float64](), addToKernel[int32](), addToKernel[int64](), addToKernel[uint8]()),
			addToHalf())},
	OpFill:      {Name: "fill", Const: true, CPU: fillKernels},
	OpCast:      {Name: "cast", Class: ClassLinear, VJP: castVJP, CPU: castKernels},
	OpReshape:   {Name: "reshape", Class: ClassLinear, VJP: reshapeVJP},
	OpPermute:   {Name: "permute", Class: ClassLinear, VJP: permuteVJP},
	OpSlice:     {Name: "slice", Class: ClassLinear, VJP: sliceVJP},
	OpConcat:    {Name: "concat", Class: ClassLinear, VJP: concatVJP},
	OpPad:       {Name: "pad", Class: ClassLinear, VJP: padVJP},
	OpBroadcast: {Name: "broadcast", Class: ClassLinear, VJP: broadcastVJP},

	OpAdd: {Name: "add", Class: ClassLinear, VJP: addVJP,
		CPU: binaries(kernel.Add[float32], kernel.Add[float64], kernel.Add[int32], kernel.Add[int64], kernel.Add[uint8])},
	OpSub: {Name: "sub", Class: ClassLinear, VJP: subVJP,
		CPU: binaries(kernel.Sub[float32], kernel.Sub[float64], kernel.Sub[int32], kernel.Sub[int64], kernel.Sub[uint8])},
	OpMul: {Name: "mul", Class: ClassMultilinear, Saves: 3, VJP: mulVJP,
		CPU: binaries(kernel.Mul[float32], kernel.Mul[float64], kernel.Mul[int32], kernel.Mul[int64], kernel.Mul[uint8])},
	OpDiv: {Name: "div", Class: ClassRatio, Saves: 2 | SaveOut, VJP: divVJP,
		CPU: binaries(kernel.Div[float32], kernel.Div[float64], kernel.Div[int32], kernel.Div[int64], kernel.Div[uint8])},
	OpMaximum: {Name: "maximum", Saves: 3, VJP: extremumVJP,
		CPU: binaries(kernel.Max[float32], kernel.Max[float64], kernel.Max[int32], kernel.Max[int64], kernel.Max[uint8])},
	OpMinimum: {Name: "minimum", Saves: 3, VJP: extremumVJP,
		CPU: binaries(kernel.Min[float32], kernel.Min[float64], kernel.Min[int32], kernel.Min[int64], kernel.Min[uint8])},
	OpPow: {Name: "pow", Saves: 3 | SaveOut, VJP: powVJP, CPU: floats(zip(kernel.Pow[float32]), zip(kernel.Pow[float64]))},
	OpEq: {Name: "eq", Const: true,
		CPU: compares(kernel.Eq[float32], kernel.Eq[float64], kernel.Eq[int32], kernel.Eq[int64], kernel.Eq[uint8])},
	OpNe: {Name: "ne", Const: true,
		CPU: compares(kernel.Ne[float32], kernel.Ne[float64], kernel.Ne[int32], kernel.Ne[int64], kernel.Ne[uint8])},
	OpLt: {Name: "lt", Const: true,
		CPU: compares(kernel.Lt[float32], kernel.Lt[float64], kernel.Lt[int32], kernel.Lt[int64], kernel.Lt[uint8])},
	OpLe: {Name: "le", Const: true,
		CPU: compares(kernel.Le[float32], kernel.Le[float64], kernel.Le[int32], kernel.Le[int64], kernel.Le[uint8])},
	OpGt: {Name: "gt", Const: true,
		CPU: compares(kernel.Gt[float32], kernel.Gt[float64], kernel.Gt[int32], kernel.Gt[int64], kernel.Gt[uint8])},
	OpGe: {Name: "ge", Const: true,
		CPU: compares(kernel.Ge[float32], kernel.Ge[float64], kernel.Ge[int32], kernel.Ge[int64], kernel.Ge[uint8])},
	OpWhere: {Name: "where", Class: ClassSelects, Saves: 1, VJP: whereVJP,
		CPU: bySize(whereKernel[uint8](), whereKernel[uint16](), whereKernel[uint32](), whereKernel[uint64]())},
	OpAffine: {Name: "affine", Class: ClassLinear, VJP: affineVJP, CPU: floats(affineKernel[float32](), affineKernel[float64]())},

	OpNeg:    {Name: "neg", Class: ClassLinear, VJP: negVJP, CPU: maps1(kernel.Neg[float32], kernel.Neg[float64])},
	OpAbs:    {Name: "abs", Saves: 1, VJP: unaryVJP(OpAbsGrad, 0), CPU: maps1(kernel.Abs[float32], kernel.Abs[float64])},
	OpExp:    {Name: "exp", Saves: SaveOut, VJP: unaryVJP(OpMul, -1), CPU: maps1(kernel.Exp[float32], kernel.Exp[float64])},
	OpLog:    {Name: "log", Saves: 1, VJP: unaryVJP(OpDiv, 0), CPU: maps1(kernel.Log[float32], kernel.Log[float64])},
	OpSqrt:   {Name: "sqrt", Saves: SaveOut, VJP: unaryVJP(OpSqrtGrad, -1), CPU: maps1(kernel.Sqrt[float32], kernel.Sqrt[float64])},
	OpSquare: {Name: "square", Saves: 1, VJP: unaryVJP(OpSquareGrad, 0), CPU: maps1(kernel.Square[float32], kernel.Square[float64])},
	OpRecip:  {Name: "recip", Saves: SaveOut, VJP: unaryVJP(OpRecipGrad, -1), CPU: maps1(kernel.Recip[float32], kernel.Recip[float64])},
	OpSin:    {Name: "sin", Saves: 1, VJP: unaryVJP(OpSinGrad, 0), CPU: maps1(kernel.Sin[float32], kernel.Sin[float64])},
	OpCos:    {Name: "cos", Saves: 1, VJP: unaryVJP(OpCosGrad, 0), CPU: maps1(kernel.Cos[float32], kernel.Cos[float64])},
	OpTanh:   {Name: "tanh", Saves: SaveOut, VJP: unaryVJP(OpTanhGrad, -1), CPU: maps1(kernel.Tanh[float32], kernel.Tanh[float64])},
	OpSigmoid: {Name: "sigmoid", Saves: SaveOut, VJP: unaryVJP(OpSigmoidGrad, -1),
		CPU: maps1(kernel.Sigmoid[float32], kernel.Sigmoid[float64])},
	OpReLU: {Name: "relu", Saves: SaveOut, VJP: unaryVJP(OpReLUGrad, -1),
		CPU: withBF16(map1(kernel.ReLUBF16), maps1(kernel.ReLU[float32], kernel.ReLU[float64]))},
	OpGELU: {Name: "gelu", Saves: 1, VJP: unaryVJP(OpGELUGrad, 0), CPU: maps1(kernel.GELU[float32], kernel.GELU[float64])},
	OpGELUTanh: {Name: "gelu_tanh", Saves: 1, VJP: unaryVJP(OpGELUTanhGrad, 0),
		CPU: maps1(kernel.GELUTanh[float32], kernel.GELUTanh[float64])},
	OpSiLU: {Name: "silu", Saves: 1, VJP: unaryVJP(OpSiLUGrad, 0), CPU: maps1(kernel.SiLU[float32], kernel.SiLU[float64])},

	OpAbsGrad:     {Name: "abs_grad", Const: true, CPU: maps2(kernel.AbsGrad[float32], kernel.AbsGrad[float64])},
	OpSqrtGrad:    {Name: "sqrt_grad", Const: true, CPU: maps2(kernel.SqrtGrad[float32], kernel.SqrtGrad[float64])},
	OpSquareGrad:  {Name: "square_grad", Const: true, CPU: maps2(kernel.SquareGrad[float32], kernel.SquareGrad[float64])},
	OpRecipGrad:   {Name: "recip_grad", Const: true, CPU: maps2(kernel.RecipGrad[float32], kernel.RecipGrad[float64])},
	OpSinGrad:     {Name: "sin_grad", Const: true, CPU: maps2(kernel.SinGrad[float32], kernel.SinGrad[float64])},
	OpCosGrad:     {Name: "cos_grad", Const: true, CPU: maps2(kernel.CosGrad[float32], kernel.CosGrad[float64])},
	OpTanhGrad:    {Name: "tanh_grad", Const: true, CPU: maps2(kernel.TanhGrad[float32], kernel.TanhGrad[float64])},
	OpSigmoidGrad: {Name: "sigmoid_grad", Const: true, CPU: maps2(kernel.SigmoidGrad[float32], kernel.SigmoidGrad[float64])},
	OpReLUGrad: {Name: "relu_grad", Const: true,
		CPU: withBF16(map2(kernel.ReLUGradBF16), maps2(kernel.ReLUGrad[float32], kernel.ReLUGrad[float64]))},
	OpGELUGrad:     {Name: "gelu_grad", Const: true, CPU: maps2(kernel.GELUGrad[float32], kernel.GELUGrad[float64])},
	OpGELUTanhGrad: {Name: "gelu_tanh_grad", Const: true, CPU: maps2(kernel.GELUTanhGrad[float32], kernel.GELUTanhGrad[float64])},
	OpSiLUGrad:     {Name: "silu_grad", Const: true, CPU: maps2(kernel.SiLUGrad[float32], kernel.SiLUGrad[float64])},

	OpMatMul: {Name: "matmul", Class: ClassMultilinear, Saves: 3, VJP: matmulVJP,
		CPU: [NumDTypes]Kernel{Float32: matmulKernel(workspace32), Float64: matmulKernel(workspace64), BFloat16: matmulBF16}},
	OpLinear: {Name: "linear", Class: ClassMultilinear, Saves: 3, VJP: linearVJP},
	OpLinearAct: {Name: "linear_act", Saves: 3 | SaveOut, VJP: linearActVJP, Optional: true,
		CPU: floats(matmulKernel(workspace32), matmulKernel(workspace64))},
	OpActGrad:     {Name: "act_grad", Const: true, Optional: true, CPU: floats(actGradKernel[float32](), actGradKernel[float64]())},
	OpLinearAdd:   {Name: "linear_add", Class: ClassMultilinear, Saves: 3, VJP: linearAddVJP, Optional: true},
	OpLinearGradX: {Name: "linear_grad_x", Const: true, Optional: true},
	OpLinearGradW: {Name: "linear_grad_w", Const: true, Optional: true},
	OpColSum:      {Name: "colsum", Const: true, CPU: withBF16(colSumBF16, floats(colSumKernel[float32](), colSumKernel[float64]()))},

	OpSum: {Name: "sum", Class: ClassLinear, VJP: sumVJP,
		CPU: sums(kernel.ReduceSum[float32], kernel.ReduceSum[float64], kernel.ReduceSum[int32], kernel.ReduceSum[int64],
			kernel.ReduceSum[uint8])},
	OpMax: {Name: "max", VJP: selectVJP,
		CPU: extremes(kernel.ReduceMax[float32], kernel.ReduceMax[float64], kernel.ReduceMax[int32], kernel.ReduceMax[int64],
			kernel.ReduceMax[uint8])},
	OpMin: {Name: "min", VJP: selectVJP,
		CPU: extremes(kernel.ReduceMin[float32], kernel.ReduceMin[float64], kernel.ReduceMin[int32], kernel.ReduceMin[int64],
			kernel.ReduceMin[uint8])},
	OpSoftmax: {Name: "softmax", Saves: SaveOut, VJP: softmaxVJP,
		CPU: byRows("ox", rows1(kernel.Softmax[float32]), rows1(kernel.Softmax[float64]))},
	OpSoftmaxGrad: {Name: "softmax_grad", Const: true,
		CPU: byRows("oxx", rowsYG(kernel.SoftmaxGrad[float32]), rowsYG(kernel.SoftmaxGrad[float64]))},
	OpSoftmaxCausal: {Name: "softmax_causal", Saves: SaveOut, VJP: softmaxVJP,
		CPU: byRows("ox", softmaxCausalPart[float32], softmaxCausalPart[float64])},
	OpLogSoftmax: {Name: "log_softmax", Saves: SaveOut, VJP: logSoftmaxVJP,
		CPU: byRows("ox", rows1(kernel.LogSoftmax[float32]), rows1(kernel.LogSoftmax[float64]))},
	OpLogSoftmaxGrad: {Name: "log_softmax_grad", Const: true,
		CPU: byRows("oxx", rowsYG(kernel.LogSoftmaxGrad[float32]), rowsYG(kernel.LogSoftmaxGrad[float64]))},
	OpLogSumExp: {Name: "logsumexp", Saves: 1 | SaveOut, VJP: logSumExpVJP,
		CPU: byRows("sx", rows1(kernel.LogSumExp[float32]), rows1(kernel.LogSumExp[float64]))},
	OpLogSumExpGrad: {Name: "logsumexp_grad", Const: true, CPU: floats(logSumExpGradKernel[float32](), logSumExpGradKernel[float64]())},

	OpEmbedding: {Name: "embedding", Class: ClassIndexed, Saves: 2, VJP: embeddingVJP,
		CPU: bySize(embeddingKernel[uint8](), embeddingKernel[uint16](), embeddingKernel[uint32](), embeddingKernel[uint64]())},
	OpEmbeddingGrad: {Name: "embedding_grad", Const: true, CPU: floats(embeddingGradKernel[float32](), embeddingGradKernel[float64]())},
	OpGather: {Name: "gather", Class: ClassIndexed, Saves: 2, VJP: gatherVJP,
		CPU: bySize(gatherKernel[uint8](), gatherKernel[uint16](), gatherKernel[uint32](), gatherKernel[uint64]())},
	OpScatterAdd: {Name: "scatter_add", Class: ClassIndexed, Saves: 2, VJP: scatterAddVJP,
		CPU: numbers(scatterAddKernel[float32](), scatterAddKernel[float64](), scatterAddKernel[int32](), scatterAddKernel[int64](),
			scatterAddKernel[uint8]())},
	OpDropout: {Name: "dropout", Class: ClassLinear, VJP: dropoutVJP, CPU: floats(dropoutKernel[float32](), dropoutKernel[float64]())},

	OpSumSquares: {Name: "sum_squares", Const: true, CPU: sumSquaresKernels},
	OpGradNorm:   {Name: "grad_norm", Const: true, CPU: [NumDTypes]Kernel{Float64: gradNormKernel}},
	OpClip:       {Name: "clip", Const: true, CPU: [NumDTypes]Kernel{Float64: clipKernel}},
	OpSGD:        {Name: "sgd", Const: true, CPU: unlessNaN(withBF16(sgdBF16, optimizers(3, sgdStep[float32], sgdStep[float64])))},
	OpAdam:       {Name: "adam", Const: true, CPU: unlessNaN(withBF16(adamBF16, optimizers(4, adamStep[float32], adamStep[float64])))},
}

func init() {
	for op, s := range rules {
		define(op, s)
	}
}
