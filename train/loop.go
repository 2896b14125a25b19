package train

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/curve"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Loop is one rank's training.
type Loop struct {
	ctx     context.Context
	r       *dist.Rank
	g       *dist.Group // what goes over it is not training
	o       Options
	state   ckpt.State
	saver   *ckpt.Saver // nil without Options.Save
	source  *data.Loader
	kept    kept // goes into checkpoints
	steps   int  // done
	resumed int
	saved   int // steps in the last checkpoint
	err     error

	columns []*column
	since   int // steps since the last Flush
	next    int // steps from one Flush to the next
	flushed time.Time
	rows    map[int]map[string]float64 // values by step and name that the writers have not got
	writers []Writer                   // on rank 0
	show    progress

	hear     atomic.Int32   // the signal that this process got
	signal   syscall.Signal // that all ranks know of
	unlisten func()
}

// Start begins a training whose state is st, and with Options.Resume goes on from the newest checkpoint. Files that cannot be
// written, and a directory that holds checkpoints without Options.Resume, are errors now, on all ranks.
func Start(ctx context.Context, r *dist.Rank, o *Options, st ckpt.State) (*Loop, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	l := &Loop{ctx: ctx, r: r, g: r.World.With(dist.Name("train")), o: *o, state: st, next: 1, rows: map[int]map[string]float64{}}
	if err := l.onZero(l.tryFiles); err != nil {
		return nil, err
	}
	if o.Save != "" {
		if err := l.resume(); err != nil {
			return nil, err
		}
		l.saver = ckpt.NewSaver(r.World, o.Save, ckpt.Config{Keep: keep})
	}
	if err := l.onZero(func() error {
		if o.Metrics == "" {
			return nil
		}
		f, err := metrics.Open(o.Metrics, l.resumed)
		if err == nil {
			l.To(f)
		}
		return err
	}); err != nil {
		return nil, err
	}
	if r.Live != nil && l.g.Rank() == 0 {
		l.To(r.Live)
	}
	if err := l.probeGrads(); err != nil {
		return nil, err
	}
	if l.state.Optimizer != nil {
		l.state.Optimizer.Trace(r.Trace)
	}
	l.listen()
	l.flushed = time.Now()
	l.show.begin(l)
	return l, nil
}

// onZero calls f on rank 0. All ranks get its error.
func (l *Loop) onZero(f func() error) error {
	var mine error
	text := ""
	if l.r.World.Rank() == 0 {
		if mine = f(); mine != nil {
			text = mine.Error()
		}
	}
	text, err := dist.BroadcastObject(l.g, text, 0)
	if err != nil || mine != nil {
		return errors.Join(mine, err)
	}
	if text != "" {
		return errors.New(text)
	}
	return nil
}

// listen notes the first signal; the next one kills, as it does without a Loop and after Close. What was ignored when the
// program began, as by nohup, stays ignored.
func (l *Loop) listen() {
	c := make(chan os.Signal, 1)
	ctx, cancel := context.WithCancel(l.ctx)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	l.unlisten = func() { signal.Stop(c); cancel() }
	go func() {
		select {
		case s := <-c:
			if s, ok := s.(syscall.Signal); ok {
				l.hear.Store(int32(s))
			}
		case <-ctx.Done(): // Close, or the end of the job
		}
		l.unlisten()
	}()
}

// Steps yields the numbers of the steps up to n, from 0 or from where the checkpoint stands. It ends early after a signal or
// an error, which Close returns. Break when a step is done: it counts.
func (l *Loop) Steps(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		l.begin(n)
		defer l.show.step.Store(0)
		for l.Going() && l.steps < n {
			l.show.step.Store(int64(l.steps + 1))
			l.r.Trace.Step(l.steps)
			if !yield(l.steps) {
				l.steps++
				return // perhaps with an error that other ranks do not have: nothing that they must take part in
			}
			l.endStep(0)
		}
	}
}

