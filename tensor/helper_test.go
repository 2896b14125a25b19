package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// What is the same in the tests inside of the package.
var hostDevice, skipInDebug, random = HostDevice, SkipInDebug, Random

var floatTypes = []DType{Float32, Float64, BFloat16, Float16}

// requireClose is tensortest.RequireClose, which the internal tests cannot import.
func requireClose(t *testing.T, want, got []float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i, w := range want {
		g := got[i]
		if w == g || w != w && g != g || math.Abs(w-g) <= tol*(1+math.Abs(w)) {
			continue
		}
		require.Failf(t, "value", "%s: element %d is %v, want %v", msg, i, g, w)
	}
}

func requireGrads(t *testing.T, want, got [][]float64, tol float64, msg string) {
	t.Helper()
	require.Equal(t, len(want), len(got), msg)
	for i := range want {
		requireClose(t, want[i], got[i], tol, fmt.Sprintf("%s: input %d", msg, i))
	}
}

// identity returns its arguments.
type identity struct{}

func (identity) Name() string                       { return "identity" }
func (identity) Forward(_ *Ctx, in []Tensor) Tensor { return in[0] }
func (identity) Backward(_ *Ctx, g Tensor, grads []Tensor) {
	grads[0] = g
}

// faultyDevice has a table of its own.
type faultyDevice struct {
	*cpu.Device
	table Table
}

func (d *faultyDevice) Kernels() *Table { return &d.table }

// counted is a device that knows how many blocks of memory it has given.
type counted struct {
	*cpu.Device
	blocks int
}

func (d *counted) Alloc(n int) (Ptr, error) {
	d.blocks++
	return d.Device.Alloc(n)
}

func (d *counted) Free(p Ptr) {
	d.blocks--
	d.Device.Free(p)
}

// cutAll makes a device divide even the smallest work over its threads.
func cutAll(d *cpu.Device) { d.Queue(0).(*cpu.Queue).SetGrain(1) }
