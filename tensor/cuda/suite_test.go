package cuda_test

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// missing are operations without kernels.
var missing = map[tensor.Op]bool{
	tensor.OpMatMul: true, tensor.OpLinearAct: true, tensor.OpActGrad: true, tensor.OpGroupedLinear: true, tensor.OpGroupedGrad: true,
	tensor.OpSoftmax: true, tensor.OpSoftmaxGrad: true, tensor.OpSoftmaxCausal: true, tensor.OpLogSoftmax: true,
	tensor.OpLogSoftmaxGrad: true, tensor.OpLogSumExp: true, tensor.OpLogSumExpGrad: true, tensor.OpAttention: true,
	tensor.OpAttentionGrad: true, tensor.OpCrossEntropy: true, tensor.OpCrossEntropyGrad: true, tensor.OpLayerNorm: true,
	tensor.OpLayerNormGradX: true, tensor.OpLayerNormGradW: true, tensor.OpRMSNorm: true, tensor.OpRMSNormGradX: true,
	tensor.OpRMSNormGradW: true,
}

// TestConformance runs every operation through tapes, on streams that run only as far as somebody waits for them.
func TestConformance(t *testing.T) {
	emu.Start(t, emu.Config{Lazy: true, Reverse: true})
	tensortest.Run(t, func(t *testing.T) tensor.Device { return open(t, 0) }, tensortest.Options{
		Skip: func(op tensor.Op, _ tensor.DType) bool { return missing[op] },
	})
}
