package cuda

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// table holds the kernel of each operation and element type.
var table tensor.Table

// newKernels are the operations that need only a launch function: one line each.
var newKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	ops.OpClamp:     numbers("clamp.cu", "clamp", clamp),
	ops.OpClampGrad: floats("clamp.cu", "clamp_grad", clampGrad),
	ops.OpCumSum:    cumSums(),
	ops.OpSort:      sorts(),
	ops.OpOneHot:    row("onehot.cu", "one_hot", oneHot, append(numberTypes, tensor.Bool)),
	ops.OpBincount:  row("onehot.cu", "bincount", bincount, []tensor.DType{tensor.Int64}),
	ops.OpArange:    numbers("onehot.cu", "arange", arange),
	ops.OpAnd:       boolean("minimum"),
	ops.OpOr:        boolean("maximum"),
	ops.OpRotary:    floats("rotary.cu", "rotary", rotary),
}

// groups are the tables of each file.
var groups = []map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	unaryKernels, arithKernels, moveKernels, reduceKernels, indexKernels, floatKernels, optimKernels,
	matmulKernels, rowKernels, normKernels, attentionKernels, pictureKernels, float8Kernels, newKernels,
}

func init() {
	for _, g := range groups {
		for op, row := range g {
			table[op] = row
		}
	}
}
