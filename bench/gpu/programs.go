package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/ringo-ml/ringo/bench/gpu/bundle"
)

// programs are the unpacked programs beside this one: test binaries, each with the tests that need a GPU.
type programs struct {
	dir   string
	tests map[string][]string
}

func unpacked() (*programs, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(filepath.Dir(self))
	tests, err := bundle.Tests(dir)
	return &programs{dir, tests}, err
}

// suites lists the test binaries.
func (b *programs) suites() []string {
	var out []string
	for name := range b.tests {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// chosen lists a suite's tests that match a pattern.
func (b *programs) chosen(suite, pattern string) ([]string, error) {
	p, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(b.tests[suite]), func(test string) bool { return !p.MatchString(test) }), nil
}

// command returns a command that runs a program in its own folder.
func (b *programs) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path := bundle.Path(b.dir, name)
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.WaitDelay = filepath.Dir(path), waitDelay
	cmd.Env = append(os.Environ(), "RINGO_TEST_GPU=1")
	if _, err := os.UserCacheDir(); err != nil && os.Getenv("RINGO_CUDA_CACHE") == "" { // otherwise each test compiles everything again
		cmd.Env = append(cmd.Env, "RINGO_CUDA_CACHE="+filepath.Join(b.dir, ".cubin"))
	}
	return cmd, nil
}
