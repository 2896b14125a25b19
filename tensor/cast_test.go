package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/kernel"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// castOf returns element v of type s as type d, by the rules of Cast.
func castOf(v float64, s, d DType) float64 {
	limits := map[DType][2]float64{Int32: {math.MinInt32, math.MaxInt32}, Int64: {math.MinInt64, math.MaxInt64}, Uint8: {0, 255}}
	switch {
	case d == Bool:
		if v != 0 {
			return 1
		}
		return 0
	case d == BFloat16:
		return float64(kernel.ToBF16(float32(v)).Float32())
	case d == Float16:
		return float64(kernel.ToF16(float32(v)).Float32())
	case d == Float32:
		return float64(float32(v))
	case d == Float64:
		return v
	case !s.IsFloat() && d == Uint8: // integers wrap around
		return float64(uint8(int64(v)))
	case v != v:
		return 0
	}
	return math.Min(math.Max(math.Trunc(v), limits[d][0]), limits[d][1])
}

func TestCast(t *testing.T) {
	values := []float64{0, 1, -1, 0.5, -2.75, 3.999, 255, 256, 300, -300, 65504, 70000, 1e-8, 1e9, -1e9, 5e18, 1e30, math.NaN(), math.Inf(1),
		math.Inf(-1), 1.00390625, 1.01171875}
	dev := cpu.New(2)
	defer dev.Close()
	tape := NewTape(dev)
	for s := range DType(NumDTypes) {
		x := New(dev, s, 40, len(values)) // several blocks of the kernel
		for i := range x.Len() {
			if v := values[i%len(values)]; s.IsFloat() || !math.IsNaN(v) && math.Abs(v) < 1e9+1 {
				StoreFloat(x.Ptr(), s, i, castOf(v, Float64, s))
			}
		}
		for d := range DType(NumDTypes) {
			var want []float64
			for _, v := range Floats(x) {
				want = append(want, castOf(v, s, d))
			}
			requireClose(t, want, Floats(tape.Input(x).Cast(d)), 0, fmt.Sprint(s, " to ", d))
		}
	}
}

// Cast makes views contiguous, and does nothing if the type is the same.
func TestCastOfViews(t *testing.T) {
	tape := NewTape(hostDevice)
	x := tape.Input(FromSlice([]float32{1.9, 2, 3, -4.5}, 2, 2))
	assert.Equal(t, []float64{1, 3}, Floats(x.Slice(1, 0, 1).Cast(Int32)))
	assert.Equal(t, x, x.Cast(Float32))
}

func TestCastAllocatesNothing(t *testing.T) {
	skipInDebug(t)
	tape, x := NewTape(hostDevice), FromSlice([]float32{1, 2}, 2)
	step := func() {
		tape.Input(x).Cast(BFloat16).Cast(Float64).Cast(Int64)
		tape.Reset()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

func TestDTypes(t *testing.T) {
	for d := range DType(NumDTypes) {
		got, err := ParseDType(d.String())
		require.NoError(t, err)
		assert.Equal(t, d, got)
		assert.Equal(t, d <= Float16, d.IsFloat())
		assert.Equal(t, d == BFloat16 || d == Float16, d.IsHalf())
	}
	_, err := ParseDType("float8")
	assert.ErrorContains(t, err, `unknown dtype "float8"`)
	assert.Equal(t, "DType(9)", DType(9).String())
	assert.Equal(t, []DType{Float32, Float64, BFloat16, Float16, Int32, Int64, Uint8, Bool}, []DType{DTypeOf[float32](), DTypeOf[float64](),
		DTypeOf[BF16](), DTypeOf[F16](), DTypeOf[int32](), DTypeOf[int64](), DTypeOf[uint8](), DTypeOf[bool]()})
}

func TestString(t *testing.T) {
	assert.Equal(t, "tensor(none)", Tensor{}.String())
	assert.Equal(t, "float32[2,2] [[1 -2.5] [0.3333 1e+10]]", FromSlice([]float32{1, -2.5, 1. / 3, 1e10}, 2, 2).String())
	assert.Equal(t, "bool[2] [true false]", FromSlice([]bool{true, false}, 2).String())
	assert.Equal(t, "int64[] -7", FromSlice([]int64{-7}).String())
	assert.Equal(t, "float64[3] [NaN +Inf -Inf]", FromSlice([]float64{math.NaN(), math.Inf(1), math.Inf(-1)}, 3).String())
	assert.Equal(t, "bfloat16[2,0] [[] []]", New(hostDevice, BFloat16, 2, 0).String())
	long := New(hostDevice, Int32, 13)
	for i := range 13 {
		Data[int32](long)[i] = int32(i)
	}
	assert.Equal(t, "int32[13] [0 1 2 3 4 5 … 7 8 9 10 11 12]", long.String())
	assert.Equal(t, "a.weight[2 3]", func() string { p := NewParam(Constant(0), 2, 3); p.SetName("a.weight"); return p.String() }())
	assert.Equal(t, "float32[64,784]", Shape{Float32, []int{64, 784}}.String())
}
