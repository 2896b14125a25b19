package gorgonia

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	gt "gorgonia.org/tensor"
)

// requireNear compares results that sum k products in different orders.
func requireNear(t *testing.T, want, got gt.Tensor, k int, what string) {
	t.Helper()
	require.Equal(t, want.Dtype(), got.Dtype(), what)
	require.True(t, want.Shape().Eq(got.Shape()), "%s: %v and not %v", what, got.Shape(), want.Shape())
	bound := 1e-14
	if want.Dtype() == gt.Float32 {
		bound = 1e-5
	}
	a, b := elements(want), elements(got)
	require.Len(t, b, len(a), what)
	for i := range a {
		x, y := number(a[i]), number(b[i])
		if math.Abs(x-y) > bound*float64(k)*10 { // of numbers up to about 10
			t.Fatalf("%s: element %d is %v and not %v", what, i, y, x)
		}
	}
}

func number(v any) float64 {
	if f, ok := v.(float32); ok {
		return float64(f)
	}
	return v.(float64)
}

// TestMatMul compares matrix products with those that gt.StdEng computes for contiguous copies: odd shapes, transposed, column-major, rows
// of larger arrays.
func TestMatMul(t *testing.T) {
	e, count := newCounting(t, 2)
	for _, dtype := range []gt.Dtype{gt.Float32, gt.Float64} {
		for _, size := range [][3]int{{1, 1, 1}, {1, 5, 3}, {5, 1, 3}, {3, 4, 1}, {2, 3, 5}, {17, 33, 9}, {64, 64, 64}} {
			m, n, k := size[0], size[1], size[2]
			for _, layA := range layouts {
				for _, layB := range layouts {
					what := fmt.Sprintf("%v %v, %s and %s", dtype, size, layA.name, layB.name)
					a, b := layA.make(numbers(dtype, ordinary), e, gt.Shape{m, k}), layB.make(numbers(dtype, ordinary), e, gt.Shape{k, n})
					if a.Dims() != 2 || b.Dims() != 2 {
						continue // a slice of one row or column is a vector
					}
					packed := func(d *gt.Dense) *gt.Dense {
						c := gt.NewDense(dtype, d.Shape())
						for i, v := range elements(d) {
							c.Set(i, v)
						}
						return c
					}
					want := must(gt.MatMul(packed(a), packed(b)))
					if min(m, n, k) == 1 && (layA.name == "by columns" || layB.name == "by columns") {
						continue // gorgonia gives column-major vectors too few strides
					}
					gaps := layA.name == "columns of a larger array" || layB.name == "columns of a larger array"
					if masked := layA.name == "masked" || layB.name == "masked"; gaps || masked {
						continue // gt.StdEng ignores gaps
					}
					before := count.n
					requireNear(t, want, must(gt.MatMul(a, b)), k, what)
					if m*k*n > 1 { // gorgonia treats some arrays of one element as scalars
						require.Equal(t, before+1, count.n, "%s: %d kernels", what, count.n-before)
					}

					reuse := packedArray(numbers(dtype, 3), e, gt.Shape{m, n})
					require.True(t, must(gt.MatMul(a, b, gt.WithReuse(reuse))) == gt.Tensor(reuse))
					requireNear(t, want, reuse, k, what+", reuse")
				}
			}
		}
	}
}

