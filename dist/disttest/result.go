package disttest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// Values are the elements of tensors by name, each one as a whole.
type Values map[string][]float64

// Result is what a Training had, on all ranks together. Rank 0 of the job has it, and in other processes nobody.
type Result struct {
	Losses, Micro []float64 // of steps, and of microbatches
	Norms         []float64 // of gradients
	First, Last   Values    // parameters before and after the steps
	Moments       Values    // of the optimizer, after the steps
	Errs          []error   `json:"-"` // by rank

	layout, log string
}

// gather makes what ranks have parts of whole, and requires that they agree on the rest.
func (res *Result) gather(a *Attached, s *State) (err error) {
	g := a.Data
	if a.Sum != nil {
		g = a.Sum
	}
	for _, x := range [][]float64{res.Losses, res.Micro} {
		if err := g.SumFloats(x); err != nil {
			return err
		}
	}
	world := s.Rank.World
	if _, err = joined(world, []part{
		wholePart("loss of a step", res.Losses), wholePart("norm of a step's gradients", res.Norms),
	}); err != nil {
		return err
	}
	if res.Last, err = Wholes(world, a.Params); err != nil {
		return err
	}
	var moments []part
	for _, m := range s.Optimizer.State().Tensors {
		moments = append(moments, partOf(m.Name, m.Param, m.Tensor))
	}
	res.Moments, err = joined(world, moments)
	return err
}

// Since is the result without the steps before one, from which another training continues with these parameters.
func (res Result) Since(step int, params Values) Result {
	micro := len(res.Micro) / len(res.Losses)
	res.Losses, res.Micro, res.Norms, res.First = res.Losses[step:], res.Micro[step*micro:], res.Norms[step:], params
	return res
}

// RequireEqual requires that two trainings are the same: that they began with the same bits, and that no loss, norm of gradients, parameter
// or moment differs by more than tol. If tol is 0, all bits must be the same. NaN equals nothing.
func RequireEqual(t testing.TB, want, got Result, tol float64) {
	t.Helper()
	if err := got.Differs(want, tol); err != nil {
		t.Fatal(err)
	}
}

// Differs returns an error that names the first difference, or nil: see RequireEqual.
func (res Result) Differs(want Result, tol float64) error {
	if len(want.Losses) == 0 || len(want.Last) == 0 {
		return fmt.Errorf("%s did not train: there is nothing to compare with", want.layout)
	}
	type series struct {
		what string
		w, g Values
		tol  float64
	}
	steps := func(x []float64) Values { return Values{"step": x} }
	compared := []series{{"initial parameter", want.First, res.First, 0}, {"loss", steps(want.Losses), steps(res.Losses), tol}}
	if len(want.Micro) == len(res.Micro) { // a step may be divided into other microbatches
		compared = append(compared, series{"loss of microbatch", steps(want.Micro), steps(res.Micro), tol})
	}
	compared = append(compared, series{"norm of gradients", steps(want.Norms), steps(res.Norms), tol},
		series{"parameter", want.Last, res.Last, tol}, series{"moment", want.Moments, res.Moments, tol})
	for _, c := range compared {
		if where := c.g.differs(c.w, c.tol); where != "" {
			return fmt.Errorf("%s %s\n  want: %s\n  got: %s", c.what, where, want.layout, res.layout)
		}
	}
	return nil
}

// differs names the first difference of more than tol; "" is none.
func (v Values) differs(want Values, tol float64) string {
	if a, b := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(v)); !slices.Equal(a, b) {
		return fmt.Sprintf("names are %v, want %v", b, a)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w, g := want[name], v[name]
		if len(w) != len(g) {
			return fmt.Sprintf("%s: %d elements, want %d", name, len(g), len(w))
		}
		for i := range w {
			if d := math.Abs(w[i] - g[i]); !(d <= tol) || tol == 0 && math.Float64bits(w[i]) != math.Float64bits(g[i]) {
				return fmt.Sprintf("%s %d is %v, want %v: they differ by %.3g, more than %g", name, i, g[i], w[i], d, tol)
			}
		}
	}
	return ""
}

// Explain says all about a training that failed: what each rank said, and what was in flight.
func (res Result) Explain(err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v\n", res.layout, err)
	for rank, err := range res.Errs {
		fmt.Fprintf(&b, "rank %d: %v\n", rank, err)
	}
	return b.String() + res.log
}
