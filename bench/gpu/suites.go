package main

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// bundle is the archive behind this program.
type bundle struct {
	*zip.ReadCloser
	dir string // of what was unpacked
}

func openBundle() (*bundle, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, err := zip.OpenReader(self)
	if err != nil {
		return nil, errors.New("this program has no tests with it: build it with `gpu pack FILE`")
	}
	dir, err := os.MkdirTemp("", "ringo-gpu-")
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &bundle{r, dir}, nil
}

func (b *bundle) Close() { _ = errors.Join(b.ReadCloser.Close(), os.RemoveAll(b.dir)) } // nothing is lost

// suites lists the test binaries.
func (b *bundle) suites() []string {
	var out []string
	for _, f := range b.File {
		if f.Name != "cmd/ringo" && f.Name != caller {
			out = append(out, f.Name)
		}
	}
	return out
}

// command unpacks a program and returns a command that runs it in a folder of its own.
func (b *bundle) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	in, err := b.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	path := filepath.Join(b.dir, name, filepath.Base(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = filepath.Dir(path)
	cmd.Env = append(os.Environ(), "RINGO_TEST_GPU=1")
	return cmd, nil
}

// doctor runs `ringo doctor`, whose error says what a GPU lacks here.
func (o *options) doctor(out io.Writer) error {
	b, err := openBundle()
	if err != nil {
		return err
	}
	defer b.Close()
	cmd, err := b.command(context.Background(), "cmd/ringo", "doctor", "-device", o.device)
	if err != nil {
		return err
	}
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &errs
	if err := cmd.Run(); err != nil {
		return errors.New(strings.TrimPrefix(strings.TrimSpace(errs.String()), "ringo: "))
	}
	return nil
}

// list prints the suites with their tests, and the sections of bench.
func (o *options) list(out io.Writer) error {
	b, err := openBundle()
	if err != nil {
		return err
	}
	defer b.Close()
	for _, name := range b.suites() {
		cmd, err := b.command(context.Background(), name, "-test.list", ".")
		if err != nil {
			return err
		}
		text, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(out, "test %s: %s\n", name, strings.Join(strings.Fields(string(text)), " "))
	}
	for _, s := range sections {
		fmt.Fprintf(out, "bench %s: %s\n", s.name, s.what)
	}
	return nil
}

// test runs suites, all if none is named, and prints a line for each.
func (o *options) test(names []string, out io.Writer) error {
	b, err := openBundle()
	if err != nil {
		return err
	}
	defer b.Close()
	if len(names) == 0 {
		names = b.suites()
	}
	failed := 0
	for _, name := range names {
		if !slices.Contains(b.suites(), name) {
			return fmt.Errorf("no tests of %s: %s", name, strings.Join(b.suites(), ", "))
		}
		ok, err := o.suite(b, name, out)
		if err != nil {
			return err
		}
		if !ok {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("tests of %d of %d packages failed", failed, len(names))
	}
	return nil
}

// atOnce is how many tests run at the same time.
const atOnce = 4

// suite runs the tests of one package, each in a process of its own: an error inside a kernel is the last thing that CUDA
// does in a process. Of the output it prints what belongs to failures.
func (o *options) suite(b *bundle, name string, out io.Writer) (ok bool, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), o.deadline)
	defer cancel()
	lister, err := b.command(ctx, name, "-test.list", cmp.Or(o.run, "."))
	if err != nil {
		return false, err
	}
	listed, err := lister.Output()
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	start := time.Now()
	tests := slices.DeleteFunc(strings.Fields(string(listed)), func(t string) bool { return !strings.HasPrefix(t, "Test") })
	texts := make([][]byte, len(tests))
	errs := make([]error, len(tests))
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, test := range tests {
		slots <- struct{}{}
		wg.Go(func() {
			cmd := exec.CommandContext(ctx, lister.Path, "-test.v", "-test.run", "^"+test+"$")
			cmd.Dir, cmd.Env = lister.Dir, lister.Env
			texts[i], errs[i] = cmd.CombinedOutput()
			<-slots
		})
	}
	wg.Wait()
	s := summarize(bytes.Join(texts, nil))
	fmt.Fprintf(out, "%s: %d passed, %d failed, %d skipped, %.1f s\n", name, s.passed, s.failed, s.skipped, time.Since(start).Seconds())
	for _, why := range s.reasons {
		fmt.Fprintf(out, "  skipped: %s\n", why)
	}
	ok = true
	for i, err := range errs {
		if err != nil {
			ok = false
			fmt.Fprintf(out, "%s\n%s of %s: %v\n", lastLines(texts[i], 60), tests[i], name, err)
		}
	}
	return ok, nil
}

// summary counts the tests of a package.
type summary struct {
	passed, failed, skipped int
	reasons                 []string // of skipping, each once
}

// summarize reads what a test binary prints with -test.v.
func summarize(text []byte) summary {
	var s summary
	last := "" // what a test printed before its result, which is the reason when it is skipped
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

func lastLines(text []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
