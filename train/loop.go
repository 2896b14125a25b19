package train

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/internal/checkpoint"
	"github.com/ringo-ml/ringo/train/internal/interrupt"
	"github.com/ringo-ml/ringo/train/internal/output"
	"github.com/ringo-ml/ringo/train/internal/progress"
	"github.com/ringo-ml/ringo/train/internal/values"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Loop is one rank's training.
type Loop struct {
	ctx      context.Context
	r        *dist.Rank
	g        *dist.Group // of its own: its bytes are not those of training
	o        Options
	opt      *optim.Optimizer
	files    output.Files
	dir      *checkpoint.Dir
	values   *values.Table
	progress *progress.Progress // nil: nothing
	signals  *interrupt.Listener
	source   *data.Loader
	loaders  []*data.Loader // all that Batches had, in the order of their first use
	batch    data.Batch     // that the step works on
	err      error

	state    ckpt.State
	survivor *survivor // nil without -rebuild
	snapshot *snapshot // nil without -rebuild
	running  int       // the step that runs, or ran last
	early    bool      // Options.Patience has ended it
	due      bool      // a checkpoint
	open     bool      // a rank has gradients of microbatches, which no checkpoint has: none is saved, and only an error ends the loop
	until    int       // steps at the end of Steps or Batches

	begun time.Time
	meter meter
	evals []*evaluation
}

// Start begins a training with the state st. With Options.Resume it goes on from the newest checkpoint. If a file cannot be written, or
// if the directory has checkpoints and Options.Resume is not set, Start returns an error on all ranks.
func Start(ctx context.Context, r *dist.Rank, o *Options, st ckpt.State) (*Loop, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := checkpoint.CheckExtra(st.Extra); err != nil {
		return nil, err
	}
	g := r.World.With(dist.Name("train"))
	l := &Loop{ctx: ctx, r: r, g: g, o: *o, opt: st.Optimizer}
	l.files = output.Files{Metrics: o.Metrics, TensorBoard: o.TensorBoard, Plot: o.Plot, Trace: o.Trace}
	l.state, l.values, l.begun = st, values.New(g, r.Device), time.Now()
	l.values.Best = o.best().Name
	err := l.files.Try(g)
	if err == nil {
		err = l.begin()
	}
	if err != nil {
		return nil, err
	}
	if err = l.files.Record(g, l.values); err != nil {
		return nil, err
	}
	if l.opt != nil {
		l.opt.Trace(r.Trace)
		l.watch()
	}
	if s := l.survivor; s != nil && s.loop != nil {
		l.signals = s.loop.signals
	} else {
		l.signals = interrupt.Listen(ctx)
	}
	if g.Rank() == 0 && r.Live != nil {
		l.To(r.Live)
	}
	if g.Rank() == 0 && !o.Quiet {
		l.progress = progress.Start(ctx, l.values.Done, r.Logf)
	}
	if l.survivor != nil {
		l.survivor.loop = l
	}
	l.heedPatience()
	return l, l.takeSnapshot(l.values.Done)
}

// begin sets the step at which the training begins: after the loss of a rank the step where it was, with Options.Resume that of the
// checkpoint, otherwise 0.
func (l *Loop) begin() (err error) {
	var old *Loop
	// A restart of the job goes on from the newest checkpoint, also if the first start did not.
	step := l.o.ResumeStep
	if l.r.Generation() > 1 {
		step = 0
	}
	c := checkpoint.Config{Dir: l.o.Save, Resume: l.o.Resume, Step: step, Keep: l.o.Keep, Best: l.o.best(), LR: l.o.Override == "lr"}
	if c.Settings, err = dist.OnRank0(l.g, l.o.settings); err != nil {
		return err
	}
	if l.survivor, _ = l.ctx.Value(survivorKey{}).(*survivor); l.survivor != nil {
		if err := canRebuild(l.r, l.state); err != nil {
			return err
		}
		l.values.Each, old = true, l.survivor.loop
		l.dir = checkpoint.New(l.r, c, l.state, l.values)
		if on, err := l.takeOver(old); on || err != nil {
			return err
		}
	}
	l.dir, err = checkpoint.Open(l.ctx, l.r, l.g, c, l.state, l.values)
	if err != nil || l.dir.From == 0 {
		return err
	}
	l.Logf("resumed at step %d", l.dir.From)
	for _, note := range l.dir.Notes {
		l.Logf("%s", note)
	}
	return nil
}

// Steps yields the numbers of the steps up to n. It begins at 0, or at the step of the checkpoint. It ends early by Options.Patience, and
// after a signal or an error, which Close returns. If you break, do it at the end of a step: the step counts.
func (l *Loop) Steps(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		l.beginSteps(n)
		defer l.endSteps()
		for l.more(n) {
			l.r.Trace.Step(l.values.Done)
			if !l.step(0, 0, func() bool { return yield(l.values.Done) }) {
				return
			}
		}
		l.evaluateMissing(true)
	}
}

