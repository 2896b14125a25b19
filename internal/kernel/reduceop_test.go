package kernel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReduceOps(t *testing.T) {
	t.Run("float32", testReduceOps[float32])
	t.Run("float64", testReduceOps[float64])
	t.Run("int32", testReduceOps[int32])
	t.Run("int64", testReduceOps[int64])
	t.Run("uint8", testReduceOps[uint8])
}

func testReduceOps[T Number](t *testing.T) {
	into := map[string]func(dst, src []T){"Add": SumInto[T], "Mul": ProdInto[T], "Min": MinInto[T], "Max": MaxInto[T]}
	tested := 0
	for _, c := range binaryCases[T]() {
		f := into[c.name]
		if f == nil {
			continue
		}
		tested++
		for _, n := range testSizes {
			a, b := operands[T](n, 1), operands[T](n, 2)
			want := make([]T, n)
			for i := range want {
				want[i] = c.naive(a[i], b[i])
			}
			f(a, b)
			requireSame(t, want, a, c.name)
		}
	}
	require.Equal(t, len(into), tested)
}

func TestBitOps(t *testing.T) {
	t.Run("int32", testBitOps[int32])
	t.Run("int64", testBitOps[int64])
	t.Run("uint8", testBitOps[uint8])
}

func testBitOps[T Int](t *testing.T) {
	for _, n := range testSizes {
		a, b := integers[T](n, 1, 0, 128), integers[T](n, 2, 0, 128)
		and, or, xor := clone(a), clone(a), clone(a)
		BAndInto(and, b)
		BOrInto(or, b)
		BXorInto(xor, b)
		for i := range a {
			require.Equal(t, []T{a[i] & b[i], a[i] | b[i], a[i] ^ b[i]}, []T{and[i], or[i], xor[i]})
		}
	}
}

func TestBoolOps(t *testing.T) {
	a, b := []bool{false, false, true, true}, []bool{false, true, false, true}
	and, or, xor := clone(a), clone(a), clone(a)
	AndBoolInto(and, b)
	OrBoolInto(or, b)
	XorBoolInto(xor, b)
	assert.Equal(t, []bool{false, false, false, true}, and)
	assert.Equal(t, []bool{false, true, true, true}, or)
	assert.Equal(t, []bool{false, true, true, false}, xor)
}

func TestScaleInto(t *testing.T) {
	x := []float32{1, 3, -2}
	ScaleInto(x, 0.1)
	assert.Equal(t, []float32{0.1, float32(3) * float32(0.1), -0.2}, x)
	y := []float64{1, 3}
	ScaleInto(y, 0.5)
	assert.Equal(t, []float64{0.5, 1.5}, y)
}