// TestVectors compares the products with vectors.
func TestVectors(t *testing.T) {
	e, count := newCounting(t, 2)
	for _, dtype := range []gt.Dtype{gt.Float32, gt.Float64} {
		for _, size := range [][2]int{{1, 1}, {1, 7}, {7, 1}, {5, 3}, {33, 130}} {
			m, n := size[0], size[1]
			for _, lay := range layouts[:2] {
				what := fmt.Sprintf("%v %v, %s", dtype, size, lay.name)
				both := func(e gt.Engine) (a, x, y *gt.Dense) {
					return lay.make(numbers(dtype, ordinary), e, gt.Shape{m, n}), lay.make(numbers(dtype, ordinary), e, gt.Shape{n}),
						lay.make(numbers(dtype, 7), e, gt.Shape{m})
				}
				a, x, y := both(gt.StdEng{})
				if a.Dims() != 2 || !x.Shape().IsVector() || !y.Shape().IsVector() {
					continue
				}
				ours, ourX, ourY := both(e)
				before := count.n
				requireNear(t, must(gt.MatVecMul(a, x)), must(gt.MatVecMul(ours, ourX)), n, what)
				outer, ourOuter := elements(must(gt.Outer(y, x))), elements(must(gt.Outer(ourY, ourX)))
				for i := range outer {
					require.Zero(t, ulps(outer[i], ourOuter[i]), "%s: one product each: %v and not %v", what, ourOuter[i], outer[i])
				}
				inner, ourInner := must(gt.Inner(x, x)), must(gt.Inner(ourX, ourX))
				require.IsType(t, inner, ourInner)
				require.InDelta(t, number(inner), number(ourInner), 1e-4*float64(n), what)
				require.Equal(t, before+3, count.n, what)

				if err := a.T(); err != nil {
					t.Fatal(err)
				}
				if err := ours.T(); err != nil {
					t.Fatal(err)
				}
				requireNear(t, must(gt.MatVecMul(a, y)), must(gt.MatVecMul(ours, ourY)), m, what+", transposed")
				require.Equal(t, before+4, count.n, what)
			}
		}
	}
	into := gt.New(gt.WithShape(2, 2), gt.WithBacking([]float64{1, 2, 3, 4}), gt.WithEngine(e))
	v := gt.New(gt.WithBacking([]float64{10, 20}), gt.WithEngine(e))
	require.NoError(t, e.Outer(v, v, into))
	require.Equal(t, []float64{101, 202, 203, 404}, into.Data(), "it adds, as gt.StdEng.Outer does")
}

// TestRefused: operands that do not fit are errors of gt.StdEng.
func TestRefused(t *testing.T) {
	e, count := newCounting(t, 1)
	a := gt.New(gt.WithShape(2, 3), gt.WithBacking(make([]float64, 6)), gt.WithEngine(e))
	b := gt.New(gt.WithShape(2, 3), gt.WithBacking(make([]float32, 6)), gt.WithEngine(e))
	row := gt.New(gt.WithShape(6), gt.WithBacking(make([]float64, 6)), gt.WithEngine(e))
	for _, operands := range [][2]gt.Tensor{{a, b}, {a, row}} {
		_, want := gt.StdEng{}.Add(operands[0], operands[1])
		_, got := gt.Add(operands[0], operands[1])
		require.Error(t, want)
		require.EqualError(t, got, want.Error())
	}
	_, err := gt.MatMul(a, a)
	require.Error(t, err)
	require.Error(t, e.MatVecMul(a, b, row))
	two := gt.New(gt.WithBacking(make([]float64, 2)), gt.WithEngine(e))
	require.Panics(t, func() { _ = e.MatVecMul(a, two, two.Clone().(gt.Tensor)) }, "2 numbers for 3 columns: the BLAS of gt.StdEng panics")
	require.Zero(t, count.n)
}

// TestSoftMax compares along the last axis, which the Engine computes, and along the first.
func TestSoftMax(t *testing.T) {
	e, count := newCounting(t, 2)
	for _, dtype := range []gt.Dtype{gt.Float32, gt.Float64} {
		for _, f := range []func(gt.Tensor, int, ...gt.FuncOpt) (gt.Tensor, error){gt.SoftMax, gt.LogSoftMax} {
			for _, shape := range []gt.Shape{{9}, {4, 7}, {2, 3, 5}} {
				for _, axis := range []int{0, len(shape) - 1} {
					before := count.n
					want := must(f(packedArray(numbers(dtype, ordinary), gt.StdEng{}, shape), axis))
					got := must(f(packedArray(numbers(dtype, ordinary), e, shape), axis))
					requireNear(t, want, got, 1, fmt.Sprint(dtype, shape, axis))
					require.Equal(t, axis == len(shape)-1, count.n == before+1)
				}
			}
		}
	}
}
