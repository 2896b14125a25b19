package optimtest

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// A device that runs the CPU's kernels later on other memory passes with equal bits.
func TestRemote(t *testing.T) {
	seed := uint64(0)
	Run(t, func(t *testing.T) tensor.Device { seed++; return tensortest.NewRemote(t, seed) }, tensortest.Options{Tol: map[tensor.DType]float64{
		tensor.Float32: 0, tensor.Float64: 0, tensor.BFloat16: 0, tensor.Float16: 0}})
}

func TestLongRemote(t *testing.T) { reliability.AsLong(t, TestRemote) }
