package tensor

import (
	"github.com/ringo-ml/ringo/internal/kernel"
)

// A part computes items lo to hi of a kernel's work, on one of the pool's threads.
type part func(q *cpuQueue, a *Args, lo, hi, thread int)

// grainElems elements are worth waking a thread for, not fewer.
const grainElems = 1 << 14

// spread makes a kernel that cuts count(a) items, of cost(a) elements each, over the pool.
func spread(count, cost func(a *Args) int, align int, fn part) Kernel {
	return func(q Queue, a *Args) {
		c := q.(*cpuQueue)
		c.pool.run(c, a, count(a), (c.pool.grain-1)/max(cost(a), 1)+1, align, fn)
	}
}

// Parallel makes a CPU kernel that cuts count(a) items of work, about cost(a) element operations each, over the device's
// threads: fn computes items lo to hi. Where the cuts are may not change the result.
func Parallel(count, cost func(a *Args) int, fn func(a *Args, lo, hi int)) Kernel {
	return spread(count, cost, 1, func(_ *cpuQueue, a *Args, lo, hi, _ int) { fn(a, lo, hi) })
}

func one(*Args) int      { return 1 }
func outLen(a *Args) int { return a.Len[0] }
func dim0(a *Args) int   { return a.Dim[0] }
func dim1(a *Args) int   { return a.Dim[1] }

func floats(f32, f64 Kernel) (k [NumDTypes]Kernel) {
	k[Float32], k[Float64] = f32, f64
	return k
}

func numbers(f32, f64, i32, i64, u8 Kernel) (k [NumDTypes]Kernel) {
	k[Float32], k[Float64], k[Int32], k[Int64], k[Uint8] = f32, f64, i32, i64, u8
	return k
}

// bySize serves kernels that only move elements.
func bySize(b1, b2, b4, b8 Kernel) (k [NumDTypes]Kernel) {
	for d := range DType(NumDTypes) {
		k[d] = map[int]Kernel{1: b1, 2: b2, 4: b4, 8: b8}[d.Size()]
	}
	return k
}

