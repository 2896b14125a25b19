package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ringo-ml/ringo/bench/gpu/measure"
	"github.com/ringo-ml/ringo/cmd/ringo/doctor"
)

// examine prints the output of `ringo doctor`. The error says what the device needs and this machine does not have.
func (o *options) examine(out io.Writer) error {
	d := doctor.Examine(o.device == "cuda")
	d.Write(out)
	return d.Err()
}

// list prints the suites with their tests, and the sections of bench.
func (o *options) list(out io.Writer) error {
	b, err := unpacked()
	if err != nil {
		return err
	}
	for _, name := range b.suites() {
		fmt.Fprintf(out, "test %s: %s\n", name, strings.Join(b.tests[name], " "))
	}
	for _, s := range measure.Sections {
		fmt.Fprintf(out, "bench %s: %s\n", s.Name, s.What)
	}
	return nil
}

// first are the suites whose failures say most, because all others depend on them.
var first = []string{"internal/cuda", "internal/cuda/blas", "tensor/cuda", "internal/nccl"}

// inOrder sorts suites.
func inOrder(names []string) []string {
	rank := func(name string) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	return names
}

// test runs suites, all if none is named, and prints a line for each when it ends.
func (o *options) test(names []string, out io.Writer) *results {
	r := &results{}
	b, err := unpacked()
	if err != nil {
		r.wrong = append(r.wrong, err.Error())
		return r
	}
	all := inOrder(b.suites())
	if len(names) == 0 {
		names = all
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			r.wrong = append(r.wrong, fmt.Sprintf("no tests of %s: %s", name, strings.Join(all, ", ")))
			continue
		}
		s, err := o.suite(b, name, out)
		if err != nil {
			r.wrong = append(r.wrong, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		r.suites = append(r.suites, s)
	}
	return r
}

// atOnce is the number of tests that run at the same time. Each makes a context on the device and compiles kernels.
const atOnce = 6

// suite runs the tests of one package, each in its own process: after an error inside a kernel, a process can no longer use CUDA.
func (o *options) suite(b *programs, name string, out io.Writer) (*suite, error) {
	tests, err := b.chosen(name, o.run)
	if err != nil {
		return nil, err
	}
	program, err := b.command(context.Background(), name)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	texts, errs := make([][]byte, len(tests)), make([]error, len(tests))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, test := range tests {
		g.Go(func() error {
			texts[i], errs[i] = o.one(program, test)
			return nil // the other tests still run
		})
	}
	_ = g.Wait()
	s := &suite{name: name, summary: summarize(bytes.Join(texts, nil))}
	for i, err := range errs {
		o.log("tests.log", fmt.Appendf(nil, "\n##### %s of %s: %v\n%s", tests[i], name, err, texts[i]))
		if err != nil {
			s.failures = append(s.failures, failure{tests[i], err.Error(), essence(texts[i])})
			o.sanitize(program, tests[i], texts[i], &s.failures[len(s.failures)-1])
		}
	}
	o.races(program, s, out)
	s.seconds = time.Since(start).Seconds()
	s.write(out)
	return s, nil
}

// one runs a test. The test binary's own timeout, which shows where the test hangs, comes before the process is killed.
func (o *options) one(program *exec.Cmd, test string) ([]byte, error) {
	ctx, cancel := o.timeout()
	defer cancel()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not run: no time was left (-limit)")
	}
	end, _ := ctx.Deadline()
	limit := max(time.Until(end)-waitDelay, time.Second)
	cmd := exec.CommandContext(ctx, program.Path, "-test.v", "-test.run", "^"+test+"$", "-test.timeout", limit.String())
	cmd.Dir, cmd.Env, cmd.WaitDelay = program.Dir, program.Env, waitDelay
	text, err := cmd.CombinedOutput()
	return text, explained(ctx, err)
}

// summary counts the tests of a package.
type summary struct {
	passed, failed, skipped int
	reasons                 []string // why tests were skipped, each reason once
}

// summarize parses the output of a test binary with -test.v.
func summarize(text []byte) summary {
	var s summary
	last := "" // the last line before a test's result: the reason, if the test is skipped
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		switch kind, _, _ := strings.Cut(strings.TrimPrefix(line, "--- "), ":"); {
		case !strings.HasPrefix(line, "--- "):
			if _, said, ok := strings.Cut(line, ".go:"); ok {
				_, last, _ = strings.Cut(said, ": ")
			}
			continue
		case kind == "PASS":
			s.passed++
		case kind == "FAIL":
			s.failed++
		case kind == "SKIP":
			s.skipped++
			if !slices.Contains(s.reasons, last) {
				s.reasons = append(s.reasons, last)
			}
		}
	}
	return s
}
