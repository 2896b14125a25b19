package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
)

// maxFileBytes is the size at which a new file begins.
const maxFileBytes = 5_000_000_000

// Config has the options of a Saver.
type Config struct {
	Keep  int  // number of checkpoints to keep; a save removes older ones. 0: all
	Async bool // Save returns as soon as it has copied the state; see Saver.Save
	// Spare returns which of all steps in the directory, the new one included, stay although they are not among the newest; nil: none. A save
	// calls it on rank 0.
	Spare func(steps []int) []int
}

// Saver writes the checkpoints of a run as folders step-00000100 and so on in a directory. All ranks must see this
// directory. Only one run at a time may save to it; others get an error.
type Saver struct {
	user      *dist.Group
	g         *dist.Group // on its own lane, because a save runs while training continues
	dir       string
	c         Config
	fs        disk.FS
	fileBytes int64
	last      *background    // the save in the background; nil: none
	patience  time.Duration  // how long to wait for the disk when the job ends
	removal   sync.WaitGroup // of old checkpoints, on rank 0
	planned   *rankPlan      // the last plan; nil: none
	staging   staging
	said      map[string]bool // warnings
}

// NewSaver returns a Saver for the ranks of g, which together hold the state. It is collective. dist.Run waits for the
// Saver's background work, and returns its error.
func NewSaver(g *dist.Group, dir string, c Config) *Saver {
	s := &Saver{user: g, g: g.With(dist.Name("ckpt")), dir: dir, c: c, fs: disk.OS{}, fileBytes: maxFileBytes, patience: lastWait,
		said: map[string]bool{}}
	g.AtEnd(s.atEnd)
	return s
}

// Save writes a checkpoint of st. It is collective, and returns the same result on all ranks: nil when the checkpoint
// is complete and flushed to the disk. The folder has a temporary name until all ranks have succeeded. The ranks must
// agree on the step, extra state, the tensors, the operations called on the group so far, and the bits of parameters
// that several ranks hold. Values must be finite, but for those of buffers (see State.Nonfinite). After an error, the
// directory is as before, with two exceptions. If flushing the new name fails, or if old checkpoints cannot be removed
// (the error then says "saved"), the complete new checkpoint may be there.
//
// With Config.Async, it returns as soon as it has copied what this rank writes. Then parameters and optimizer may
// change. The next Save, Wait, Close, or the end of dist.Run waits for the save, and returns its error. If the function
// of a rank returns an error, a save in the background can still finish (see dist.Rank.AtEnd). If a rank or a group is
// lost, or ctx ends, the save fails and leaves nothing.
//
// Steps must grow: Save returns an error if the directory has this step or a later one.
func (s *Saver) Save(ctx context.Context, st State) error {
	if err := s.Wait(); err != nil {
		return err
	}
	w, err := s.begin(st)
	if err != nil {
		return fmt.Errorf("ckpt: step %d is not saved: %w", st.Step, err)
	}
	if !s.c.Async {
		return w.save(ctx)
	}
	s.last = w.start(ctx)
	return nil
}

// save finishes the save, and adds the step to the error.
func (w *writer) save(ctx context.Context) error {
	defer w.release()
	if err := w.finish(ctx); err != nil {
		return fmt.Errorf("ckpt: saving step %d: %w", w.step, err)
	}
	return nil
}

// Wait waits for the save in the background, if there is one, and returns its error.
func (s *Saver) Wait() error {
	if s.last == nil {
		return nil
	}
	<-s.last.done
	err := s.last.err
	s.last = nil
	return err
}

// Close waits for the work in the background (a save, or the removal of old checkpoints), and returns the save's error.
// It is collective.
func (s *Saver) Close() error {
	err := s.Wait()
	s.removal.Wait()
	s.staging = staging{}
	return errors.Join(err, s.g.Close())
}

// writer is one save on one rank.
type writer struct {
	*Saver
	step int
	*rankPlan
	err error // this rank's error, to be reported to all ranks

	unlock func() // unlocks the directory; on rank 0
}

// begin plans the save together with the other ranks. With Config.Async, it also copies the data.
func (s *Saver) begin(st State) (*writer, error) {
	o, mine := st.optimizer(), s.planned
	c, err := st.summary(&o)
	if err == nil && s.c.Keep < 0 {
		err = fmt.Errorf("Config.Keep is %d: it is the number of checkpoints to keep, and 0 keeps all", s.c.Keep)
	}
	if err == nil && !mine.plans(&st, &o) {
		mine, err = newRankPlan(&st, &o)
	}
	if err = cmp.Or(err, s.user.Err()); err != nil {
		c.Err = err.Error()
	}
	c.Calls = s.user.Stats().Calls
	for _, kind := range []backend.Kind{backend.Send, backend.Recv, backend.Batch} {
		delete(c.Calls, kind.String()) // all other kinds must be called equally often on all ranks
	}
	if s.g.Rank() == 0 {
		st.warn(s.said)
	}
	if err := s.coordinate(c, mine, &st); err != nil {
		mine.release()
		return nil, err
	}
	mine.check(&st)
	w := &writer{Saver: s, step: st.Step, rankPlan: mine}
	if s.c.Async {
		w.err = s.staging.fetch(w.jobs, true)
	}
	return w, nil
}

// finish writes this rank's pieces. Rank 0 commits if all ranks have succeeded.
func (w *writer) finish(ctx context.Context) (err error) {
	tmp := "" // on rank 0, which makes it
	w.unlock = func() {}
	defer func() { w.unlock() }()
	name, err := dist.OnRank0(w.g, func() (_ string, err error) {
		tmp, err = w.prepare()
		return tmp, err
	})
	if err != nil {
		return w.drop(tmp, err)
	}
	if w.err == nil {
		w.err = w.write(ctx, name)
	}
	all, err := gather(w.g, w.verdict())
	if err != nil {
		return w.drop(tmp, err)
	}
	_, err = dist.OnRank0(w.g, func() (bool, error) {
		err := w.global.agree(all)
		if err == nil {
			err = w.commit(tmp)
		}
		return true, w.drop(tmp, err)
	})
	return err
}

// drop removes the temporary folder after an error, and returns the error. tmp is "" on ranks other than 0.
func (w *writer) drop(tmp string, err error) error {
	if err == nil || tmp == "" {
		return err
	}
	return errors.Join(err, w.fs.RemoveAll(filepath.Join(w.dir, tmp)))
}
