package main

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxBytes is how large the file may be: machines with GPUs are often fed through narrow doors. With the checkout it is 64 MiB.
const maxBytes = 32 << 20

const module = "github.com/ringo-ml/ringo"

// emulator is the package whose users are tests that run on a GPU; its own are about the emulator.
const emulator = module + "/internal/cuda/emu"

// helper is the package that starts it for tests of several ranks.
const helper = module + "/dist/disttest"

// built ends the names of programs while they are built: one package's folder may be another one's name.
const built = ".built"

// pack builds the file for linux/amd64, or for what GOOS and GOARCH say. It needs Go and the module's folder.
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
	entries := slices.Clone(suites)
	build := func(name string, args ...string) error {
		args = append(args, "-ldflags=-s -w", "-o", filepath.Join(tmp, name)+built)
		_, err := goTool(append(args, module+"/"+name)...)
		return err
	}
	if err := build("bench/gpu", "build"); err != nil {
		return err
	}
	var names []string
	for _, s := range suites {
		if err := build(s.name, "test", "-c"); err != nil {
			return err
		}
		names = append(names, s.name)
	}
	if _, err := exec.LookPath("gcc"); err != nil || os.Getenv("GOARCH") != "" {
		fmt.Fprintln(out, "There is no gcc here for that machine: calls of NCCL from C are not measured there.")
	} else if err := buildCaller(filepath.Join(tmp, caller) + built); err != nil {
		return err
	} else {
		entries = append(entries, entry{name: caller})
	}
	if err := join(file, filepath.Join(tmp, "bench/gpu")+built, tmp, entries); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %.1f MiB, tests of %s\n", file, float64(info.Size())/(1<<20), strings.Join(names, ", "))
	if info.Size() > maxBytes {
		return fmt.Errorf("%s is larger than %d MiB", file, maxBytes>>20)
	}
	return nil
}

// goTool runs go without cgo and returns what it prints.
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

// entry is a program in the archive, and which of its tests need a GPU.
type entry struct {
	name  string
	tests []string
}

// suitesOf lists the packages, without the module's path, that have tests which run on a GPU.
func suitesOf() ([]entry, error) {
	list, err := listed(module + "/...")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(p listedPackage) bool { return p.ImportPath == helper })
	s, err := findStarters(list[i].paths(list[i].GoFiles))
	if err != nil {
		return nil, err
	}
	var suites []entry
	for _, p := range list {
		if p.ImportPath == emulator || isTool(p.ImportPath) {
			continue
		}
		tests, err := gpuTests(p.paths(append(p.TestGoFiles, p.XTestGoFiles...)), s)
		if err != nil {
			return nil, err
		}
		if len(tests) > 0 {
			suites = append(suites, entry{strings.TrimPrefix(p.ImportPath, module+"/"), tests})
		}
	}
	return suites, nil
}

// listedPackage is what `go list` says about a package.
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

// isTool tells packages whose tests start the emulator to test a program, not a GPU. Examples are left out, too: they do what
// the tests of the packages do, and each is as large as these.
func isTool(path string) bool {
	name := strings.TrimPrefix(path, module+"/")
	return strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "bench/") || strings.HasPrefix(name, "examples/")
}

// The programs of a bundle share most of their code: one stream with a window over all of them is a third of an archive of single files.
const (
	window = 512 << 20
	magic  = "ringoZST"
	tests  = "RINGO.tests" // a record of a file's header in the archive
)

// join writes the program with an archive of the files, which lie below dir, behind it, and at the end where that begins.
func join(file, program, dir string, entries []entry) error {
	body, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(body); err != nil {
		return err
	}
	if err := archive(f, dir, entries); err != nil {
		return err
	}
	if _, err := f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(body))), magic...)); err != nil {
		return err
	}
	return f.Close()
}

// archive writes the files as a tar in one zstd stream.
func archive(w io.Writer, dir string, entries []entry) error {
	z, err := zstd.NewWriter(w, zstd.WithWindowSize(window), zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.name) + built)
		if err != nil {
			return err
		}
		head := &tar.Header{Name: e.name, Mode: 0o755, Size: int64(len(content))}
		if len(e.tests) > 0 {
			head.PAXRecords = map[string]string{tests: strings.Join(e.tests, " ")}
		}
		if err := t.WriteHeader(head); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}
