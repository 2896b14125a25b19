package train

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/internal/values"
	"github.com/ringo-ml/ringo/train/metrics"
)

// watch makes the optimizer ask the loop what is known of steps that are not finite.
func (l *Loop) watch() {
	if l.o.Nonfinite != optim.Stop {
		l.opt.SetNonfinite(l.o.Nonfinite)
	}
	l.opt.OnNonfinite(l.findOut)
}

// badPart is what one rank knows of a step that is not finite.
type badPart struct {
	Param   string          // the first one whose gradient is not finite, here
	Loss    *metrics.Number // this rank's part; nil: not known
	Samples []int           // of this rank's batch
	Bad     []int           // those of them whose values are not finite
}

// findOut adds to an error what the ranks know of its step. Where all ranks have the error in the same step, they exchange it.
func (l *Loop) findOut(e *optim.NonfiniteError) {
	e.Step = l.running + 1 - e.Late
	all := []badPart{l.badPart(e)}
	first := l.g.Rank()
	alike := l.opt.Alike(l.g.Size(), l.r.World.Axes())
	if alike {
		parts, err := dist.AllGatherObject(l.g, all[0])
		if err != nil {
			e.About = err.Error()
			return
		}
		all, first = parts, 0
	}
	for _, p := range slices.Backward(all) {
		if p.Param != "" {
			e.Param = p.Param
		}
	}
	e.About = about(all, first)
	if e.Skipped > 0 {
		l.Logf("skipped, %d of at most %d steps one after another: %v", e.Skipped, l.o.Nonfinite, e)
	} else if alike && e.Late == 0 {
		_ = l.gather() // the values of the steps before go to the files; an error is that another rank has ended with this one
	}
}

func (l *Loop) badPart(e *optim.NonfiniteError) badPart {
	p := badPart{Param: e.Param}
	v, known := l.values.Part(values.Loss, e.Step)
	if t := l.state.Tape; !known && t != nil && e.Late == 0 {
		v = t.Losses() // more than one rank may have this part: it counts only if it is not finite
		known = v-v != 0
	}
	if known {
		p.Loss = (*metrics.Number)(&v)
	}
	if l.source == nil {
		return p
	}
	p.Samples = l.source.Samples(e.Late)
	if e.Late == 0 && l.batch.Rows == len(p.Samples) {
		for _, row := range append(badRows(l.batch.X), badRows(l.batch.Y)...) {
			p.Bad = append(p.Bad, p.Samples[row])
		}
		slices.Sort(p.Bad)
		p.Bad = slices.Compact(p.Bad)
	}
	return p
}

// badRows returns the rows of x that are not finite.
func badRows(x tensor.Tensor) (rows []int) {
	if !x.DType().IsFloat() || x.Len() == 0 {
		return nil
	}
	for i, v := range tensor.Floats(x) {
		if row := i * x.Dim(0) / x.Len(); v-v != 0 && !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	return rows
}

// about says what ranks know, of which the first one has this number.
func about(all []badPart, first int) string {
	var text, guilty []string
	var named, samples []int
	loss, known := 0.0, false
	for i, p := range all {
		named = append(named, p.Bad...)
		if p.Loss == nil {
			continue
		}
		loss, known = loss+float64(*p.Loss), true
		if v := float64(*p.Loss); v-v != 0 {
			guilty = append(guilty, fmt.Sprintf("rank %d", first+i))
			samples = append(samples, p.Samples...)
		}
	}
	if known {
		text = append(text, fmt.Sprintf("the loss is %v", loss))
	}
	if len(guilty) > 0 && len(all) > 1 {
		text = append(text, "by the part of "+strings.Join(guilty, ", "))
	}
	if len(guilty) == 0 {
		for _, p := range all {
			samples = append(samples, p.Samples...)
		}
	}
	switch {
	case len(named) > 0:
		text = append(text, "values are not finite in samples "+list(named))
	case len(samples) > 0:
		text = append(text, "in the batch of samples "+list(samples))
	}
	return strings.Join(text, ", ")
}

// list is the beginning of a list of samples: several ranks may have the same ones.
func list(samples []int) string {
	const most = 16
	samples = slices.Compact(slices.Sorted(slices.Values(samples)))
	text := strings.Trim(fmt.Sprint(samples[:min(len(samples), most)]), "[]")
	if n := len(samples) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// checkLoss returns an error if a loss that all ranks know now is not finite. It is collective.
func (l *Loop) checkLoss() error {
	bad := l.values.Bad
	if bad.Step == 0 || l.o.Nonfinite != optim.Stop || l.opt != nil && !l.opt.Stops() {
		return nil
	}
	text := fmt.Sprintf("train: step %d: the loss is not finite, by the part of rank %d", bad.Step, bad.Rank)
	var samples []int
	if l.source != nil {
		samples = l.source.Samples(l.running + 1 - bad.Step)
	}
	samples, err := dist.BroadcastObject(l.g, samples, bad.Rank)
	if err == nil && len(samples) > 0 {
		text += ", in the batch of samples " + list(samples)
	}
	if err != nil {
		return err
	}
	return errors.New(text)
}
