package disttest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
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
	steps := []part{wholePart("loss of a step", res.Losses), wholePart("norm of a step's gradients", res.Norms)}
	if _, err = joined(world, steps, false); err != nil {
		return err
	}
	if res.Last, err = joined(world, partsOf(a.Params), false); err != nil {
		return err
	}
	var moments []part
	for _, m := range s.Optimizer.State().Tensors {
		moments = append(moments, partOf(m.Name, m.Param, m.Tensor))
	}
	res.Moments, err = joined(world, moments, false)
	return err
}

// Since is the result without the steps before one, from which another training continues with these parameters.
func (res Result) Since(step int, params Values) Result {
	micro := len(res.Micro) / len(res.Losses)
	res.Losses, res.Micro, res.Norms, res.First = res.Losses[step:], res.Micro[step*micro:], res.Norms[step:], params
	return res
}

// Learns requires that the last loss is less than a part of the first one; not with the race detector, as there are fewer Steps.
func (res Result) Learns(t testing.TB, part float64) {
	t.Helper()
	if !(res.Losses[len(res.Losses)-1] < part*res.Losses[0]) && !reliability.Racing {
		t.Fatalf("%s does not learn: losses are %v", res.layout, res.Losses)
	}
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

// part is what a rank has of a tensor.
type part struct {
	name string
	len  int     // of the whole
	runs []int64 // where the elements are: the first one of a run, and their number
	bits []int64 // of the elements
}

// partOf returns the part of x, which is divided as p is.
func partOf(name string, p *tensor.Param, x tensor.Tensor) part {
	v := tensor.Floats(x)
	first, _ := p.Placement().Range()
	out := part{name: name, len: p.GlobalLen(), bits: bitsOf(v)}
	for at, n := range p.Runs(first, first+len(v)) {
		out.runs = append(out.runs, int64(at), int64(n))
	}
	return out
}

func partsOf(params nn.Params) []part {
	parts := make([]part, len(params))
	for i, p := range params {
		parts[i] = partOf(p.Name(), p, p.Local)
	}
	return parts
}

// wholePart is a part that is all of it.
func wholePart(name string, x []float64) part {
	return part{name, len(x), []int64{0, int64(len(x))}, bitsOf(x)}
}

func bitsOf(x []float64) []int64 {
	out := make([]int64, len(x))
	for i, v := range x {
		out[i] = int64(math.Float64bits(v))
	}
	return out
}

// message appends p to a message. JSON would take a fifth of the time of a training.
func (p part) message(m []int64) []int64 {
	m = append(m, int64(len(p.name)), int64(p.len), int64(len(p.runs)), int64(len(p.bits)))
	for _, c := range []byte(p.name) {
		m = append(m, int64(c))
	}
	return append(append(m, p.runs...), p.bits...)
}

// partIn returns the first part of a message, and the rest.
func partIn(m []int64) (p part, rest []int64) {
	name := make([]byte, m[0])
	p.len, rest = int(m[1]), m[4+len(name):]
	for i := range name {
		name[i] = byte(m[4+i])
	}
	p.name = string(name)
	p.runs, rest = rest[:m[2]], rest[m[2]:]
	p.bits, rest = rest[:m[3]], rest[m[3]:]
	return p, rest
}

// Wholes returns all elements of the parameters that ranks of g have, of which each may have others. If several ranks have the same
// element, its bits must be the same. It is collective.
func Wholes(g *dist.Group, params nn.Params) (Values, error) { return joined(g, partsOf(params), true) }

// joined joins the parts of all ranks, on each rank, or on rank 0 alone. It is collective.
func joined(g *dist.Group, mine []part, each bool) (Values, error) {
	var m []int64
	for _, p := range mine {
		m = p.message(m)
	}
	sizes := make([]int64, g.Size())
	if err := g.AllGather(tensor.FromSlice(sizes, len(sizes)), tensor.FromSlice([]int64{int64(len(m))}, 1)).Wait(); err != nil {
		return nil, err
	}
	counts, total := make([]int, len(sizes)), 0
	for i, n := range sizes {
		counts[i] = int(n)
		total += int(n)
	}
	all := make([]int64, total)
	if err := g.AllGatherV(tensor.FromSlice(all, total), tensor.FromSlice(m, len(m)), counts).Wait(); err != nil || !each && g.Rank() > 0 {
		return nil, err
	}
	out, from := Values{}, map[string][]int{} // from has one more than the rank that an element is from
	for rank, n := range counts {
		for m, all = all[:n], all[n:]; len(m) > 0; {
			var p part
			if p, m = partIn(m); out[p.name] == nil {
				out[p.name], from[p.name] = make([]float64, p.len), make([]int, p.len)
			}
			if err := p.join(out[p.name], from[p.name], rank); err != nil {
				return nil, err
			}
		}
	}
	for name, ranks := range from {
		for i, rank := range ranks {
			if rank == 0 {
				return nil, fmt.Errorf("%s: no rank has element %d", name, i)
			}
		}
	}
	return out, nil
}

// join puts the elements of a rank where they belong.
func (p part) join(out []float64, from []int, rank int) error {
	if p.len != len(out) {
		return fmt.Errorf("%s: rank %d has %d elements, a rank before it has %d", p.name, rank, p.len, len(out))
	}
	bits := p.bits
	for k := 0; k < len(p.runs); k += 2 {
		at, n := p.runs[k], p.runs[k+1]
		for i, b := range bits[:n] {
			at := int(at) + i
			v := math.Float64frombits(uint64(b))
			if from[at] > 0 && math.Float64bits(out[at]) != uint64(b) {
				return fmt.Errorf("%s: rank %d has %v as element %d, rank %d has %v", p.name, rank, v, at, from[at]-1, out[at])
			}
			out[at], from[at] = v, rank+1
		}
		bits = bits[n:]
	}
	return nil
}
