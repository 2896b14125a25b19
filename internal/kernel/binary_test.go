package kernel

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type binaryCase[T Number] struct {
	name  string
	f     func(dst, a, b []T)
	naive func(a, b T) T
}

func binaryCases[T Number]() []binaryCase[T] {
	return []binaryCase[T]{
		{"Add", Add[T], func(a, b T) T { return a + b }},
		{"Sub", Sub[T], func(a, b T) T { return a - b }},
		{"Mul", Mul[T], func(a, b T) T { return a * b }},
		{"Div", Div[T], func(a, b T) T {
			if b == 0 && !isFloat[T]() {
				return 0
			}
			return a / b
		}},
		{"Max", Max[T], func(a, b T) T {
			if a != a || a > b {
				return a
			}
			return b
		}},
		{"Min", Min[T], func(a, b T) T {
			if a != a || a < b {
				return a
			}
			return b
		}},
	}
}

type compareCase[T Number] struct {
	name  string
	f     func(dst []bool, a, b []T)
	naive func(a, b T) bool
}

func compareCases[T Number]() []compareCase[T] {
	return []compareCase[T]{
		{"Eq", Eq[T], func(a, b T) bool { return a == b }},
		{"Ne", Ne[T], func(a, b T) bool { return a != b }},
		{"Lt", Lt[T], func(a, b T) bool { return a < b }},
		{"Le", Le[T], func(a, b T) bool { return a <= b }},
		{"Gt", Gt[T], func(a, b T) bool { return a > b }},
		{"Ge", Ge[T], func(a, b T) bool { return a >= b }},
	}
}

func TestBinary(t *testing.T) {
	t.Run("float32", testBinary[float32])
	t.Run("float64", testBinary[float64])
	t.Run("int32", testBinary[int32])
	t.Run("int64", testBinary[int64])
	t.Run("uint8", testBinary[uint8])
}

// operands returns test values with zeros, ties and, for floats, NaN and infinities.
func operands[T Number](n int, key uint64) []T {
	x := integers[T](n, key, 0, 7)
	if !isFloat[T]() {
		return x
	}
	for i := range x {
		switch Bits(key+1, uint64(i)) % 16 {
		case 0:
			x[i] = T(math.NaN())
		case 1:
			x[i] = T(math.Inf(1))
		case 2:
			x[i] = T(math.Inf(-1))
		default:
			x[i] -= 3
		}
	}
	return x
}

// pairs calls f for two full operands of length n and for all broadcast forms.
func pairs[T Number](n int, f func(msg string, a, b []T, at func(i int) (T, T))) {
	a, b := operands[T](n, 1), operands[T](n, 2)
	s, u := operands[T](1, 3), operands[T](1, 5)
	f(fmt.Sprint("full ", n), a, b, func(i int) (T, T) { return a[i], b[i] })
	f(fmt.Sprint("right scalar ", n), a, s, func(i int) (T, T) { return a[i], s[0] })
	f(fmt.Sprint("left scalar ", n), s, b, func(i int) (T, T) { return s[0], b[i] })
	f(fmt.Sprint("two scalars ", n), s, u, func(int) (T, T) { return s[0], u[0] })
}

func testBinary[T Number](t *testing.T) {
	for _, n := range testSizes {
		pairs(n, func(msg string, a, b []T, at func(int) (T, T)) {
			for _, c := range binaryCases[T]() {
				want, got := make([]T, n), make([]T, n)
				for i := range want {
					want[i] = c.naive(at(i))
				}
				c.f(got, a, b)
				requireSame(t, want, got, c.name+" "+msg)
				if len(a) == n {
					x := clone(a)
					c.f(x, x, b)
					requireSame(t, want, x, c.name+" in place of a, "+msg)
				}
				if len(b) == n {
					x := clone(b)
					c.f(x, a, x)
					requireSame(t, want, x, c.name+" in place of b, "+msg)
				}
			}
			for _, c := range compareCases[T]() {
				got := make([]bool, n)
				c.f(got, a, b)
				for i, g := range got {
					require.Equal(t, c.naive(at(i)), g, "%s %s [%d]", c.name, msg, i)
				}
			}
		})
	}
}

func TestPow(t *testing.T) { bothFloats(t, testPow[float32], testPow[float64]) }

func testPow[T Float](t *testing.T) {
	for _, n := range testSizes {
		pairs(n, func(msg string, a, b []T, at func(int) (T, T)) {
			want, got := make([]float64, n), make([]T, n)
			for i := range want {
				x, y := at(i)
				want[i] = math.Pow(float64(x), float64(y))
			}
			Pow(got, a, b)
			requireUlps(t, want, got, 0.5, msg)
		})
	}
}

func TestSignedZero(t *testing.T) {
	zero := math.Copysign(0, -1)
	got := make([]float64, 2)
	Max(got, []float64{0, zero}, []float64{zero, 0})
	requireSame(t, []float64{0, 0}, got, "Max")
	Min(got, []float64{0, zero}, []float64{zero, 0})
	requireSame(t, []float64{zero, zero}, got, "Min")
}

func TestIntegerDivision(t *testing.T) {
	got := make([]int32, 4)
	Div(got, []int32{7, -7, math.MinInt32, 5}, []int32{2, 2, -1, 0})
	assert.Equal(t, []int32{3, -3, math.MinInt32, 0}, got)
}

func TestWhere(t *testing.T) {
	for _, n := range testSizes {
		cond := make([]bool, n)
		ToBool(cond, integers[uint8](n, 9, 0, 2))
		for _, c := range [][]bool{cond, {true}, {false}} {
			pairs(n, func(msg string, a, b []int64, at func(int) (int64, int64)) {
				want, got := make([]int64, n), make([]int64, n)
				for i := range want {
					x, y := at(i)
					want[i] = y
					if c[min(i, len(c)-1)] {
						want[i] = x
					}
				}
				Where(got, c, a, b)
				require.Equal(t, want, got, msg)
			})
		}
	}
}
