package tensor

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var intTypes = []DType{Int32, Int64, Uint8}

// operand makes an input: in the range of the case, or integers that neither overflow a uint8 nor make it negative.
func (c valueCase) operand(dev Device, d DType, key uint64, dims []int) Tensor {
	x := New(dev, d, dims...)
	for i := range x.Len() {
		v := c.lo
		if v == 0 {
			v = -2
		}
		v += (2 - v) * randomUniform(key, uint64(i))
		if !d.IsFloat() {
			v = math.Floor(4*randomUniform(key, uint64(i))) + float64(1-key)*10
		}
		storeFloat(x.Ptr(), d, i, v)
	}
	return x
}

// randomUniform returns a number in [0,1).
func randomUniform(key, i uint64) float64 { return float64(RandomBits(key, i)>>11) * 0x1p-53 }

func toArr(x Tensor) arr { return arr{x.Shape().Dims, Floats(x)} }

// run computes the case on a tape of its own.
func (c valueCase) run(dev Device, in []Tensor) Tensor {
	t := NewTape(dev)
	t.mem.poison = true
	x := make([]Tensor, len(in))
	for i := range in {
		x[i] = t.Input(in[i])
	}
	return c.f(x)
}

func TestValues(t *testing.T) {
	dev := NewCPU(2)
	defer dev.Close()
	for _, c := range valueCases() {
		t.Run(c.name, func(t *testing.T) {
			for _, dims := range c.dims {
				for _, d := range floatTypes {
					c.check(t, dev, d, dims)
				}
				for _, d := range intTypes {
					if c.ints {
						c.check(t, dev, d, dims)
					}
				}
			}
		})
	}
}

func (c valueCase) check(t *testing.T, dev Device, d DType, dims [][]int) {
	t.Helper()
	var in []Tensor
	var naive []arr
	for i, s := range dims {
		x := c.operand(dev, d, uint64(i), s)
		in, naive = append(in, x), append(naive, toArr(x))
	}
	got, msg := c.run(dev, in), fmt.Sprint(d, dims)
	want := c.want(naive)
	require.Equal(t, len(want.dims), got.Rank(), msg)
	for i, n := range want.dims {
		require.Equal(t, n, got.Dim(i), msg)
	}
	if d.IsHalf() {
		c.checkHalf(t, dev, d, in, got)
	}
	if d == Uint8 && got.DType() == d { // integers wrap around
		for i, v := range want.v {
			want.v[i] = float64(uint8(v))
		}
	}
	tol := map[DType]float64{Float64: 1e-12, Float32: 3e-6, BFloat16: 2e-2, Float16: 3e-3}[d]
	requireClose(t, want.v, Floats(got), tol, msg)
}

// checkHalf compares with the float32 operation on the same values, rounded once, to the bit.
func (c valueCase) checkHalf(t *testing.T, dev Device, d DType, in []Tensor, got Tensor) {
	t.Helper()
	wide := make([]Tensor, len(in))
	for i, x := range in {
		wide[i] = New(dev, Float32, x.Shape().Dims...)
		for k, v := range Floats(x) {
			Data[float32](wide[i])[k] = float32(v)
		}
	}
	want := c.run(dev, wide)
	if want.DType().IsFloat() && !c.loss {
		want = want.Cast(d)
	}
	require.Equal(t, got.DType(), want.DType())
	requireClose(t, Floats(want), Floats(got), 0, c.name+": float32 rounded once")
}

// requireClose compares numbers; NaN and infinities must agree.
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

// TestSpecialValues tries all pairs of NaN, infinities, zeros and very large and small numbers.
func TestSpecialValues(t *testing.T) {
	dev := NewCPU(1)
	defer dev.Close()
	values := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 0.5, 3, -200, 200, 1e30, -1e30}
	n := len(values)
	for _, c := range valueCases() {
		if !c.special {
			continue
		}
		for _, d := range []DType{Float32, Float64} {
			dims := [][]int{{n, 1}, {1, n}}[:len(c.dims[0])]
			var in []Tensor
			var naive []arr
			for _, s := range dims {
				x := New(dev, d, s...)
				for i, v := range values {
					storeFloat(x.Ptr(), d, i, v)
				}
				in, naive = append(in, x), append(naive, toArr(x))
			}
			want := c.want(naive).v
			if d == Float32 {
				for i, v := range want {
					want[i] = float64(float32(v))
				}
			}
			requireClose(t, want, Floats(c.run(dev, in)), map[DType]float64{Float64: 1e-12, Float32: 1e-6}[d], fmt.Sprint(c.name, d))
		}
	}
}

func TestIntegerDivision(t *testing.T) {
	tape := NewTape(hostDevice)
	x := tape.Input(FromSlice([]int32{7, -7, 3}, 3)).Div(FromSlice([]int32{2, 2, 0}, 3))
	assert.Equal(t, []int32{3, -3, 0}, Data[int32](x))
}

// A column of a matrix is a view whose elements do not lie one after another.
func TestColumnViews(t *testing.T) {
	tape := NewTape(hostDevice)
	x := tape.Input(FromSlice([]float32{1, 2, 3, 4, 5, 6}, 3, 2))
	col := x.Slice(1, 1, 2)
	assert.False(t, col.Contiguous())
	assert.Equal(t, []float64{2, 4, 6}, Floats(col))
	assert.Equal(t, []float64{3, 7, 11}, Floats(col.Add(x.Slice(1, 0, 1))))
	assert.Equal(t, []float64{4, 16, 36}, Floats(col.Square()))
	assert.Equal(t, []float64{56}, Floats(MatMul(col, col, true, false)))
	ids := tape.Input(FromSlice([]int64{0, 2, 1, 0}, 2, 2))
	assert.Equal(t, []float64{5, 6, 1, 2}, Floats(Embedding(x, ids.Slice(1, 1, 2))))
	assert.Equal(t, []float64{6, 2}, Floats(Embedding(x.Slice(1, 1, 2), ids.Slice(1, 1, 2))))
	loss := CrossEntropy(tape.Input(FromSlice([]float64{0, 0, 0, 1, 0, 0}, 2, 3)), ids.Slice(1, 1, 2), CrossEntropyOptions{})
	assert.InDelta(t, (math.Log(3)+math.Log(math.E+2)-1)/2, loss.Item(), 1e-12)
}
