package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/train/metrics"
)

// comparison is the result of the comparison of two trainings.
type comparison struct {
	A       string             `json:"a"`
	B       string             `json:"b"`
	Tol     float64            `json:"tol"`
	Steps   [2]int             `json:"steps"` // number of steps of each
	Step    int                `json:"step"`  // the step of params: the first that differs, or else the last
	Loss    [2]*metrics.Number `json:"loss"`
	Params  []gradRow          `json:"params"`
	First   string             `json:"first,omitempty"`   // first parameter that differs
	Nearest string             `json:"nearest,omitempty"` // of those that differ, the nearest to the loss
	Same    bool               `json:"same"`
	Why     string             `json:"why,omitempty"` // why the trainings do not agree
}

// gradRow is one parameter in one step of both trainings.
type gradRow struct {
	Name    string          `json:"name"`
	Shape   []int           `json:"shape"`
	A       *metrics.Number `json:"a"` // norms; nil: this training does not have it
	B       *metrics.Number `json:"b"`
	Ratio   metrics.Number  `json:"ratio"` // B/A
	Differs bool            `json:"differs"`
	Note    string          `json:"note,omitempty"`
}

// smallest is the least norm of a parameter's gradient in the comparison, relative to the norm of all gradients: smaller ones are only
// rounding.
const smallest = 1e-4

// compareGrads compares the steps of two trainings, up to the first that differs.
func compareGrads(a, b []grads.Step, tol float64) *comparison {
	d := &comparison{Tol: tol, Steps: [2]int{len(a), len(b)}}
	for i := range min(len(a), len(b)) {
		d.step(a[i], b[i])
		if d.Why != "" {
			return d
		}
	}
	if len(a) != len(b) {
		d.Why = fmt.Sprintf("A did %d steps, B %d; those of both agree within %v", len(a), len(b), tol)
	}
	d.Same = d.Why == ""
	return d
}

// step compares one step.
func (d *comparison) step(a, b grads.Step) {
	d.Step, d.Loss, d.Params = a.Step, [2]*metrics.Number{(*metrics.Number)(a.Loss), (*metrics.Number)(b.Loss)}, rowsOf(a.Grads, b.Grads)
	if a.Step != b.Step {
		d.Why = fmt.Sprintf("a line of A is of step %d, and that of B of step %d: do both begin anew?", a.Step, b.Step)
		return
	}
	total := 0.0
	for _, g := range a.Grads {
		if x := float64(g.Norm * g.Norm); !math.IsNaN(x) && !math.IsInf(x, 0) {
			total += x
		}
	}
	var first *gradRow
	for i := range d.Params {
		r := &d.Params[i]
		if r.compare(d.Tol, smallest*math.Sqrt(total)); !r.Differs {
			continue
		}
		if d.Nearest = r.Name; first == nil {
			first, d.First = r, r.Name
		}
	}
	loss := ""
	if a.Loss != nil && b.Loss != nil && !agree(*d.Loss[0], *d.Loss[1], d.Tol, 0) {
		loss = fmt.Sprintf("%.6g and %.6g", *a.Loss, *b.Loss)
	}
	switch {
	case first != nil:
		d.Why = fmt.Sprintf("step %d: the gradient of %s differs: %s", d.Step, first.Name, first.text())
		if d.Nearest != d.First {
			d.Why += "; nearest to the loss: " + d.Nearest
		}
		if loss != "" {
			d.Why += "; the loss differs too: " + loss
		}
	case loss != "":
		d.Why = fmt.Sprintf("step %d: the loss differs: %s; the norms of gradients agree within %v", d.Step, loss, d.Tol)
	}
}

// rowsOf makes one row for each parameter of A, and then for each that only B has.
func rowsOf(a, b []grads.Norm) (rows []gradRow) {
	for _, g := range a {
		rows = append(rows, gradRow{Name: g.Name, Shape: g.Shape, A: (*metrics.Number)(&g.Norm)})
	}
	for _, g := range b {
		i := slices.IndexFunc(rows, func(r gradRow) bool { return r.Name == g.Name })
		if i < 0 {
			i = len(rows)
			rows = append(rows, gradRow{Name: g.Name, Shape: g.Shape})
		}
		rows[i].B = (*metrics.Number)(&g.Norm)
		if !slices.Equal(rows[i].Shape, g.Shape) {
			rows[i].Differs, rows[i].Note = true, fmt.Sprintf("%v in B", g.Shape)
		}
	}
	return rows
}

// agree reports whether two numbers are finite and differ by at most tol times the larger one, or times least.
func agree(a, b metrics.Number, tol, least float64) bool {
	x, y := float64(a), float64(b)
	return math.Abs(x-y) <= tol*max(math.Abs(x), math.Abs(y), least) && !math.IsInf(x, 0) && !math.IsInf(y, 0)
}

// compare fills in the ratio and the verdict.
func (r *gradRow) compare(tol, least float64) {
	if r.A == nil || r.B == nil {
		r.Differs, r.Ratio = true, metrics.Number(math.NaN())
		r.Note = "trained in A alone"
		if r.A == nil {
			r.Note = "trained in B alone"
		}
		return
	}
	if r.Ratio = *r.B / *r.A; *r.A == *r.B {
		r.Ratio = 1
	}
	if r.Differs || agree(*r.A, *r.B, tol, least) {
		return
	}
	r.Differs, r.Note = true, factorOf(float64(r.Ratio), tol)
	switch {
	case math.IsNaN(float64(r.Ratio)) || math.IsInf(float64(*r.A+*r.B), 0):
		r.Note = "not finite"
	case *r.A == 0:
		r.Note = "A has no gradient"
	case *r.B == 0:
		r.Note = "B has no gradient"
	}
}

// factorOf returns the likely cause of a ratio near a whole number, or near its inverse; "" for other ratios.
func factorOf(ratio, tol float64) string {
	times := max(ratio, 1/ratio)
	n := math.Round(times)
	if n < 2 || n > 1024 || math.Abs(times-n) > min(tol*n, 0.05) {
		return ""
	}
	if ratio > 1 {
		return fmt.Sprintf("B is %.3f times A: a sum or a factor of %v too many in B, or missing in A", times, n)
	}
	return fmt.Sprintf("B is 1/%.3f of A: a sum or a factor of %v missing in B, or too many in A", times, n)
}

// text says how a parameter differs.
func (r *gradRow) text() string {
	if r.A == nil || r.B == nil {
		return r.Note
	}
	s := fmt.Sprintf("norm %.6g and %.6g, ratio %.6g", *r.A, *r.B, r.Ratio)
	if r.Note != "" {
		s += "; " + r.Note
	}
	return s
}

// write prints the step as a table, and the verdict if all agree.
func (d *comparison) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "step %d\tshape\tA\tB\tB/A\t\n", d.Step)
	if d.Loss[0] != nil || d.Loss[1] != nil {
		fmt.Fprintf(w, "loss\t\t%s\t%s\t\t\n", number(d.Loss[0]), number(d.Loss[1]))
	}
	for _, r := range d.Params {
		mark := ""
		if r.Differs {
			mark = strings.TrimSpace("differs " + r.Note)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.6f\t%s\n", r.Name, strings.ReplaceAll(fmt.Sprint(r.Shape), " ", ","), number(r.A), number(r.B),
			r.Ratio, mark)
	}
	if err := w.Flush(); err != nil || !d.Same {
		return err
	}
	_, err := fmt.Fprintf(out, "the gradients of %d parameters agree within %v in %d steps\n", len(d.Params), d.Tol, d.Steps[0])
	return err
}

func number(x *metrics.Number) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.6g", *x)
}
