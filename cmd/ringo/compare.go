package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/train/metrics"
)

// compareCmd is `ringo compare`.
type compareCmd struct {
	A    string  `arg:"" help:"Command line of a training, in quotes: a program, or a Go package such as ./examples/gpt, and its flags."`
	B    string  `arg:"" help:"Another one, that should train the same model on the same rows."`
	Tol  float64 `default:"1e-3" placeholder:"R" help:"Largest difference of two norms, relative to the larger one: 1e-3 is for float32; 0.05 for bfloat16, 1e-9 for float64."`
	JSON bool    `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo compare -h`.
func (*compareCmd) Help() string {
	return `Runs A, then B, and compares the norm of each parameter's gradient, step by step: a gradient that lacks a sum, or has one twice,
may train with a loss that looks right. Give both the same seed and few steps, and change the layout alone:

  ringo compare './examples/gpt -steps 3' './examples/gpt -steps 3 -tp 2 -sp'
  ringo compare 'ringo run -n 1 ./train -steps 3' 'ringo run -n 4 ./train -steps 3'

Prints the first step in which something differs, else the last one. The first parameter that differs is named, and the last one in the
order of the model, where backward was first: look there. The exit status is 0 if all norms agree, 1 if not, and 2 if a program failed.

Each program finds in RINGO_GRADS the file that train.Start has the norms written to: one JSON line for every step of the optimizer, before
clipping. A program without train.Start writes none. Norms below 1e-4 of that of all gradients together are compared as if they were as large: less is rounding,
as the gradient of a bias of keys is. NaN and infinity agree with nothing. A difference of signs alone shows in the next step, through
the loss. Words are split as by a shell, with quotes, but nothing is expanded.`
}

// Run runs both programs and compares.
func (c *compareCmd) Run() error {
	if !(c.Tol >= 0 && c.Tol < 1) {
		return usageOf("compare", "-tol %v: want a number from 0 to 1", c.Tol)
	}
	lines := [2][]string{}
	for i, text := range []string{c.A, c.B} {
		words, err := splitWords(text)
		if err != nil || len(words) == 0 {
			return usageOf("compare", "%q is no command line: %v", text, cmp.Or(err, errors.New("no program")))
		}
		lines[i] = words
	}
	steps, err := gradsOf(lines)
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
func gradsOf(lines [2][]string) (steps [2][]metrics.GradStep, err error) {
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
		file := filepath.Join(dir, name+".jsonl")
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.Join(words, " "))
		if err := runWith(words, "RINGO_GRADS="+file, signals); err != nil {
			if _, interrupted := errors.AsType[*launch.ExitError](err); interrupted {
				return steps, err
			}
			return steps, &launch.ExitError{Code: 2, Text: fmt.Sprintf("%s failed: %v", name, err)}
		}
		steps[i], err = metrics.ReadGrads(file)
		if errors.Is(err, fs.ErrNotExist) || err == nil && len(steps[i]) == 0 {
			return steps,
				&launch.ExitError{Code: 2, Text: fmt.Sprintf("%s wrote no norms of gradients: it must train a step, with train.Start", name)}
		}
		if err != nil {
			return steps, err
		}
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

// runWith runs a program with one more variable in its environment. Its output goes to stderr. Signals are sent to it, and end the
// comparison.
func runWith(words []string, variable string, signals <-chan os.Signal) error {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), variable)
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
