package emu

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ringo-ml/ringo/internal/dl"
)

//go:embed src
var sources embed.FS

// flags are g++'s. initial-exec: the fault handler reads a thread-local variable on
// threads where it must not allocate.
var flags = []string{"-std=c++17", "-O1", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden",
	"-ftls-model=initial-exec", "-U_FORTIFY_SOURCE", "-pthread"}

// libraries are built: NAME.so from src/NAME.cpp and src/exit.cpp.
var libraries = []string{"libcuda", "libnvrtc", "libnvml", "libcublaslt", "libnccl"}

// kernelFlags are g++'s for kernels; libnvrtc reads them from the file
// kernel.flags. The sanitizers' calls go to the shim, not to libubsan.
var kernelFlags = []string{"-std=c++17", "-O1", "-w", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off",
	"-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-fsanitize=alignment,bounds", "-fdata-sections"}

// shimFlags are g++'s for the code that is in every module besides its kernels.
var shimFlags = []string{"-std=c++17", "-O3", "-Wall", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off",
	"-fno-strict-aliasing", "-U_FORTIFY_SOURCE", "-c", "-o", "shim.o", "shim.cpp"}

// build compiles the libraries and returns their folder. Its name is a hash of all
// sources, and it is made once. One process compiles, others wait for it.
var build = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	fmt.Fprint(sum, flags, libraries, kernelFlags, shimFlags)
	err := eachSource(func(name string, text []byte) error {
		fmt.Fprintf(sum, "%s %d ", name, len(text))
		_, err := sum.Write(text)
		return err
	})
	if err != nil {
		return "", err
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	base = filepath.Join(base, "ringo", "emu")
	dir := filepath.Join(base, hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(base, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, compile(dir)
})

// compile builds in a folder of another name and renames it, so that a folder with
// the right name is always complete.
func compile(dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	err = eachSource(func(name string, text []byte) error {
		return os.WriteFile(filepath.Join(tmp, name), text, 0o644)
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, "kernel.flags"), []byte(strings.Join(kernelFlags, "\n")), 0o644); err != nil {
		return err
	}
	calls := [][]string{shimFlags, append(kernelFlags[:len(kernelFlags):len(kernelFlags)], "-x", "c++-header", "shim.h", "-o", "shim.h.gch")}
	for _, lib := range libraries {
		calls = append(calls, append(flags[:len(flags):len(flags)], "-o", lib+".so", lib+".cpp", "exit.cpp", "-ldl"))
	}
	var g errgroup.Group
	for _, args := range calls {
		g.Go(func() error { return gxx(tmp, args) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// gxx runs the compiler in a folder.
func gxx(dir string, args []string) error {
	cmd := exec.Command("g++", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("emu: %s: %w\n%s", cmd, err, out)
	}
	return nil
}

func eachSource(do func(name string, text []byte) error) error {
	return fs.WalkDir(sources, "src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		if err != nil {
			return err
		}
		return do(strings.TrimPrefix(path, "src/"), text)
	})
}

// controls opens the emulated driver a second time, beside package cuda: the loader
// returns the same library.
var controls = sync.OnceValue(func() *control {
	dir, err := build()
	if err != nil {
		panic(err)
	}
	lib, err := dl.Open("the emulated driver", filepath.Join(dir, "libcuda.so"))
	if err != nil {
		panic(err)
	}
	c := new(control)
	if err := lib.Resolve(c); err != nil {
		panic(err)
	}
	return c
})

// setenv sets a variable until the process ends: driver and compiler are opened
// once per process, whichever test comes first.
func setenv(t testing.TB, key, value string) {
	if err := os.Setenv(key, value); err != nil {
		t.Fatal(err)
	}
}

// cString returns the text before the zero byte.
func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}
