package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/cuda"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("gpu: ")
	if os.Getenv("RINGO_HOPPER") == "" { // to be tested and measured
		os.Setenv("RINGO_HOPPER", "1")
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs the command in the arguments.
func run(args []string, out io.Writer) error {
	command := "all"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	if command == "example" { // its flags are its own
		return example(args)
	}
	fs := flag.NewFlagSet("gpu "+command, flag.ContinueOnError)
	var o options
	fs.DurationVar(&o.limit, "limit", 9*time.Minute, "end after this time, whatever is left")
	fs.DurationVar(&o.each, "each", 90*time.Second, "end a test, or a side of a section, after this time")
	fs.DurationVar(&o.window, "window", 100*time.Millisecond, "measure five windows of this length")
	fs.StringVar(&o.run, "run", "", "only tests whose names match this `pattern`")
	fs.StringVar(&o.device, "device", "cuda", "measure on cuda or, in small, on cpu")
	fs.BoolVar(&o.small, "small", false, "measure in small, and PyTorch on the CPU: a rehearsal")
	fs.StringVar(&o.exchange, "exchange", "", "the folder through which weights go to PyTorch; empty: a new one")
	fs.StringVar(&o.python, "python", "python3", "the Python with PyTorch; empty: measure ours alone")
	fs.StringVar(&o.logs, "logs", os.Getenv("OUT"), "a folder for everything that tests print; empty: none")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.deadline = time.Now().Add(o.limit)
	o.small = o.small || o.device == "cpu"
	if o.logs != "" {
		if err := os.MkdirAll(o.logs, 0o755); err != nil {
			return err
		}
	}
	if command != "pack" {
		o.findWheels()
	}
	switch command {
	case "all":
		return o.all(out)
	case "doctor":
		return o.examine(out)
	case "list":
		return o.list(out)
	case "test":
		return o.test(fs.Args(), out).write(out)
	case "smoke":
		return o.smoke(out)
	case "bench":
		rows, err := o.bench(fs.Args(), out)
		writeTargets(out, rows)
		return err
	case "measure":
		return o.measured().Run(fs.Args(), out)
	case "pack":
		if fs.NArg() != 1 {
			return errors.New("usage: gpu pack FILE")
		}
		return pack(fs.Arg(0), out)
	}
	return fmt.Errorf("no command %s: all, doctor, list, test, smoke, bench, measure or pack", command)
}

// options are the flags.
type options struct {
	limit, each time.Duration
	deadline    time.Time
	window      time.Duration
	run, device string
	small       bool
	exchange    string
	python      string
	logs        string
}

// findWheels makes it possible to find libraries in the wheels of the Python that has PyTorch, even if that has no virtual environment.
func (o *options) findWheels() {
	if o.python == "" || os.Getenv("VIRTUAL_ENV") != "" {
		return
	}
	prefix, err := exec.Command(o.python, "-c", "import sys; print(sys.prefix)").Output()
	if err == nil {
		_ = os.Setenv("VIRTUAL_ENV", strings.TrimSpace(string(prefix))) // a valid name, so no error
	}
}

// all shows the machine, tests for half of the time, and then measures even if something failed. If there is no device, it stops. The
// important results are printed again at the end, because often only the end of an output is kept.
func (o *options) all(out io.Writer) error {
	found := o.child(out, "doctor")
	if _, err := cuda.CountGPUs(); err != nil && o.device == "cuda" {
		return fmt.Errorf("nothing was tested or measured: %w", err)
	}
	compiled := o.compileAhead()
	half := *o
	half.deadline = o.deadline.Add(-o.limit / 2)
	tests := half.test(nil, out)
	compiled()
	rows, measured := o.bench(nil, out)
	fmt.Fprintln(out)
	failed := tests.write(out)
	if found != nil {
		found = fmt.Errorf("doctor: %w: see the beginning", found)
	}
	all := errors.Join(found, measured)
	if all != nil {
		fmt.Fprintln(out, all)
	}
	writeTargets(out, rows)
	return errors.Join(failed, all)
}
