package ckpt

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
)

// castElements is how many elements are converted at a time.
const castElements = 1 << 20

// cast converts floating-point numbers.
func cast(dst []byte, to tensor.DType, src []byte, from tensor.DType) {
	dev := tensor.NewCPU(1)
	defer dev.Close()
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	over := func(b []byte, d tensor.DType, at, n int) tensor.Tensor {
		return tensor.FromPtr(dev, unsafe.Pointer(&b[at*d.Size()]), d, n)
	}
	for at, all := 0, len(src)/from.Size(); at < all; at += castElements {
		n := min(castElements, all-at)
		tensor.Copy(over(dst, to, at, n), tape.Input(over(src, from, at, n)).Cast(to))
		tape.Reset()
	}
}
