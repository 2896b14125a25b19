package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/grads"
)

// compareCmd is `ringo compare`.
type compareCmd struct {
	A     string  `arg:"" help:"Command line of a training, in quotes: a program, or a Go package such as ./examples/gpt, and its flags."`
	B     string  `arg:"" help:"Another one, that should train the same model on the same rows."`
	Steps int     `placeholder:"N" help:"End each program in step N+1 of an optimizer, the first that comes to it; else programs end by themselves."`
	Tol   float64 `default:"1e-3" placeholder:"R" help:"Largest difference of two norms, relative to the larger one: 1e-3 is for float32; 0.05 for bfloat16, 1e-9 for float64."`
	JSON  bool    `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo compare -h`.
func (*compareCmd) Help() string {
	return `Runs A, then B, and compares the norm of each parameter's gradient, step by step: a gradient that lacks a sum, or has one twice,
may train with a loss that looks right. Give both the same seed and few steps, and change the layout alone:

  ringo compare './examples/gpt -steps 3' './examples/gpt -steps 3 -tp 2 -sp'
  ringo compare -steps 3 'ringo run -n 1 ./train' 'ringo run -n 4 ./train'

Prints the first step in which something differs, else the last one. The first parameter that differs is named, and the last one in the
order of the model, where backward was first: look there. The exit status is 0 if all norms agree, 1 if not, and 2 if a program failed.

No program needs a line for it: RINGO_GRADS names a folder to which each optimizer of each rank writes, in every step, before clipping.
Losses are those of train.Start. -steps ends a program by an error of Step, and without a checkpoint of that step. Ranks of other hosts
need the same folder. Norms below 1e-4 of that of all gradients together are compared as if
they were as large: less is rounding, as the gradient of a bias of keys is. NaN and infinity agree with nothing. A difference of signs
alone shows in the next step. Words are split as by a shell, with quotes, but nothing is expanded.`
}

// Run runs both programs and compares.
func (c *compareCmd) Run() error {
	if !(c.Tol >= 0 && c.Tol < 1) {
		return usageOf("compare", "-tol %v: want a number from 0 to 1", c.Tol)
	}
	if c.Steps < 0 {
		return usageOf("compare", "-steps %d: want a number of steps", c.Steps)
	}
	lines := [2][]string{}
	for i, text := range []string{c.A, c.B} {
		words, err := splitWords(text)
		if err != nil || len(words) == 0 {
			return usageOf("compare", "%q is no command line: %v", text, cmp.Or(err, errors.New("no program")))
		}
		lines[i] = words
	}
	steps, err := c.gradsOf(lines)
	if err != nil {
		return err
	}
	d := compareGrads(steps[0], steps[1], c.Tol)
	d.A, d.B = c.A, c.B
	if c.JSON {
		err = printJSON(d)
	} else {
		err = d.write(os.Stdout)
	}
	if err == nil && !d.Same {
		err = errors.New(d.Why)
	}
	return err
}

// gradsOf runs both programs, one after the other, and returns what they wrote.
func (c *compareCmd) gradsOf(lines [2][]string) (steps [2][]grads.Step, err error) {
	signals := make(chan os.Signal, 4)
	notifySignals(signals)
	defer signal.Stop(signals)
	dir, err := os.MkdirTemp("", "ringo-compare-")
	if err != nil {
		return steps, err
	}
	defer os.RemoveAll(dir)
	built := map[string]string{} // programs by package
	for i, words := range lines {
		name := string("AB"[i])
		if words[0], err = programOf(words[0], filepath.Join(dir, name), built, signals); err != nil {
			return steps, err
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.Join(words, " "))
		if steps[i], err = c.run(words, filepath.Join(dir, name+".grads"), signals); err != nil {
			if _, interrupted := errors.AsType[*launch.ExitError](err); !interrupted {
				err = &launch.ExitError{Code: 2, Text: fmt.Sprintf("%s %v", name, err)}
			}
			return steps, err
		}
	}
	return steps, nil
}

// run runs a program, and returns the steps that it wrote to a folder.
func (c *compareCmd) run(words []string, dir string, signals <-chan os.Signal) ([]grads.Step, error) {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return nil, err
	}
	variables := []string{grads.Dir + "=" + dir}
	if c.Steps > 0 {
		variables = append(variables, fmt.Sprintf("%s=%d", grads.Steps, c.Steps))
	}
	failed := runWith(words, variables, signals)
	if _, interrupted := errors.AsType[*launch.ExitError](failed); interrupted {
		return nil, failed
	}
	steps, err := grads.Read(dir)
	switch {
	case failed != nil && (c.Steps == 0 || len(steps) < c.Steps):
		return nil, fmt.Errorf("failed: %w", failed)
	case err != nil:
		return nil, fmt.Errorf("cannot be compared: %w", err)
	case len(steps) == 0:
		return nil, errors.New("wrote no norms of gradients: it must train a step, with an optimizer of package optim")
	}
	return steps, nil
}

// programOf returns the program to start: this one for "ringo", a package that is built into dir, or the name itself.
func programOf(name, dir string, built map[string]string, signals <-chan os.Signal) (path string, err error) {
	switch {
	case name == "ringo":
		return os.Executable()
	case !isPackage(name):
		return name, nil
	case built[name] != "":
		return built[name], nil
	}
	if err = os.Mkdir(dir, 0o777); err == nil {
		path, err = build(name, dir, signals)
	}
	built[name] = path
	return path, err
}

// runWith runs a program with more variables in its environment. Its output goes to stderr. Signals are sent to it, and end the
// comparison.
func runWith(words, variables []string, signals <-chan os.Signal) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var got os.Signal
	for {
		select {
		case got = <-signals:
			if cmd.Process.Signal(got) != nil {
				_ = cmd.Process.Kill()
			}
		case err := <-ended:
			if got == nil {
				return err
			}
			number, _ := got.(syscall.Signal)
			return &launch.ExitError{Code: 128 + int(number), Text: fmt.Sprintf("ended by signal %v", got)}
		}
	}
}

// splitWords splits a command line into words as a shell does: at spaces, but not in 'single' or "double" quotes, or after \.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	quote, inWord, escaped := rune(0), false, false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune(`"\$`+"`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, inWord = r, true
		case quote == 0 && strings.ContainsRune(" \t\n", r):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
