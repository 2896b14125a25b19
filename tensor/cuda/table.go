package cuda

import "github.com/ringo-ml/ringo/tensor"

// table says which kernel computes an operation for an element type.
var table tensor.Table

// groups are the tables of each file.
var groups = []map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	unaryKernels, arithKernels, moveKernels, reduceKernels, indexKernels, floatKernels, optimKernels,
	matmulKernels, rowKernels, normKernels, attentionKernels,
}

func init() {
	for _, g := range groups {
		for op, row := range g {
			table[op] = row
		}
	}
}
