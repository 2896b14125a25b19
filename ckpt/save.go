package ckpt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/backend"
)

// maxFileBytes is the size at which a new file begins.
const maxFileBytes = 5_000_000_000

// Config changes a Saver.
type Config struct {
	Keep  int  // complete checkpoints to keep; older ones are removed after a save. 0: all
	Async bool // Save returns when it has copied the state; see Saver.Save
}

// Saver writes the checkpoints of a run into a directory, which all ranks must see, as folders step-00000100 and so on. A
// directory belongs to one run at a time: a save that meets another one there is refused.
type Saver struct {
	user      *dist.Group
	g         *dist.Group // its own lane: saving goes on beside training
	dir       string
	c         Config
	fs        fileSystem
	fileBytes int64
	last      *background    // the save that goes on beside training; nil: none
	patience  time.Duration  // with a disk, when the job ends
	removal   sync.WaitGroup // of old checkpoints, on rank 0
	planned   *planned       // nil: nothing yet
	staging   staging
}

// NewSaver returns a Saver for the ranks of g, which hold the state together. It is collective. What the Saver does in the
// background is over when dist.Run returns, and Run returns its error.
func NewSaver(g *dist.Group, dir string, c Config) *Saver {
	s := &Saver{user: g, g: g.With(dist.Name("ckpt")), dir: dir, c: c, fs: disk{}, fileBytes: maxFileBytes, patience: lastWait}
	g.AtEnd(s.atEnd)
	return s
}

// Save writes a checkpoint of st. It is collective, and all ranks return the same verdict: nil when the checkpoint is
// complete and flushed to the disk. It is written under a temporary name and gets its own when all ranks agree: on step,
// extra state, tensors, what they have called on the group so far, and the bits of parameters that several ranks hold. On any
// error nothing is left but what was there before; only when the very last flush fails, of the new name, the new
// checkpoint may be there, complete.
//
// With Config.Async it returns as soon as it has copied what this rank writes: parameters and optimizer may change then. The
// next Save, Wait, Close or the end of dist.Run waits for it, and returns its error if it failed. If a rank's function fails
// by itself while a save is in the background, the save may still finish (see dist.Rank.AtEnd); if a rank or a group is
// lost, or ctx ends, it ends in error, and nothing of it is left.
//
// Steps grow: a directory that has this step or a later one is refused.
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

// save writes and says which step failed.
func (w *writer) save(ctx context.Context) error {
	defer w.release()
	if err := w.finish(ctx); err != nil {
		return fmt.Errorf("ckpt: saving step %d: %w", w.step, err)
	}
	return nil
}

// Wait waits for the save in the background, if any, and returns its error.
func (s *Saver) Wait() error {
	if s.last == nil {
		return nil
	}
	<-s.last.done
	err := s.last.err
	s.last = nil
	return err
}

// Close waits for what goes on in the background, a save or the removal of an old checkpoint, and returns the save's error.
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
	*planned
	err error // of this rank, for all to hear

	unlock func() // of the directory, on rank 0
}

// begin agrees with the other ranks on what is written by whom, and takes hold of the data.
func (s *Saver) begin(st State) (*writer, error) {
	o, mine := st.optimizer(), s.planned
	c, err := st.summary(&o)
	if err == nil && !mine.plans(&st, &o) {
		mine, err = newPlanned(&st, &o)
	}
	if err == nil {
		err = s.user.Err()
	}
	if err != nil {
		c.Err = err.Error()
	}
	c.Calls = s.user.Stats().Calls
	for _, kind := range []backend.Kind{backend.Send, backend.Recv, backend.Batch} {
		delete(c.Calls, kind.String()) // the others are the same on all ranks
	}
	if err := s.coordinate(c, mine, &st); err != nil {
		mine.release()
		return nil, err
	}
	w := &writer{Saver: s, step: st.Step, planned: mine}
	if s.c.Async {
		w.err = s.staging.fetch(w.jobs, true)
	}
	return w, nil
}

// finish writes, and commits when all ranks agree.
func (w *writer) finish(ctx context.Context) error {
	type start struct{ Tmp, Err string }
	var now start
	if w.g.Rank() == 0 {
		w.unlock = func() {}
		defer func() { w.unlock() }()
		tmp, err := w.prepare()
		now.Tmp = tmp
		if err != nil {
			now.Err = err.Error()
		}
	}
	now, err := dist.BroadcastObject(w.g, now, 0)
	if err == nil {
		err = asError(now.Err)
	}
	if err != nil {
		return w.drop(now.Tmp, err)
	}
	if w.err == nil {
		w.err = w.write(ctx, now.Tmp)
	}
	all, err := gatherObjects(w.g, w.verdict())
	if err != nil {
		return w.drop(now.Tmp, err)
	}
	failed := ""
	if w.g.Rank() == 0 {
		err := w.global.agree(all)
		if err == nil {
			err = w.commit(now.Tmp)
		}
		if err != nil {
			failed = w.drop(now.Tmp, err).Error()
		}
	}
	if failed, err = dist.BroadcastObject(w.g, failed, 0); err != nil {
		return w.drop(now.Tmp, err)
	}
	return w.heard(failed)
}

// drop removes what was written.
func (w *writer) drop(tmp string, err error) error {
	if tmp == "" || w.g.Rank() != 0 {
		return err
	}
	return errors.Join(err, w.fs.RemoveAll(filepath.Join(w.dir, tmp)))
}

// parallel calls fn for 0 to n-1 on a few goroutines and returns the first error. After that it begins no further ones.
func parallel(n int, fn func(i int) error) error {
	g, failed := errgroup.WithContext(context.Background())
	g.SetLimit(min(4, runtime.GOMAXPROCS(0)))
	for i := range n {
		g.Go(func() error {
			if failed.Err() != nil {
				return nil
			}
			return fn(i)
		})
	}
	return g.Wait()
}
