package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gpu: ")
	if err := run(os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run does what the arguments say.
func run(args []string, out io.Writer) error {
	command := "all"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	fs := flag.NewFlagSet("gpu "+command, flag.ContinueOnError)
	var o options
	fs.DurationVar(&o.limit, "limit", 9*time.Minute, "end after this time, whatever is left")
	fs.DurationVar(&o.window, "window", 100*time.Millisecond, "measure five windows of this length")
	fs.StringVar(&o.run, "run", "", "only tests whose names match this `pattern`")
	fs.StringVar(&o.device, "device", "cuda", "measure on cuda or, in small, on cpu")
	fs.StringVar(&o.python, "python", "python3", "the Python with PyTorch; empty: measure ours alone")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.deadline = time.Now().Add(o.limit)
	switch command {
	case "all":
		return o.all(out)
	case "doctor":
		return o.doctor(out)
	case "list":
		return o.list(out)
	case "test":
		return o.test(fs.Args(), out)
	case "bench":
		return o.bench(fs.Args(), out)
	case "pack":
		if fs.NArg() != 1 {
			return errors.New("usage: gpu pack FILE")
		}
		return pack(fs.Arg(0), out)
	}
	return fmt.Errorf("no command %s: all, doctor, list, test, bench or pack", command)
}

// options are the flags.
type options struct {
	limit       time.Duration
	deadline    time.Time
	window      time.Duration
	run, device string
	python      string
}

// all shows the machine, tests for half of the time, and measures even when a test failed.
func (o *options) all(out io.Writer) error {
	if err := o.doctor(out); err != nil {
		return fmt.Errorf("nothing was tested or measured: %w", err)
	}
	half := *o
	half.deadline = o.deadline.Add(-o.limit / 2)
	failed := half.test(nil, out)
	return errors.Join(failed, o.bench(nil, out))
}
