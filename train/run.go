package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/rebuild"
)

// Run is dist.Run with the threads, the device and the trace of o. If a signal ended the training, and Close returned that, the error is
// an *Interrupted.
func (o *Options) Run(cfg dist.Config, f func(ctx context.Context, r *dist.Rank) error) error {
	if err := o.Check(); err != nil {
		return err
	}
	cfg.Threads, cfg.Device = o.Threads, o.Device
	if o.Trace != "" {
		cfg.Trace = 1 << 18 // spans of a rank
	}
	var interrupted atomic.Pointer[Interrupted]
	err := dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error {
		var err error
		if rebuild.Asked() {
			err = runAndRebuild(ctx, r, f)
		} else {
			err = f(ctx, r)
		}
		if in, ok := err.(*Interrupted); ok { // and no other error: all ranks have ended in order
			if !interrupted.CompareAndSwap(nil, in) && in.Rank == 0 {
				interrupted.Store(in)
			}
			return nil
		}
		return err
	})
	if in := interrupted.Load(); err == nil && in != nil {
		return in
	}
	return err
}

// Interrupted is the error of a training that a signal ended.
type Interrupted struct {
	Signal syscall.Signal
	Step   int  // steps that are done
	Saved  bool // they are in a checkpoint
	Rank   int
}

// Error says how far the training got, and whether it can go on.
func (e *Interrupted) Error() string {
	if e.Saved {
		return fmt.Sprintf("interrupted at step %d; -resume goes on", e.Step)
	}
	return fmt.Sprintf("interrupted at step %d; nothing saved", e.Step)
}

// UsageError says what is wrong with a command line.
type UsageError string

// Error returns the text.
func (e UsageError) Error() string { return string(e) }

// Usagef returns a UsageError.
func Usagef(format string, a ...any) error { return UsageError(fmt.Sprintf(format, a...)) }

// Exit prints an error, with the program's name in front, and ends the program. Without an error it returns. The exit status is 2 for a
// UsageError, 128 + n for an Interrupted by signal n (only rank 0 prints it), and 1 for other errors.
func Exit(err error) {
	if err == nil {
		return
	}
	status := 1
	in, interrupted := errors.AsType[*Interrupted](err)
	if interrupted {
		status = 128 + int(in.Signal)
	} else if _, ok := errors.AsType[UsageError](err); ok {
		status = 2
	}
	if !interrupted || in.Rank == 0 {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	}
	os.Exit(status)
}