// Batches yields the steps up to n, as Steps does, each with this rank's part of a batch. It takes as many epochs as needed.
// Checkpoints have b's place in the data; of several loaders, a resumed program gives them in the same order. The place of one that the
// program reads itself, by Epoch, is its own to keep: its State in ckpt.State.Extra, and SetState behind Start.
func (l *Loop) Batches(b *data.Loader, n int) iter.Seq2[int, data.Batch] {
	return func(yield func(int, data.Batch) bool) {
		l.beginSteps(n)
		defer l.endSteps()
		at := l.place(b)
		l.source = b
		for l.more(n) {
			if l.err = b.SetState(at); l.err != nil {
				return
			}
			l.beginStep()
			for _, batch := range b.Epoch(l.ctx, at.Epoch) {
				l.r.Trace.Phase("")
				l.batch = batch
				if !l.step(batch.Global, tokens(batch), func() bool { return yield(l.values.Done, batch) }) {
					return
				}
				if !l.more(n) {
					break
				}
				l.beginStep()
			}
			l.batch = data.Batch{}
			if l.err == nil {
				l.err = b.Err()
			}
			at = b.State()
		}
		l.evaluateMissing(true)
	}
}

// place returns where b begins: where it stands, or, if it is new here, where the checkpoint has it.
func (l *Loop) place(b *data.Loader) data.State {
	if i := len(l.loaders); !slices.Contains(l.loaders, b) {
		if l.loaders = append(l.loaders, b); i < len(l.dir.Loaders) && l.err == nil {
			l.err = b.SetState(l.dir.Loaders[i])
		}
	}
	return b.State()
}

// places returns where all loaders stand, also those that the checkpoint has and the program did not use since.
func (l *Loop) places() (all []data.State) {
	for _, b := range l.loaders {
		all = append(all, b.State())
	}
	return append(all, l.dir.Loaders[min(len(all), len(l.dir.Loaders)):]...)
}

// more reports whether the loop goes on to step n.
func (l *Loop) more(n int) bool { return l.err == nil && l.values.Done < n && (l.open || !l.ends()) }

// ends reports whether the loop ends before its last step.
func (l *Loop) ends() bool { return l.early || l.signals.Agreed != 0 }

// beginSteps tells progress and the live view how many steps there will be.
func (l *Loop) beginSteps(n int) {
	l.until = n
	l.progress.Until(n)
	l.r.Live.Begin(l.values.Done, n)
	l.meter.turn(true)
	l.evaluateMissing(false)
}

// endSteps ends what beginSteps began.
func (l *Loop) endSteps() {
	l.progress.Run(0)
	l.meter.turn(false)
}

// beginStep begins a step in the trace, with the wait for its batch.
func (l *Loop) beginStep() {
	l.r.Trace.Step(l.values.Done)
	l.r.Trace.Phase("loader")
}

// tokens returns how many tokens of all ranks a batch has, with padding: integers [rows, ..., n] with labels [rows, n]. 0: there are none,
// as in pictures, of which each has k labels.
func tokens(b data.Batch) int {
	if last := b.X.NDim() - 1; b.X.DType().IsFloat() || b.Y.DType().IsFloat() || b.Y.NDim() != 2 || last < 1 || b.X.Dim(last) != b.Y.Dim(1) {
		return 0
	}
	return b.Global * b.Y.Dim(1)
}

// step runs body as one step, which uses so many samples and tokens of all ranks. It returns false if the script leaves the loop.
func (l *Loop) step(samples, tokens int, body func() bool) bool {
	l.progress.Run(l.values.Done + 1)
	l.running = l.values.Done
	l.values.Begin()
	stays := body()
	for _, e := range l.evals {
		if done := l.running + 1; stays && (done == l.until || e.every > 0 && done%e.every == 0) {
			l.evaluate(e, done)
		}
	}
	flush := l.values.Step()
	if err := l.takeSnapshot(l.values.Done); err != nil && l.err == nil {
		l.err = err
	}
	if !stays { // maybe with an error that other ranks do not have: no collectives here
		return false
	}
	l.meter.tokens += tokens
	l.r.Live.Step(samples, tokens)
	l.due = l.due || l.o.SaveEvery > 0 && l.values.Done%l.o.SaveEvery == 0 && l.o.Save != ""
	if l.err == nil && (flush || l.due || l.ends()) {
		l.err = l.Flush()
	}
	if l.Going() && l.due && !l.open {
		l.due, l.err = false, l.dir.Save(l.ctx, l.places())
	}
	l.r.Trace.EndStep()
	return true
}

