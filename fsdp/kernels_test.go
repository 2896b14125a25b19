package fsdp_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/fsdp/internal/zeropp"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// onDevice runs one of the operations on a device, and returns what it writes over old.
func onDevice(dev tensor.Device, op tensor.Op, floats tensor.DType, old, src tensor.Tensor) tensor.Tensor {
	dst, in := tensor.New(dev, old.DType(), old.Len()), tensor.New(dev, src.DType(), src.Len())
	tensor.Copy(dst, old)
	tensor.Copy(in, src)
	e := tensor.NewExec(dev)
	e.Args(op, floats).Out(dst).In(in)
	e.Launch()
	got := tensor.New(old.Device(), old.DType(), old.Len())
	tensor.Copy(got, dst)
	return got
}

// A GPU writes the same codes as host memory, and reads the same numbers, whatever the order of its threads.
func TestCodesOfKernels(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		t.Run(fmt.Sprint("reverse ", reverse), func(t *testing.T) {
			emu.Start(t, emu.Config{Reverse: reverse})
			gpu, err := cuda.NewDevice(0)
			require.NoError(t, err)
			defer gpu.Close()
			for _, n := range []int{1, 2, 255, 256, 257, 1001, 256 * len(oddScales)} {
				for _, d := range []tensor.DType{tensor.Float32, tensor.Float64} {
					x := tensor.FromSlice(ofBlocks(n), n).Cast(d)
					sameCodes(t, gpu, x, zeropp.Size8(n), zeropp.Encode8, zeropp.Decode8)
					sameCodes(t, gpu, x, zeropp.Size4(n), zeropp.Encode4, zeropp.Add4)
				}
			}
		})
	}
}

// oddScales are numbers of blocks whose scale is not the usual one.
var oddScales = []float64{math.MaxFloat32, -math.MaxFloat32, math.Inf(-1), math.NaN(), 1e42, 1e-37, -1e-45, 127 * 0x1p-126, 0}

// ofBlocks are n of a normal distribution; where there is a block for each oddScales one, it begins with that.
func ofBlocks(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = rand.New(rand.NewPCG(2, uint64(i))).NormFloat64()
		if v := oddScales[i/256%len(oddScales)]; n == 256*len(oddScales) && v < 1e-10 && v > -1e-10 {
			x[i] *= v
		} else if n == 256*len(oddScales) && i%256 == 0 {
			x[i] = v
		}
	}
	return x
}

// sameCodes compares what write makes of x in so many bytes, and what read makes of these.
func sameCodes(t *testing.T, gpu tensor.Device, x tensor.Tensor, bytes int, write, read tensor.Op) {
	cpu := x.Device()
	codes := onDevice(cpu, write, x.DType(), tensor.New(cpu, tensor.Uint8, bytes), x)
	its := onDevice(gpu, write, x.DType(), tensor.New(cpu, tensor.Uint8, bytes), x)
	if x.Len() != 256*len(oddScales) { // else some scales are NaN, of which there are several
		require.Equal(t, codes.Bytes(), its.Bytes(), "%v of %d", write, x.Len())
	}
	got := tensor.Floats(onDevice(gpu, read, x.DType(), x, its))
	for i, want := range tensor.Floats(onDevice(cpu, read, x.DType(), x, codes)) {
		if got[i] != want && !(math.IsNaN(got[i]) && math.IsNaN(want)) {
			t.Fatalf("%v: element %d of %d is %g, want %g", read, i, len(got), got[i], want)
		}
	}
}
