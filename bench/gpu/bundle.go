package main

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// bundle is the archive behind this program, unpacked: test binaries, each with the tests that need a GPU.
type bundle struct {
	dir   string
	tests map[string][]string
}

func openBundle() (*bundle, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ringo-gpu-")
	if err != nil {
		return nil, err
	}
	b := &bundle{dir, map[string][]string{}}
	if err := b.unpack(self); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (b *bundle) Close() { _ = os.RemoveAll(b.dir) } // nothing is lost

var errNoBundle = errors.New("this program has no tests with it: build it with `gpu pack FILE`")

// unpack writes what join put behind the program into files.
func (b *bundle) unpack(program string) error {
	f, err := os.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	foot, end := make([]byte, 8+len(magic)), info.Size()-int64(8+len(magic))
	if _, err := f.ReadAt(foot, end); err != nil || string(foot[8:]) != magic {
		return errNoBundle
	}
	at := int64(binary.LittleEndian.Uint64(foot))
	z, err := zstd.NewReader(io.NewSectionReader(f, at, end-at), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return err
	}
	defer z.Close()
	for t := tar.NewReader(z); ; {
		head, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = b.write(head.Name, t)
		}
		if err != nil {
			return fmt.Errorf("unpacking the tests: %w", err)
		}
		if head.Name != caller {
			b.tests[head.Name] = strings.Fields(head.PAXRecords[tests])
		}
	}
}

// path is the program of a suite, in a folder of its own.
func (b *bundle) path(name string) string { return filepath.Join(b.dir, name, filepath.Base(name)) }

func (b *bundle) write(name string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(b.path(name)), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(b.path(name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

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

// command returns a command that runs a program in a folder of its own.
func (b *bundle) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path := b.path(name)
	if _, err := os.Stat(path); err != nil {
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
