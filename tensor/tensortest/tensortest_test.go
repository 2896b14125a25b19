package tensortest

import (
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// The CPU passes with equal bits, and so does a device that runs the same kernels later on other memory.
func TestRemote(t *testing.T) {
	seed := uint64(0)
	Run(t, func(t *testing.T) tensor.Device { seed++; return NewRemote(t, seed) }, Options{Tol: map[tensor.DType]float64{
		tensor.Float32: 0, tensor.Float64: 0, tensor.BFloat16: 0, tensor.Float16: 0}})
}

func TestLongRemote(t *testing.T) { reliability.AsLong(t, TestRemote) }
