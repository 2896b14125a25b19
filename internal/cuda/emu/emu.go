package emu

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ringo-ml/ringo/internal/cuda"
)

//go:embed src
var sources embed.FS

// Config is what a test wants of the emulated machine.
type Config struct {
	Devices int // 2 when 0
}

// Start makes the emulated driver the one that cuda.Load opens, and sets it up
// for this test, which is skipped where there is no g++. Tests that use the
// emulator do not run in parallel.
func Start(t testing.TB, cfg Config) *cuda.Driver {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("the CUDA emulator needs g++, which is not installed")
	}
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Devices == 0 {
		cfg.Devices = 2
	}
	os.Setenv("EMU_DEVICES", fmt.Sprint(cfg.Devices))
	os.Setenv("EMU_SHIM", filepath.Join(dir, "shim.h"))
	os.Setenv("RINGO_CUDA_LIB", filepath.Join(dir, "libcuda.so"))
	os.Setenv("RINGO_NVRTC_LIB", filepath.Join(dir, "libnvrtc.so"))
	os.Setenv("RINGO_CUBLASLT_LIB", filepath.Join(dir, "libcublaslt.so"))
	d, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// build compiles the libraries, once per content.
var build = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	files, err := sources.ReadDir("src")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		text, err := sources.ReadFile("src/" + f.Name())
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d ", f.Name(), len(text))
		sum.Write(text)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "ringo", "emu", hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, compile(dir)
})

// compile builds into a folder of another name and renames it: test binaries of
// several packages may do so at the same time.
func compile(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), ".new-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	files, err := sources.ReadDir("src")
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := sources.ReadFile("src/" + f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(tmp, f.Name()), text, 0o644); err != nil {
			return err
		}
	}
	for _, lib := range []string{"cuda", "nvrtc", "cublaslt"} {
		out, err := exec.Command("g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
			"-o", filepath.Join(tmp, "lib"+lib+".so"), filepath.Join(tmp, "fake"+lib+".cpp"), "-ldl").CombinedOutput()
		if err != nil {
			return fmt.Errorf("emu: g++ for lib%s.so: %w\n%s", lib, err, out)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, statErr := os.Stat(dir); statErr != nil {
			return err
		}
	}
	return nil
}
