package ckpt

import (
	"context"
	"fmt"
	"time"
)

// background is a save that runs while training continues.
type background struct {
	step   int
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the save ends
	err    error         // valid after done is closed
}

// start begins the save in the background.
func (w *writer) start(ctx context.Context) *background {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &background{step: w.step, cancel: cancel, done: make(chan struct{})}
	go func() {
		b.err = w.save(ctx)
		cancel(nil)
		close(b.done)
	}()
	return b
}

// lastWait is how long an aborted save may take to end: a write that has reached the disk cannot be cancelled.
const lastWait = 10 * time.Second

// atEnd waits for the background work after the rank's function has returned. When ctx ends, it cancels the save and
// waits at most s.patience for a disk that does not answer.
func (s *Saver) atEnd(ctx context.Context) error {
	if s.last == nil {
		return s.removed(ctx)
	}
	select {
	case <-s.last.done:
	case <-ctx.Done():
		s.last.cancel(context.Cause(ctx))
		select {
		case <-s.last.done:
		case <-time.After(s.patience):
			return fmt.Errorf("ckpt: step %d is not saved: the disk has not answered for %v, and the job ended: %w",
				s.last.step, s.patience, context.Cause(ctx))
		}
	}
	err := s.Wait()
	if err != nil {
		return err
	}
	return s.removed(ctx)
}

// removed waits until old checkpoints are removed, or ctx ends. The next save removes what is left.
func (s *Saver) removed(ctx context.Context) error {
	waited := make(chan struct{})
	go func() {
		s.removal.Wait()
		close(waited)
	}()
	select {
	case <-waited:
	case <-ctx.Done():
	}
	return nil
}
