package train

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Options are what the flags of Flags say. The zero Options save and write nothing.
type Options struct {
	Threads   int             // computing threads of a rank; 0: cores / ranks
	Device    dist.DeviceFunc // what ranks compute on; nil: RINGO_DEVICE, or the CPU
	Save      string          // directory of checkpoints
	SaveEvery int             // steps between checkpoints; the last one is saved too. 0: only that
	Resume    bool            // go on from the newest checkpoint in Save, if there is one
	Metrics   string          // file of values by step: .jsonl or .csv
	Plot      string          // picture of the values: .svg, .png or .pdf
	Trace     string          // file with a timeline of all ranks for Perfetto; with %r, which stands for the rank, a file for each
	JSON      bool            // the script prints a summary in JSON: no progress, no lines
}

// traceFile is the file of a rank's timeline, and whether it is for that rank alone.
func (o *Options) traceFile(rank int) (name string, own bool) {
	name = strings.ReplaceAll(o.Trace, "%r", strconv.Itoa(rank))
	return name, name != o.Trace
}

// traceSpans is how many spans a rank records for Options.Trace.
const traceSpans = 1 << 18

// Flags defines -threads, -device, -save, -save-every, -resume, -metrics, -plot, -trace and -json, and returns what they set
// when fs is parsed.
func Flags(fs *flag.FlagSet) *Options {
	o := new(Options)
	fs.IntVar(&o.Threads, "threads", 0, "computing threads of a rank (0: cores/ranks)")
	fs.Func("device", "`kind` of device that ranks compute on: cpu or cuda (default: RINGO_DEVICE, or cpu)", func(name string) (err error) {
		o.Device, err = dist.Devices(name)
		return err
	})
	fs.StringVar(&o.Save, "save", "", "save checkpoints to this `directory`")
	fs.IntVar(&o.SaveEvery, "save-every", 100, "steps between checkpoints (0: only at the end)")
	fs.BoolVar(&o.Resume, "resume", false, "go on from the newest checkpoint in the directory of -save, if there is one")
	fs.StringVar(&o.Metrics, "metrics", "", "write values by step to this .jsonl or .csv `file`")
	fs.StringVar(&o.Plot, "plot", "", "draw values by step to this .svg, .png or .pdf `file`")
	fs.StringVar(&o.Trace, "trace", "", "write a timeline for Perfetto to this `file`; with %r in its name one for each rank, for ringo trace")
	fs.BoolVar(&o.JSON, "json", false, "print the summary as one JSON line, and nothing else")
	return o
}

// Check returns a UsageError for what cannot be meant. Start does it too; a script that calls it before Run says so sooner.
func (o *Options) Check() error {
	switch {
	case o.Threads < 0:
		return Usagef("-threads %d: want 1 or more, or 0", o.Threads)
	case o.SaveEvery < 0:
		return Usagef("-save-every %d: want 1 or more, or 0 for only at the end", o.SaveEvery)
	case o.Resume && o.Save == "":
		return Usagef("-resume needs -save, the directory to go on from")
	}
	if o.Metrics != "" && !metrics.Ext(o.Metrics) {
		return Usagef("-metrics %s: the name must end in .jsonl or .csv", o.Metrics)
	}
	if ext := filepath.Ext(o.Plot); o.Plot != "" && ext != ".svg" && ext != ".png" && ext != ".pdf" {
		return Usagef("-plot %s: the name must end in .svg, .png or .pdf", o.Plot)
	}
	return nil
}

// Run is dist.Run with the threads, the device and the trace that o says. When a signal ended the training and Close told
// so, the error is an *Interrupted.
func (o *Options) Run(cfg dist.Config, f func(ctx context.Context, r *dist.Rank) error) error {
	if err := o.Check(); err != nil {
		return err
	}
	cfg.Threads, cfg.Device = o.Threads, o.Device
	if o.Trace != "" {
		cfg.Trace = traceSpans
	}
	var interrupted atomic.Pointer[Interrupted]
	err := dist.Run(context.Background(), cfg, func(ctx context.Context, r *dist.Rank) error {
		err := f(ctx, r)
		if in, ok := err.(*Interrupted); ok { // alone: all ranks have come to their end in order
			if in.Rank == 0 || interrupted.Load() == nil {
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

// Error says how far the training came, and whether it can go on.
func (e *Interrupted) Error() string {
	if e.Saved {
		return fmt.Sprintf("interrupted at step %d; -resume goes on", e.Step)
	}
	return fmt.Sprintf("interrupted at step %d; nothing saved", e.Step)
}

// UsageError says what is wrong with a command line.
type UsageError string

// Error is the sentence.
func (e UsageError) Error() string { return string(e) }

// Usagef returns a UsageError.
func Usagef(format string, a ...any) error { return UsageError(fmt.Sprintf(format, a...)) }

// Exit ends a program that has an error, and returns when it has none. It prints the error behind the program's name. The
// status is 2 for a UsageError, 128 and the signal's number for an Interrupted (which rank 0 prints), else 1.
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