// Batches yields the steps up to n, as Steps does, each with this rank's part of a batch, over as many epochs as that takes.
// Checkpoints hold where b stands.
func (l *Loop) Batches(b *data.Loader, n int) iter.Seq2[int, data.Batch] {
	return func(yield func(int, data.Batch) bool) {
		l.begin(n)
		defer l.show.step.Store(0)
		at := b.State()
		if l.source == nil && l.resumed > 0 {
			at = l.kept.Loader
		}
		l.source = b
		for l.Going() && l.steps < n {
			if l.err = b.SetState(at); l.err != nil {
				return
			}
			l.awaitBatch()
			for _, batch := range b.Epoch(l.ctx, at.Epoch) {
				l.show.step.Store(int64(l.steps + 1))
				l.r.Trace.Phase("")
				if !yield(l.steps, batch) {
					l.steps++
					return
				}
				l.endStep(batch.Global)
				if !l.Going() || l.steps == n {
					break
				}
				l.awaitBatch()
			}
			if l.err == nil {
				l.err = b.Err()
			}
			at = b.State()
		}
	}
}

// begin notes how many steps there will be.
func (l *Loop) begin(steps int) {
	l.show.total = steps
	l.r.Live.Begin(l.steps, steps)
}

// awaitBatch begins a step in the trace, with the wait for its batch.
func (l *Loop) awaitBatch() {
	l.r.Trace.Step(l.steps)
	l.r.Trace.Phase("loader")
}

// endStep reads values, hears of signals and saves where it is time for it. The step used so many samples of all ranks.
func (l *Loop) endStep(samples int) {
	l.steps++
	l.r.Live.Step(samples)
	l.since++
	due := l.saver != nil && l.o.SaveEvery > 0 && l.steps%l.o.SaveEvery == 0
	if l.Going() && (due || l.since >= l.next) {
		l.err = l.Flush()
	}
	if l.Going() && due {
		l.err = l.save()
	}
	l.r.Trace.EndStep()
}

// Going reports whether the loop goes on: no signal has ended it, and no error.
func (l *Loop) Going() bool { return l.err == nil && l.signal == 0 }

// Done returns how many steps are done, and how many of them were before this process began.
func (l *Loop) Done() (steps, resumed int) { return l.steps, l.resumed }

// Close saves what is not saved yet, and writes the timeline and the picture. It returns the first error of the loop, an
// *Interrupted after a signal. Do not call it when a step failed: return that error.
func (l *Loop) Close() error {
	l.show.end()
	l.r.Trace.EndStep()
	defer l.unlisten()
	if l.state.Optimizer != nil {
		l.state.Optimizer.Probe(nil) // the loop's group closes
	}
	if l.err != nil {
		return errors.Join(l.err, l.closeWriters())
	}
	err := l.Flush()
	if err == nil && l.saver != nil {
		if l.saved != l.steps {
			err = l.save()
		}
		err = errors.Join(err, l.saver.Close())
	}
	if err != nil { // other ranks may not be here
		return errors.Join(err, l.closeWriters())
	}
	if err := errors.Join(l.writeTrace(), l.writePlot(), l.closeWriters()); err != nil {
		return err
	}
	if err := l.g.Close(); err != nil {
		return err
	}
	if l.signal != 0 {
		return &Interrupted{l.signal, l.steps, l.saver != nil, l.r.World.Rank()}
	}
	return nil
}

// writeTrace writes the timeline of all ranks, or that of each one.
func (l *Loop) writeTrace() error {
	name, own := l.o.traceFile(l.r.World.Rank())
	switch {
	case name == "":
		return nil
	case own:
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		return errors.Join(l.r.WriteOwnTrace(f), f.Close())
	case l.r.World.Rank() != 0:
		return l.r.WriteTrace(nil)
	}
	f, err := os.Create(name)
	if err != nil { // the others wait for this rank
		return errors.Join(err, l.r.WriteTrace(nil))
	}
	return errors.Join(l.r.WriteTrace(f), f.Close())
}

// writePlot draws all values.
func (l *Loop) writePlot() error {
	if l.o.Plot == "" || l.r.World.Rank() != 0 {
		return nil
	}
	var all []curve.Series
	for _, s := range l.kept.Values {
		steps, values := l.Values(s.Name)
		all = append(all, curve.Series{Name: s.Name, Steps: steps, Values: values})
	}
	return curve.Draw(l.o.Plot, curve.Run{Series: all})
}
