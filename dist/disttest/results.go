package disttest

import (
	"fmt"
	"math"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// each runs calls one after the other, on groups of these sizes.
func (s *suite) each(t *testing.T, sizes []int, calls func(n int) []call) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			list := calls(n)
			s.ok(t, n, func(r *dist.Rank) error { return runAll(r.World, list...) })
		})
	}
}

// atRoots returns a call of each collective for which is returns true, at every root.
func atRoots(n int, c call, is func(o *Operation) bool) (out []call) {
	for _, o := range collectives() {
		if !is(o) {
			continue
		}
		c.Operation = o
		for c.root = range n {
			if out = append(out, c); !o.rooted {
				break
			}
		}
	}
	return out
}

// reductions runs the operations that reduce, with every reduction and type: empty, one element, eager sizes, sizes that do not divide,
// and several blocks.
func (s *suite) reductions(t *testing.T) {
	s.each(t, s.sizes(), func(n int) (out []call) {
		for red := range reds {
			for d := range tensor.DType(tensor.NumDTypes) {
				if !valid(reds[red].name, d) {
					continue
				}
				for _, o := range collectives() {
					sizes := []int{0, 3, big(5001)}
					if o.form == whole {
						sizes = []int{0, 1, 7, 130, big(4099), big(20_000)}
					}
					if k := (red + int(d)) % len(sizes); s.emulated && !s.full { // each type and reduction in one size
						sizes = sizes[k : k+1]
					} else if !s.full { // in two
						sizes = []int{sizes[k], sizes[(k+len(sizes)/2)%len(sizes)]}
					}
					for k, count := range sizes {
						rows := func(_, i int) int { return i * count % 4099 }
						if o.reduces {
							out = append(out, call{Operation: o, dtype: d, red: red, root: (k + red) % n, count: count, rows: rows})
						}
					}
				}
			}
		}
		return out
	})
}

// movement runs the operations that only move data, with every type and root.
func (s *suite) movement(t *testing.T) {
	s.each(t, s.sizes(), func(n int) (out []call) {
		for d := range tensor.DType(tensor.NumDTypes) {
			for k, count := range []int{0, big(10_001), 50, 1} {
				if !s.full && k%2 == int(d+d/4)%2 { // types of the same width take turns
					continue
				}
				out = append(out, atRoots(n, call{dtype: d, count: count}, func(o *Operation) bool {
					return o.form != nothing && !o.reduces && !o.byRows
				})...)
			}
		}
		return out
	})
}

// vForms runs the V forms on rows of 3 elements. Some ranks have no rows.
func (s *suite) vForms(t *testing.T) {
	s.each(t, s.sizes(), func(n int) (out []call) {
		for _, scale := range []int{0, 1, 400} {
			c := call{dtype: tensor.Int32, width: 3, rows: func(from, to int) int { return (2*from + to) % 4 * scale }}
			out = append(out, atRoots(n, c, func(o *Operation) bool { return o.byRows })...)
		}
		return out
	})
}

func hasPlace(o *Operation) bool { return o.form == gathers || o.form == scatters }

// inPlace runs the in-place forms: the input is this rank's block of the output, or the output is this rank's block of the input.
func (s *suite) inPlace(t *testing.T) {
	var calls []call
	for _, count := range []int{10, 9000} {
		calls = append(calls, atRoots(3, call{count: count, inPlace: true}, func(o *Operation) bool { return hasPlace(o) && !o.byRows })...)
	}
	s.ok(t, 3, func(r *dist.Rank) error { return runAll(r.World, calls...) })
}

// forms runs the V forms with every type, in place if they can be, and Gather and Scatter in place at every root.
func (s *suite) forms(t *testing.T) {
	s.each(t, s.sizes(), func(n int) (out []call) {
		for d := range tensor.DType(tensor.NumDTypes) {
			for _, scale := range []int{1, 301} { // one rank has no rows
				c := call{dtype: d, red: redMax, width: 2, inPlace: true, rows: func(_, to int) int { return (to + 2) % 3 * scale }}
				out = append(out, atRoots(n, c, func(o *Operation) bool { return o.byRows })...)
			}
		}
		for _, count := range []int{1, 7000} {
			out = append(out, atRoots(n, call{count: count, inPlace: true}, func(o *Operation) bool { return hasPlace(o) && o.rooted })...)
		}
		return out
	})
}

// allReduced all-reduces in, and compares the result with out.
func allReduced(what string, g *dist.Group, d tensor.DType, op dist.Reduction, n int, in, out func(i int) float64) error {
	x := filled(g, d, n, in)
	return want(g.AllReduce(x, op), what, x, out)
}

// nan checks that the result of Min and Max is NaN, whichever rank has a NaN.
func (s *suite) nan(t *testing.T) {
	nanIf := func(is bool) float64 {
		if is {
			return math.NaN()
		}
		return 1
	}
	s.ok(t, 3, func(r *dist.Rank) error {
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
			for _, op := range []dist.Reduction{dist.Min, dist.Max} {
				if err := allReduced(op.String(), r.World, d, op, 100, func(i int) float64 { return nanIf(i%4 == r.World.Rank()) },
					func(i int) float64 { return nanIf(i%4 < 3) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// halfRoundsOnce checks that 16-bit floats are summed in float32, in rank order, and rounded once: 1 + 2⁻⁸ + 2⁻⁸ is 1 + 2⁻⁷ in bfloat16,
// but 1 if each sum is rounded.
func (s *suite) halfRoundsOnce(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		sums := func(what string, d tensor.DType, count int, v [3]float64, sum float64) error {
			mine := v[r.World.Rank()]
			return allReduced(what, r.World, d, dist.Sum, count, func(int) float64 { return mine }, func(int) float64 { return sum })
		}
		e := math.Ldexp(1, -8)
		for _, count := range []int{5, 3000} {
			OK(sums("bfloat16 sum", tensor.BFloat16, count, [3]float64{1, e, e}, 1+2*e))
		}
		// Float32 in rank order: (1e8 + 1) - 1e8 is 0, 1e8 - 1e8 + 1 would be 1.
		return sums("float32 sum in rank order", tensor.Float32, 3000, [3]float64{1e8, 1, -1e8}, 0)
	})
}
