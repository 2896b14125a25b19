package dist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// In a step that capture.New records, operations are issued and waited for between two graphs, by functions that replays call again.
// So a recorded step communicates in the same way as any other, and not all ranks need to record it at the same time.
//
// A replay uses memory in the same places as the recording. So whether an operation is over, and its memory free, must not depend on
// timing: in a recording, an operation is over when the step has waited for it, and not before.

var (
	errHostMemory = errors.New(
		"on host memory inside a captured step (see capture.Step): replays do not run the code that fills it or reads it")
	errHostWait = errors.New(
		"the host waits for a result inside a captured step (see capture.Step): replays do not run the code that reads it")
	errAnySender = errors.New("from any rank inside a captured step (see capture.Step): replays would not know from which")
	errBefore    = errors.New("a captured step waits for an operation from before it")
)

// recordedOps is what a recorded step does on one lane.
type recordedOps struct {
	r      *tensor.Recording
	ops    []*recordedOp
	waited uint64 // the step has waited for all operations up to this one
}

// recordedOp is an operation of a recorded step.
type recordedOp struct {
	issue func() Work
	seq   uint64           // its number in the recording
	work  Work             // of the last run
	uses  [2]tensor.Tensor // kept
	parts []Work           // of a batch
}

// recording returns the recording of the rank's device; nil if it makes none.
func (c *comm) recording() *tensor.Recording {
	if c.grapher == nil {
		return nil
	}
	return c.grapher.Recording()
}

// recordingOf returns what the current recording has on the lane; nil if there is none.
func (l *lane) recordingOf() *recordedOps {
	if l.track == nil || l.track.r != l.c.recording() {
		return nil
	}
	return l.track
}

// find returns operation seq; nil if it was issued before the step.
func (t *recordedOps) find(seq uint64) *recordedOp {
	if t == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(t.ops, seq, func(o *recordedOp, seq uint64) int { return cmp.Compare(o.seq, seq) })
	if !found {
		return nil
	}
	return t.ops[i]
}

// last returns the last operation.
func (t *recordedOps) last() Work { return t.ops[len(t.ops)-1].work }

// record issues an operation now, and again in each replay.
func (l *lane) record(r *tensor.Recording, kind backend.Kind, o *recordedOp) Work {
	err := r.Between(func() error {
		o.work = o.issue()
		o.work.settle() // the step waits for all
		return nil
	})
	if err != nil && o.work.l == nil { // the device does not record
		return l.g.issueNow(l.g.lane, &call{kind: kind}, err)
	}
	if t := l.track; t == nil || t.r != r {
		l.track = &recordedOps{r: r}
		r.Last(func() error { return l.track.last().recordWait(r, true) })
	}
	o.seq = o.work.seq
	l.track.ops = append(l.track.ops, o)
	l.g.captured.Store(true)
	return o.work
}

// recordCall is issue in a recorded step. err is what a check found.
func (g *group) recordCall(r *tensor.Recording, l *lane, c *call, err error) Work {
	o, mine := &recordedOp{uses: c.xs}, *c
	if err == nil {
		err = mine.detach(g.c.dev)
	}
	o.issue = func() Work { return g.issueNow(l, &mine, err) }
	w := l.record(r, c.kind, o)
	for _, x := range c.xs {
		if !x.IsZero() && x.Valid() {
			tensor.Raw(x).Borrow(w.l, w.seq)
		}
	}
	return w
}

// detach makes c independent of memory that the caller and tapes will use again.
func (c *call) detach(dev tensor.Device) error {
	if err := c.checkDevice(dev); err != nil {
		return err
	}
	if c.src.Bytes > 0 && !c.src.Device || c.dst.Bytes > 0 && !c.dst.Device {
		return errHostMemory
	}
	c.send, c.recv = slices.Clone(c.send), slices.Clone(c.recv)
	of := c.of
	for i, x := range c.xs {
		if x.IsZero() {
			continue
		}
		c.xs[i] = tensor.FromPtr(dev, x.Ptr(), x.DType(), x.Shape().Dims...)
		if x == of {
			c.of = c.xs[i]
		}
	}
	return nil
}

// recordBatch is Batch in a recorded step.
func (g *group) recordBatch(r *tensor.Recording, parts []Work) Work {
	o, ops, works := &recordedOp{parts: slices.Clone(parts)}, make([]*recordedOp, len(parts)), make([]Work, len(parts))
	for i, w := range parts {
		if ops[i] = w.l.recordingOf().find(w.seq); ops[i] == nil {
			return g.recordCall(r, g.lane, &call{kind: backend.Batch}, errBefore)
		}
	}
	o.issue = func() Work {
		for i, p := range ops {
			works[i] = p.work
		}
		return g.join(works)
	}
	return g.batch.record(r, backend.Batch, o)
}

// recordWait is wait in a recorded step.
func (w Work) recordWait(r *tensor.Recording, order bool) error {
	t := w.l.recordingOf()
	o := t.find(w.seq)
	switch {
	case o == nil && w.l.FenceDone(w.seq):
		_, err := w.l.result(w.seq)
		return err
	case o == nil:
		return errBefore
	case !order:
		return fmt.Errorf("%v seq %d of group %s: %w", w.l.slot(w.seq).op.Kind, w.seq, w.l.g.name, errHostWait)
	case w.seq <= t.waited:
		return nil
	}
	t.waited = w.seq
	for _, p := range o.parts {
		at := p.l.recordingOf()
		at.waited = max(at.waited, p.seq)
	}
	return r.Between(func() error { return o.work.Wait() })
}
