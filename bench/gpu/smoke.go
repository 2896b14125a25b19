package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// smoked are the examples that train on the device, with their arguments, and more of a rehearsal.
var smoked = []struct{ args, small string }{
	{"ddp-mnist -model cnn -data synthetic -ranks 1 -steps 300", "-batch 4 -steps 3"},
	{"gpt -steps 200", "-batch 1 -layers 1 -steps 3 -sample 1"},
	{"moe -steps 100", "-batch 1 -layers 1 -steps 3 -sample 1"},
}

// linked are the main functions of examples that are in this program: pack adds them (overlay.go).
var linked = map[string]func(){}

// example runs an example with its arguments.
func example(args []string) error {
	if len(args) == 0 || linked[args[0]] == nil {
		return fmt.Errorf("no example %s in this file: build it with `gpu pack FILE`", strings.Join(args, " "))
	}
	os.Args = args
	linked[args[0]]()
	return nil
}

// trained is what an example says with -json.
type trained struct {
	Steps     int
	FirstLoss float64 `json:"first_loss"`
	FinalLoss float64 `json:"final_loss"`
	Rate      float64 `json:"steps_per_s"`
}

// smoke trains examples on the device, each in a process of its own, and prints a line for each. The error has those that failed.
func (o *options) smoke(out io.Writer) (failed error) {
	for _, s := range smoked {
		args := s.args
		if o.small {
			args += " " + s.small
		}
		start := time.Now()
		got, err := o.train(append(strings.Fields(args), "-device", o.device, "-json"))
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("example %s: %w", args, err))
			continue
		}
		fmt.Fprintf(out, "example %s: loss %.4g to %.4g, %s steps/s, %.1f s in all\n", args, got.FirstLoss, got.FinalLoss, figure(got.Rate),
			time.Since(start).Seconds())
	}
	return failed
}

// train runs an example, whose loss must fall.
func (o *options) train(args []string) (got trained, err error) {
	ctx, cancel := o.timeout()
	defer cancel()
	cmd, err := o.childCommand(ctx, "example")
	if err != nil {
		return got, err
	}
	cmd.Args = append(cmd.Args[:2], args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	text, err := cmd.Output()
	o.log("tests.log", fmt.Appendf(nil, "\n##### %s: %v\n%s%s", strings.Join(args, " "), err, text, errs.String()))
	if err != nil {
		return got, fmt.Errorf("%w\n%s", explained(ctx, err), essence([]byte(errs.String())))
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return got, err
	}
	if !(got.FinalLoss < got.FirstLoss) || got.Steps == 0 {
		err = fmt.Errorf("after %d steps the loss is %.4g, before them %.4g", got.Steps, got.FinalLoss, got.FirstLoss)
	}
	return got, err
}
