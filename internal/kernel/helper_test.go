package kernel

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// testSizes are the lengths for tests of elementwise kernels.
var testSizes = []int{0, 1, 2, 3, 7, 8, 9, 127, 128, 129, 1000}

// later reports whether case at is one of those that only the long runs have: all but each n-th one.
func later(t *testing.T, at, n int) bool { return at%n != 0 && !reliability.Long(t) }

// many is the number of cases: short, or all of them in the long runs.
func many(t *testing.T, short, all int) int {
	if reliability.Long(t) {
		return all
	}
	return short
}

// bothFloats runs a test for float32 and float64.
func bothFloats(t *testing.T, f32, f64 func(t *testing.T)) {
	t.Run("float32", f32)
	t.Run("float64", f64)
}

// fillUniform sets dst[i] = a + (b-a)*Uniform(key, first+i), computed in float64 and rounded once.
// Rounding can yield b itself.
func fillUniform[T Float](dst []T, key, first uint64, a, b T) {
	lo, width := float64(a), float64(b)-float64(a)
	for i := range dst {
		dst[i] = T(lo + float64(width*Uniform(key, first+uint64(i))))
	}
}

// fillNormal sets dst[i] = a + b*Normal(key, first+i): mean a, standard deviation b, computed in float64 and rounded once.
func fillNormal[T Float](dst []T, key, first uint64, a, b T) {
	mean, std := float64(a), float64(b)
	for i := range dst {
		dst[i] = T(mean + float64(std*Normal(key, first+uint64(i))))
	}
}

// normals returns n normal variates.
func normals[T Float](n int, key uint64) []T {
	x := make([]T, n)
	fillNormal(x, key, 0, 0, 1)
	return x
}

// integers returns n numbers in lo..hi.
func integers[T Number](n int, key uint64, lo, hi int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(lo + int(Bits(key, uint64(i))%uint64(hi-lo)))
	}
	return x
}

func clone[T any](x []T) []T { return append(make([]T, 0, len(x)), x...) }

// ulp returns the distance from |v| to the next larger number of T.
func ulp[T Float](v float64) float64 {
	v = math.Abs(v)
	if single[T]() {
		f := float32(v)
		if math.IsInf(float64(f), 0) {
			f = math.MaxFloat32
			return float64(f) - float64(math.Nextafter32(f, 0))
		}
		return float64(math.Nextafter32(f, float32(math.Inf(1)))) - float64(f)
	}
	if v == math.MaxFloat64 {
		return v - math.Nextafter(v, 0)
	}
	return math.Nextafter(v, math.Inf(1)) - v
}

// ulpsApart returns the distance of got from the exact want, in ulps of want.
func ulpsApart[T Float](want float64, got T) float64 {
	switch w := float64(T(want)); {
	case math.IsNaN(want) && math.IsNaN(float64(got)), w == float64(got) && math.IsInf(w, 0):
		return 0
	case math.IsNaN(want), math.IsNaN(float64(got)), math.IsInf(w, 0), math.IsInf(float64(got), 0):
		return math.Inf(1)
	}
	return math.Abs(want-float64(got)) / ulp[T](want)
}

// requireUlps requires that got is within n ulps of want everywhere.
func requireUlps[T Float](t *testing.T, want []float64, got []T, n float64, msg string) {
	t.Helper()
	require.Len(t, got, len(want), msg)
	for i, w := range want {
		if d := ulpsApart(w, got[i]); !(d <= n) {
			require.Failf(t, "not close", "%s [%d]: want %g, got %g: %g ulps", msg, i, w, got[i], d)
		}
	}
}

// requireNear requires |want-got| <= tol*max(1, |want|) everywhere; tol is tol32 or
// tol64.
func requireNear[T Float](t *testing.T, want []float64, got []T, tol32, tol64 float64, msg string) {
	t.Helper()
	tol := tol64
	if single[T]() {
		tol = tol32
	}
	require.Len(t, got, len(want), msg)
	for i, w := range want {
		d := math.Abs(w-float64(got[i])) / max(1, math.Abs(w))
		if !(d <= tol) && !(math.IsNaN(w) && math.IsNaN(float64(got[i]))) && w != float64(got[i]) {
			require.Failf(t, "not close", "%s [%d]: want %g, got %g", msg, i, w, got[i])
		}
	}
}

// requireSame requires equal elements, also in the sign of zero; all NaN are equal.
func requireSame[T Number](t *testing.T, want, got []T, msg string) {
	t.Helper()
	require.Len(t, got, len(want), msg)
	for i, w := range want {
		g := got[i]
		ok := w == g && math.Signbit(float64(w)) == math.Signbit(float64(g)) || w != w && g != g
		if !ok {
			require.Failf(t, "different", "%s [%d]: want %v, got %v", msg, i, w, g)
		}
	}
}

// float64s converts x.
func float64s[T Number](x []T) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// cuts calls f for the parts of several ways to cut 0..n.
func cuts(n int, f func(name string, parts [][2]int)) {
	for _, size := range []int{1, 2, 3, 5, 64, 100} {
		var parts [][2]int
		for lo := 0; lo < n; lo += size {
			parts = append(parts, [2]int{lo, min(n, lo+size)})
		}
		if size%2 == 1 { // any order
			for i := range len(parts) / 2 {
				parts[i], parts[len(parts)-1-i] = parts[len(parts)-1-i], parts[i]
			}
		}
		f(fmt.Sprintf("cuts of %d", size), parts)
	}
}

// requireCutsAgree requires that f(dst, lo, hi), which fills dst[0:size] for 0..n,
// gives the same result as a whole and in parts.
func requireCutsAgree[T Number](t *testing.T, n, size int, f func(dst []T, lo, hi int), msg string) {
	t.Helper()
	want := make([]T, size)
	f(want, 0, n)
	cuts(n, func(name string, parts [][2]int) {
		got := make([]T, size)
		for _, p := range parts {
			f(got, p[0], p[1])
		}
		requireSame(t, want, got, msg+", "+name)
	})
}

// nearAndFar runs f twice. The second time, stores of kernels bypass the caches if
// their output begins at a cache line.
func nearAndFar(f func()) {
	defer func(n int) { farBytes = n }(farBytes)
	f()
	farBytes = 0
	f()
}