// Sum adds part, one number, to the value of a name in this step. The value is the sum over all ranks, as for a loss under ddp and
// fsdp, and over all calls in the step, as for microbatches. What all ranks have whole, such as a loss behind autograd.Sum or of layers
// that they divide, counts once. The ranks of a pipeline that do not have the last stage give zeros. All ranks call Sum alike. Sum copies
// part and does not wait.
func (l *Loop) Sum(name string, part tensor.Tensor) {
	if l.err == nil && l.values.Full(name) {
		l.err = l.Flush()
	}
	if l.err == nil {
		l.values.Sum(name, part)
	}
}

// Log adds value, which all ranks know and give, such as an accuracy, to the value of a name in this step. What Log and Sum get behind the
// steps belongs to the last one.
func (l *Loop) Log(name string, value float64) { l.values.Add(name, value) }

// Logf prints a line on rank 0. With Options.Quiet it prints nothing.
func (l *Loop) Logf(format string, a ...any) {
	if !l.o.Quiet {
		l.progress.Clear()
		l.r.Logf(format, a...)
	}
}

// Flush waits for the device, and sums the values of all steps so far over the ranks. The loop calls it about twice a second, and before
// it saves. Call it on all ranks before Values. A step that Options.Nonfinite does not allow is an error.
func (l *Loop) Flush() error {
	l.r.Trace.Phase("values")
	defer l.r.Trace.Phase("")
	var late error
	if l.opt != nil {
		late = l.opt.CheckNonfinite()
	}
	err := l.gather()
	if err == nil && late == nil {
		late = l.checkLoss()
	}
	return errors.Join(late, err)
}

func (l *Loop) gather() error {
	signals, open, err := l.values.Gather(l.signals.Heard(), l.opt != nil && l.opt.Accumulates())
	if err != nil {
		return err
	}
	l.signals.Agree(signals)
	l.open = open
	l.progress.Show(l.values.Done, l.values.Series)
	l.heedPatience()
	return errors.Join(l.values.Write(), l.showOptimizer())
}

// heedPatience ends the training if Options.Patience does, also one that goes on from where it ended.
func (l *Loop) heedPatience() {
	if _, all := l.values.Of(l.o.best().Name); l.o.Patience > 0 && !l.early && l.o.best().Since(all) >= l.o.Patience {
		l.early = true
		l.Logf("stopped: %q has not become better %d times in a row", l.o.best().Name, l.o.Patience)
	}
}

// showOptimizer tells the live view what the optimizer knows.
func (l *Loop) showOptimizer() error {
	if l.opt == nil || l.r.Live == nil || l.g.Rank() != 0 {
		return nil
	}
	of := map[string]float64{"learning rate": l.opt.LR(), "skipped steps": float64(l.opt.Skipped())}
	if norm := l.opt.GradNorm(); norm != 0 {
		of["gradient norm"] = norm
	}
	return l.r.Live.Write(l.values.Done, time.Now(), of)
}

// Values returns the steps, counted from 1, and the values of a name. Those from before a resume are included. Those that Sum got since
// the last Flush are not.
func (l *Loop) Values(name string) (steps []int, values []float64) { return l.values.Of(name) }

// To makes the loop write values to w, too, from now on, and close w at the end. Call it on rank 0.
func (l *Loop) To(w metrics.Writer) { l.values.To(w) }

// Going reports whether the loop goes on: no signal has ended it, and no error.
func (l *Loop) Going() bool { return l.err == nil && l.signals.Agreed == 0 }

// Done returns how many steps are done, and how many of them were before this process began.
func (l *Loop) Done() (steps, resumed int) { return l.values.Done, l.dir.From }

// Close saves the last step, and writes the timeline and the picture. It returns the first error of the loop, or an *Interrupted after a
// signal. If a step failed, do not call it: return that error.
func (l *Loop) Close() error {
	l.progress.Close()
	l.r.Trace.EndStep()
	defer l.signals.Stop()
	if l.opt != nil {
		l.opt.OnNonfinite(nil)
	}
	err := l.err
	if err == nil {
		err = l.Flush()
	}
	if name := l.o.best().Name; name != "" && err == nil {
		if _, all := l.values.Of(name); len(all) == 0 {
			l.Logf("-keep-best: there is no value of the name %q", name)
		}
	}
	if err == nil {
		err = errors.Join(l.dir.Save(l.ctx, l.places()), l.dir.Close())
	}
	if err == nil {
		err = l.files.Write(l.r, l.values.Series)
	}
	if err = errors.Join(err, l.values.Close()); err != nil { // other ranks may not be here
		return err
	}
	if err = l.g.Close(); err == nil && l.signals.Agreed != 0 {
		err = &Interrupted{l.signals.Agreed, l.values.Done, l.o.Save != "", l.g.Rank()}
	}
	return err
}
