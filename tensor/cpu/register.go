package cpu

import "github.com/ringo-ml/ringo/tensor"

// table has the kernels of all operations.
var table tensor.Table

func init() {
	for op, kernels := range builtin {
		Register(op, kernels)
	}
	tensor.SetHost(newDevice(1))
}

// Register gives op, of [tensor.Register], its kernels for the CPU, by element type, and returns op. Call it from an init function or a
// package variable. If there is one for Float32 but none for the 16-bit floats, these are computed through float32, unless the operation
// is optional.
func Register(op tensor.Op, kernels [tensor.NumDTypes]tensor.Kernel) tensor.Op {
	if f32 := kernels[tensor.Float32]; f32 != nil && !op.Optional() {
		for _, d := range []tensor.DType{tensor.BFloat16, tensor.Float16} {
			if kernels[d] == nil {
				kernels[d] = ThroughFloat32(f32)
			}
		}
	}
	for d, k := range kernels {
		if k != nil && table[op][d] != nil {
			op.Fail(nil, "cpu.Register: there is a kernel for %v already", tensor.DType(d))
		}
	}
	table[op] = kernels
	return op
}
