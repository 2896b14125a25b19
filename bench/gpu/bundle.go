package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// bundle is the archive behind this program. The comment of a test binary's entry names the tests that need a GPU.
type bundle struct {
	*zip.ReadCloser
	dir   string // of what was unpacked
	tests map[string][]string
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
	b := &bundle{r, dir, map[string][]string{}}
	for _, f := range r.File {
		if f.Name != caller {
			b.tests[f.Name] = strings.Fields(f.Comment)
		}
	}
	return b, nil
}

func (b *bundle) Close() { _ = errors.Join(b.ReadCloser.Close(), os.RemoveAll(b.dir)) } // nothing is lost

// suites lists the test binaries.
func (b *bundle) suites() []string {
	var out []string
	for name := range b.tests {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// chosen lists a suite's tests whose names match a pattern.
func (b *bundle) chosen(suite, pattern string) ([]string, error) {
	p, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(b.tests[suite]), func(test string) bool { return !p.MatchString(test) }), nil
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
	cmd.Dir, cmd.WaitDelay = filepath.Dir(path), waitDelay
	cmd.Env = append(os.Environ(), "RINGO_TEST_GPU=1")
	if _, err := os.UserCacheDir(); err != nil && os.Getenv("RINGO_CUDA_CACHE") == "" { // else each test compiles everything
		cmd.Env = append(cmd.Env, "RINGO_CUDA_CACHE="+filepath.Join(b.dir, ".cubin"))
	}
	return cmd, nil
}
