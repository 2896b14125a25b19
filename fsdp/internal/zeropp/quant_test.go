package zeropp_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/fsdp/internal/zeropp"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// What is read differs from what was written by half an integer's step at most, and Add4 adds it.
func TestSteps(t *testing.T) {
	run := func(op tensor.Op, dst, src tensor.Tensor) {
		e := tensor.NewExec(cpu.New(1))
		e.Args(op, tensor.Float64).Out(dst).In(src)
		e.Launch()
	}
	for _, n := range []int{1, 2, 255, 256, 257, 1001} {
		x := make([]float64, n)
		for i := range x {
			x[i] = rand.New(rand.NewPCG(1, uint64(i))).NormFloat64()
		}
		floats := tensor.FromSlice(x, n)
		for _, c := range []struct {
			size         int
			write, read  tensor.Op
			first, steps float64 // what is there before, and integers on each side of 0
		}{
			{zeropp.Size8(n), zeropp.Encode8, zeropp.Decode8, 0, 127},
			{zeropp.Size4(n), zeropp.Encode4, zeropp.Add4, 5, 7},
		} {
			codes, got := tensor.New(cpu.New(1), tensor.Uint8, c.size), make([]float64, n)
			for i := range got {
				got[i] = c.first
			}
			run(c.write, codes, floats)
			run(c.read, tensor.FromSlice(got, n), codes)
			for i, v := range x {
				most := 0.0
				for _, w := range x[i/256*256 : min(i/256*256+256, n)] {
					most = math.Max(most, math.Abs(w))
				}
				require.InDelta(t, c.first+v, got[i], most/c.steps/2*1.0001, "element %d of %d", i, n)
			}
		}
	}
}