// cpuKernels says what computes each operation on the CPU.
var cpuKernels = map[Op][NumDTypes]Kernel{
	OpCopy:  bySize(copyKernel[uint8](), copyKernel[uint16](), copyKernel[uint32](), copyKernel[uint64]()),
	OpAddTo: numbers(addToKernel[float32](), addToKernel[float64](), addToKernel[int32](), addToKernel[int64](), addToKernel[uint8]()),
	OpFill:  fillKernels,
	OpCast:  castKernels,
	OpWhere: bySize(whereKernel[uint8](), whereKernel[uint16](), whereKernel[uint32](), whereKernel[uint64]()),
	OpAdd: numbers(binaryKernel(kernel.Add[float32]), binaryKernel(kernel.Add[float64]),
		binaryKernel(kernel.Add[int32]), binaryKernel(kernel.Add[int64]), binaryKernel(kernel.Add[uint8])),
	OpSub: numbers(binaryKernel(kernel.Sub[float32]), binaryKernel(kernel.Sub[float64]),
		binaryKernel(kernel.Sub[int32]), binaryKernel(kernel.Sub[int64]), binaryKernel(kernel.Sub[uint8])),
	OpMul: numbers(binaryKernel(kernel.Mul[float32]), binaryKernel(kernel.Mul[float64]),
		binaryKernel(kernel.Mul[int32]), binaryKernel(kernel.Mul[int64]), binaryKernel(kernel.Mul[uint8])),
	OpDiv: numbers(binaryKernel(kernel.Div[float32]), binaryKernel(kernel.Div[float64]),
		binaryKernel(kernel.Div[int32]), binaryKernel(kernel.Div[int64]), binaryKernel(kernel.Div[uint8])),
	OpMaximum: numbers(binaryKernel(kernel.Max[float32]), binaryKernel(kernel.Max[float64]),
		binaryKernel(kernel.Max[int32]), binaryKernel(kernel.Max[int64]), binaryKernel(kernel.Max[uint8])),
	OpMinimum: numbers(binaryKernel(kernel.Min[float32]), binaryKernel(kernel.Min[float64]),
		binaryKernel(kernel.Min[int32]), binaryKernel(kernel.Min[int64]), binaryKernel(kernel.Min[uint8])),
	OpPow: floats(binaryKernel(kernel.Pow[float32]), binaryKernel(kernel.Pow[float64])),
	OpEq: numbers(compareKernel(kernel.Eq[float32]), compareKernel(kernel.Eq[float64]),
		compareKernel(kernel.Eq[int32]), compareKernel(kernel.Eq[int64]), compareKernel(kernel.Eq[uint8])),
	OpNe: numbers(compareKernel(kernel.Ne[float32]), compareKernel(kernel.Ne[float64]),
		compareKernel(kernel.Ne[int32]), compareKernel(kernel.Ne[int64]), compareKernel(kernel.Ne[uint8])),
	OpLt: numbers(compareKernel(kernel.Lt[float32]), compareKernel(kernel.Lt[float64]),
		compareKernel(kernel.Lt[int32]), compareKernel(kernel.Lt[int64]), compareKernel(kernel.Lt[uint8])),
	OpLe: numbers(compareKernel(kernel.Le[float32]), compareKernel(kernel.Le[float64]),
		compareKernel(kernel.Le[int32]), compareKernel(kernel.Le[int64]), compareKernel(kernel.Le[uint8])),
	OpGt: numbers(compareKernel(kernel.Gt[float32]), compareKernel(kernel.Gt[float64]),
		compareKernel(kernel.Gt[int32]), compareKernel(kernel.Gt[int64]), compareKernel(kernel.Gt[uint8])),
	OpGe: numbers(compareKernel(kernel.Ge[float32]), compareKernel(kernel.Ge[float64]),
		compareKernel(kernel.Ge[int32]), compareKernel(kernel.Ge[int64]), compareKernel(kernel.Ge[uint8])),
	OpAffine: floats(affineKernel[float32](), affineKernel[float64]()),

	OpNeg:          maps1(kernel.Neg[float32], kernel.Neg[float64]),
	OpAbs:          maps1(kernel.Abs[float32], kernel.Abs[float64]),
	OpExp:          maps1(kernel.Exp[float32], kernel.Exp[float64]),
	OpLog:          maps1(kernel.Log[float32], kernel.Log[float64]),
	OpSqrt:         maps1(kernel.Sqrt[float32], kernel.Sqrt[float64]),
	OpSquare:       maps1(kernel.Square[float32], kernel.Square[float64]),
	OpRecip:        maps1(kernel.Recip[float32], kernel.Recip[float64]),
	OpSin:          maps1(kernel.Sin[float32], kernel.Sin[float64]),
	OpCos:          maps1(kernel.Cos[float32], kernel.Cos[float64]),
	OpTanh:         maps1(kernel.Tanh[float32], kernel.Tanh[float64]),
	OpSigmoid:      maps1(kernel.Sigmoid[float32], kernel.Sigmoid[float64]),
	OpReLU:         withBF16(map1(kernel.ReLUBF16), maps1(kernel.ReLU[float32], kernel.ReLU[float64])),
	OpGELU:         maps1(kernel.GELU[float32], kernel.GELU[float64]),
	OpGELUTanh:     maps1(kernel.GELUTanh[float32], kernel.GELUTanh[float64]),
	OpSiLU:         maps1(kernel.SiLU[float32], kernel.SiLU[float64]),
	OpAbsGrad:      maps2(kernel.AbsGrad[float32], kernel.AbsGrad[float64]),
	OpLogGrad:      maps2(kernel.LogGrad[float32], kernel.LogGrad[float64]),
	OpSqrtGrad:     maps2(kernel.SqrtGrad[float32], kernel.SqrtGrad[float64]),
	OpSquareGrad:   maps2(kernel.SquareGrad[float32], kernel.SquareGrad[float64]),
	OpRecipGrad:    maps2(kernel.RecipGrad[float32], kernel.RecipGrad[float64]),
	OpSinGrad:      maps2(kernel.SinGrad[float32], kernel.SinGrad[float64]),
	OpCosGrad:      maps2(kernel.CosGrad[float32], kernel.CosGrad[float64]),
	OpTanhGrad:     maps2(kernel.TanhGrad[float32], kernel.TanhGrad[float64]),
	OpSigmoidGrad:  maps2(kernel.SigmoidGrad[float32], kernel.SigmoidGrad[float64]),
	OpReLUGrad:     withBF16(map2(kernel.ReLUGradBF16), maps2(kernel.ReLUGrad[float32], kernel.ReLUGrad[float64])),
	OpGELUGrad:     maps2(kernel.GELUGrad[float32], kernel.GELUGrad[float64]),
	OpGELUTanhGrad: maps2(kernel.GELUTanhGrad[float32], kernel.GELUTanhGrad[float64]),
	OpSiLUGrad:     maps2(kernel.SiLUGrad[float32], kernel.SiLUGrad[float64]),

	OpMatMul:        {Float32: matmulKernel(workspace32), Float64: matmulKernel(workspace64), BFloat16: matmulBF16},
	OpLinearAct:     floats(matmulKernel(workspace32), matmulKernel(workspace64)),
	OpGroupedLinear: floats(groupedKernel(workspace32), groupedKernel(workspace64)),
	OpGroupedGrad:   floats(groupedGradKernel(workspace32), groupedGradKernel(workspace64)),
	OpActGrad:       floats(actGradKernel[float32](), actGradKernel[float64]()),
	OpColSum:        floats(colSumKernel[float32](), colSumKernel[float64]()),
	OpSum: numbers(sumKernel(kernel.ReduceSum[float32]), sumKernel(kernel.ReduceSum[float64]),
		sumKernel(kernel.ReduceSum[int32]), sumKernel(kernel.ReduceSum[int64]), sumKernel(kernel.ReduceSum[uint8])),
	OpMax: numbers(extremeKernel(kernel.ReduceMax[float32]), extremeKernel(kernel.ReduceMax[float64]),
		extremeKernel(kernel.ReduceMax[int32]), extremeKernel(kernel.ReduceMax[int64]), extremeKernel(kernel.ReduceMax[uint8])),
	OpMin: numbers(extremeKernel(kernel.ReduceMin[float32]), extremeKernel(kernel.ReduceMin[float64]),
		extremeKernel(kernel.ReduceMin[int32]), extremeKernel(kernel.ReduceMin[int64]), extremeKernel(kernel.ReduceMin[uint8])),
	OpTopK:           numbers(topKKernel[float32](), topKKernel[float64](), topKKernel[int32](), topKKernel[int64](), topKKernel[uint8]()),
	OpSoftmax:        floats(rows1(kernel.Softmax[float32]), rows1(kernel.Softmax[float64])),
	OpSoftmaxGrad:    floats(rowsYG(kernel.SoftmaxGrad[float32]), rowsYG(kernel.SoftmaxGrad[float64])),
	OpSoftmaxCausal:  floats(causalKernel[float32](), causalKernel[float64]()),
	OpLogSoftmax:     floats(rows1(kernel.LogSoftmax[float32]), rows1(kernel.LogSoftmax[float64])),
	OpLogSoftmaxGrad: floats(rowsYG(kernel.LogSoftmaxGrad[float32]), rowsYG(kernel.LogSoftmaxGrad[float64])),
	OpLogSumExp:      floats(rows1(kernel.LogSumExp[float32]), rows1(kernel.LogSumExp[float64])),
	OpLogSumExpGrad:  floats(logSumExpGradKernel[float32](), logSumExpGradKernel[float64]()),

	OpAttention:     floats(attentionKernel(attention32), attentionKernel(attention64)),
	OpAttentionGrad: floats(attentionGradKernel(attention32), attentionGradKernel(attention64)),

	OpCrossEntropy:     floats(crossEntropyKernel[float32](), crossEntropyKernel[float64]()),
	OpCrossEntropyGrad: floats(crossEntropyGradKernel[float32](), crossEntropyGradKernel[float64]()),
	OpMSE:              floats(map2(kernel.MSE[float32]), map2(kernel.MSE[float64])),
	OpMSEGrad:          floats(lossGradKernel(kernel.MSEGrad[float32]), lossGradKernel(kernel.MSEGrad[float64])),
	OpBCE:              floats(map2(kernel.BCEWithLogits[float32]), map2(kernel.BCEWithLogits[float64])),
	OpBCEGrad:          floats(lossGradKernel(kernel.BCEWithLogitsGrad[float32]), lossGradKernel(kernel.BCEWithLogitsGrad[float64])),

	OpLayerNorm:      floats(layerNormKernel[float32](), layerNormKernel[float64]()),
	OpLayerNormGradX: floats(layerNormGradXKernel[float32](), layerNormGradXKernel[float64]()),
	OpLayerNormGradW: floats(layerNormGradWKernel[float32](), layerNormGradWKernel[float64]()),
	OpRMSNorm:        floats(rmsNormKernel[float32](), rmsNormKernel[float64]()),
	OpRMSNormGradX:   floats(rmsNormGradXKernel[float32](), rmsNormGradXKernel[float64]()),
	OpRMSNormGradW:   floats(rmsNormGradWKernel[float32](), rmsNormGradWKernel[float64]()),

	OpEmbedding:     bySize(embeddingKernel[uint8](), embeddingKernel[uint16](), embeddingKernel[uint32](), embeddingKernel[uint64]()),
	OpEmbeddingGrad: floats(embeddingGradKernel[float32](), embeddingGradKernel[float64]()),
	OpGather:        bySize(gatherKernel[uint8](), gatherKernel[uint16](), gatherKernel[uint32](), gatherKernel[uint64]()),
	OpScatterAdd: numbers(scatterAddKernel[float32](), scatterAddKernel[float64](), scatterAddKernel[int32](),
		scatterAddKernel[int64](), scatterAddKernel[uint8]()),
	OpDropout: floats(dropoutKernel[float32](), dropoutKernel[float64]()),

	OpSumSquares: sumSquaresKernels,
	OpGradNorm:   {Float64: gradNormKernel},
	OpClip:       {Float64: clipKernel},
	OpSGD:        optimizers(3, sgdStep[float32], sgdStep[float64]),
	OpAdam:       withBF16(adamBF16, optimizers(4, adamStep[float32], adamStep[float64])),
}
