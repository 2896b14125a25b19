package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/bench/gpu/bundle"
)

// maxBytes is the largest size of the file: machines with GPUs often have slow connections.
const maxBytes = 30 << 20

const module = "github.com/ringo-ml/ringo"

// emulator is the package whose users are tests for a GPU. Its own tests are about the emulator.
const emulator = module + "/internal/cuda/emu"

// helper is the package that starts the emulator for tests of several ranks.
const helper = module + "/dist/disttest"

// pack builds the file for linux/amd64, or for GOOS and GOARCH. It needs Go and the module's source.
func pack(file string, out io.Writer) error {
	tmp, err := os.MkdirTemp("", "ringo-gpu-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	suites, err := suitesOf()
	if err != nil {
		return err
	}
	build := func(name string, args ...string) (path string, err error) {
		path = filepath.Join(tmp, strings.ReplaceAll(name, "/", "_"))
		_, err = goTool(append(args, "-ldflags=-s -w", "-o", path, module+"/"+name)...)
		return path, err
	}
	loader, err := build("bench/gpu/loader", "build")
	if err != nil {
		return err
	}
	if err := packExamples(file+"-examples", tmp, loader, out); err != nil {
		return err
	}
	program, err := build("bench/gpu", "build")
	if err != nil {
		return err
	}
	entries := []bundle.Entry{{Name: bundle.Program, File: program}}
	var names []string
	for _, s := range suites {
		if s.File, err = build(s.Name, "test", "-c"); err != nil {
			return err
		}
		names, entries = append(names, s.Name), append(entries, s)
	}
	if err := bundle.Join(file, loader, entries); err != nil {
		return err
	}
	return checkSize(file, "tests of "+strings.Join(names, ", "), out)
}

// packExamples builds the file for smoke: this program with the examples, which have 2.5 MiB more than there is room for beside the tests.
func packExamples(file, tmp, loader string, out io.Writer) error {
	overlay, err := overlayExamples(tmp)
	if err != nil {
		return err
	}
	program := filepath.Join(tmp, "smoke")
	if _, err := goTool("build", "-overlay="+overlay, "-ldflags=-s -w", "-o", program, module+"/bench/gpu"); err != nil {
		return err
	}
	if err := bundle.Join(file, loader, []bundle.Entry{{Name: bundle.Program, File: program}}); err != nil {
		return err
	}
	return checkSize(file, "examples", out)
}

// checkSize prints the size of a file and what is in it. The error says that it is too large.
func checkSize(file, what string, out io.Writer) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %.1f MiB, %s\n", file, float64(info.Size())/(1<<20), what)
	if info.Size() > maxBytes {
		return fmt.Errorf("%s is larger than %d MiB", file, maxBytes>>20)
	}
	return nil
}

// goTool runs the go command without cgo and returns its output.
func goTool(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out, nil
}

// suitesOf lists the packages with tests that run on a GPU, without the module's path.
func suitesOf() ([]bundle.Entry, error) {
	list, err := listed(module + "/...")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(p listedPackage) bool { return p.ImportPath == helper })
	s, err := findStarters(list[i].paths(list[i].GoFiles))
	if err != nil {
		return nil, err
	}
	var suites []bundle.Entry
	for _, p := range list {
		if p.ImportPath == emulator || isTool(p.ImportPath) {
			continue
		}
		tests, err := gpuTests(p.paths(append(p.TestGoFiles, p.XTestGoFiles...)), s)
		if err != nil {
			return nil, err
		}
		if len(tests) > 0 {
			suites = append(suites, bundle.Entry{Name: strings.TrimPrefix(p.ImportPath, module+"/"), Tests: tests})
		}
	}
	return suites, nil
}

// listedPackage is the output of `go list` for a package.
type listedPackage struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

func listed(pattern string) (list []listedPackage, err error) {
	out, err := goTool("list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles", pattern)
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		var p listedPackage
		if err = d.Decode(&p); err == nil {
			list = append(list, p)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return list, err
}

func (p *listedPackage) paths(files []string) (out []string) {
	for _, f := range files {
		out = append(out, filepath.Join(p.Dir, f))
	}
	return out
}

// isTool reports packages whose tests start the emulator to test a program, not a GPU, and disttest, which tests of ranks on GPUs use. It
// also reports examples, train, join and powersgd: the tests of other packages, such as TestPowerSGDInCapturedSteps of ddp, test the same,
// and each of these is as large as many.
func isTool(path string) bool {
	return regexp.MustCompile(`^` + module + `/((cmd|bench|examples)/.*|train|dist/(join|disttest)|ddp/powersgd)$`).MatchString(path)
}
