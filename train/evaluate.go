package train

import (
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/train/metrics"
)

// evaluation is what Evaluate got.
type evaluation struct {
	name   string
	every  int
	b      *data.Loader
	f      func(b data.Batch) (float64, error)
	warned bool
}

// Evaluate has Steps and Batches measure a value of this name after every n-th step, and after the last one: the mean over the samples of
// b. f returns what this rank adds for a batch: nn.Hits(logits, b.Y), or loss.Item() * float64(b.Global) of a loss that divides by the
// rows of all ranks. Where ranks have the same rows and the same result, as where they divide layers, one adds it, and the others 0. They
// log it, and print it with the mean loss since the last time. The time that this takes is no part of that of steps (Summary). Several
// values have several names.
func (l *Loop) Evaluate(name string, n int, b *data.Loader, f func(b data.Batch) (float64, error)) {
	e := &evaluation{name, n, b, f, false}
	switch i := slices.IndexFunc(l.evals, func(e *evaluation) bool { return e.name == name }); {
	case i < 0:
		l.evals = append(l.evals, e)
	case l.evals[i].b == b:
		l.evals[i] = e
	case l.err == nil:
		l.err = fmt.Errorf("train: Evaluate measures %q over another Loader already: give the second value another name", name)
	}
}

// evaluate measures the value at the end of a step, the last one that counts.
func (l *Loop) evaluate(e *evaluation, step int) {
	if l.Going() {
		l.meter.turn(false)
		l.err = l.measure(e, step)
		l.meter.turn(true)
	}
}

func (l *Loop) measure(e *evaluation, step int) error {
	var mine evaluated
	samples := 0
	for _, b := range e.b.Epoch(l.ctx, 0) {
		part, err := e.f(b)
		if err != nil {
			return err
		}
		mine.add(b, part)
		samples += b.Global
	}
	if err := e.b.Err(); err != nil {
		return err
	}
	all, err := dist.AllGatherObject(l.g, mine)
	if err != nil {
		return err
	}
	sum := 0.0
	for _, x := range all {
		sum += float64(x.Sum)
	}
	if k := shared(all, samples); k > 1 && l.g.Rank() == 0 && !e.warned {
		e.warned = true
		slog.Warn(fmt.Sprintf("train: Evaluate(%q): %d ranks at a time have the same rows and add the same, which counts %[2]d times: where "+
			"ranks divide layers, all but the first return 0; where they do not, the Loader lacks its Sharder", e.name, k))
	}
	since := 0
	if before, _ := l.Values(e.name); len(before) > 0 {
		since = before[len(before)-1]
	}
	l.Log(e.name, sum/float64(samples))
	if err := l.Flush(); err != nil {
		return err
	}
	l.Logf("step %d  loss %.4f  %s %.4f", step, l.Mean("loss", since), e.name, sum/float64(samples))
	return nil
}

// evaluated is what a rank has measured.
type evaluated struct {
	Sum    metrics.Number
	Rows   int
	Digest uint32 // of its rows, and what it added for each batch
}

func (x *evaluated) add(b data.Batch, part float64) {
	x.Sum, x.Rows = x.Sum+metrics.Number(part), x.Rows+b.Rows
	x.Digest = crc32.Update(x.Digest, crc32.IEEETable, fmt.Append(nil, b.First, b.Rows, part))
}

// shared returns how many ranks have the same rows, if these have measured the same, which is not 0. Else it returns 1.
func shared(all []evaluated, samples int) (ranks int) {
	rows, some, alike := 0, false, map[uint32]int{}
	for _, x := range all {
		rows, some = rows+x.Rows, some || x.Sum != 0
		alike[x.Digest]++
	}
	ranks = rows / samples
	for _, n := range alike {
		if n != ranks || !some {
			return 1
		}
	}
	return ranks
}

// Mean is the mean of the values of a name in the steps after so many; 0 if there are none.
func (l *Loop) Mean(name string, after int) (mean float64) {
	steps, values := l.Values(name)
	first, _ := slices.BinarySearch(steps, after+1)
	for _, v := range values[first:] {
		mean += v / float64(len(values)-first)
	}
	return mean
}

// evaluateMissing measures the values that the last step should have and has not: behind the steps all of them, since a training may end
// or resume there. Before them it is those of this step's number, in which ranks were lost.
func (l *Loop) evaluateMissing(all bool) {
	done := l.values.Done
	for _, e := range l.evals {
		steps, _ := l.Values(e.name)
		if due := all || e.every > 0 && done%e.every == 0; done > 0 && due && !slices.Contains(steps, done) {
			l.evaluate(e, done)
		}
	}
}
