package cuda_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// ptxas is NVIDIA's assembler: NVRTC has the same one inside.
var ptxas = os.Getenv("RINGO_PTXAS")

// ptxMaker compiles to PTX, which Ringo does not need: NVRTC gives it machine code.
type ptxMaker struct {
	*gpu.Compiler
	fn struct {
		Create  uintptr `sym:"nvrtcCreateProgram"`
		Destroy uintptr `sym:"nvrtcDestroyProgram"`
		Compile uintptr `sym:"nvrtcCompileProgram"`
		Size    uintptr `sym:"nvrtcGetPTXSize"`
		Get     uintptr `sym:"nvrtcGetPTX"`
	}
}

func newPTXMaker(t *testing.T, c *gpu.Compiler) *ptxMaker {
	m := &ptxMaker{Compiler: c}
	require.NoError(t, c.Lib.Resolve(&m.fn))
	return m
}

// make compiles src for a virtual architecture.
func (m *ptxMaker) make(src gpu.Source, virtual string, options ...string) ([]byte, error) {
	text := fmt.Sprintf("%s\n#line 1 %q\n%s", gpu.Prelude, src.Name, src.Text)
	options = append([]string{"--gpu-architecture=" + virtual, "--std=c++17", "--device-as-default-execution-space"}, options...)
	return cached(fmt.Sprint(m.Lib.Version, options, text), func() ([]byte, error) {
		var prog, n uintptr
		var list []*byte
		all, name := cString(text), cString(src.Name)
		defer func() { runtime.KeepAlive(list); runtime.KeepAlive(all); runtime.KeepAlive(name) }()
		for _, o := range options {
			list = append(list, cString(o))
		}
		call := func(fn uintptr, args ...uintptr) error {
			if r := int32(dl.Call(fn, args...)); r != 0 {
				return fmt.Errorf("NVRTC: %s for %s: error %d", src.Name, virtual, r)
			}
			return nil
		}
		at := func(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }
		if err := call(m.fn.Create, uintptr(unsafe.Pointer(&prog)), at(all), at(name), 0, 0, 0); err != nil {
			return nil, err
		}
		defer dl.Call(m.fn.Destroy, uintptr(unsafe.Pointer(&prog)))
		if err := call(m.fn.Compile, prog, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0]))); err != nil {
			return nil, err
		}
		if err := call(m.fn.Size, prog, uintptr(unsafe.Pointer(&n))); err != nil {
			return nil, err
		}
		out := make([]byte, n)
		err := call(m.fn.Get, prog, at(&out[0]))
		return bytes.TrimRight(out, "\x00"), err
	})
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }

// cached returns what is on disk for a key, or makes it.
func cached(key string, make func() ([]byte, error)) ([]byte, error) {
	path := filepath.Join(gpu.CacheDir(), fmt.Sprintf("test-%x", sha256.Sum256([]byte(key))))
	if b, err := os.ReadFile(path); err == nil {
		return b, nil
	}
	b, err := make()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return b, err
}

// assembler runs ptxas, once for texts that differ in names only.
type assembler struct {
	version string
	mu      sync.Mutex
	done    map[string]func() ([]byte, error)
}

func newAssembler(t *testing.T) *assembler {
	out, err := exec.Command(ptxas, "--version").Output()
	require.NoError(t, err, "RINGO_PTXAS")
	return &assembler{version: string(out), done: map[string]func() ([]byte, error){}}
}

// renamed is PTX without what differs between variants of a kernel that are the same code: comments, constants of templates that are never
// read, and the two 16-bit types, which the same instructions multiply.
func renamed(ptx []byte) string {
	text := regexp.MustCompile(`(?m)^//.*$|^\.global .* _ZN.*$|^\.target .*$`).ReplaceAllString(string(ptx), "")
	return strings.ReplaceAll(text, "bf16", "f16")
}

// code returns the machine code for PTX, and what ptxas -v says of its kernels.
func (a *assembler) code(ptx []byte, arch string) ([]byte, string, error) {
	key := fmt.Sprint(a.version, arch, renamed(ptx))
	a.mu.Lock()
	if a.done[key] == nil {
		a.done[key] = sync.OnceValues(func() ([]byte, error) { return cached(key, func() ([]byte, error) { return assemble(ptx, arch) }) })
	}
	do := a.done[key]
	a.mu.Unlock()
	both, err := do()
	said, code, _ := bytes.Cut(both, []byte{0})
	return code, string(said), err
}

// assemble returns what ptxas -v says, a zero byte, and the code.
func assemble(ptx []byte, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "in.ptx"), filepath.Join(dir, "out.cubin")
	if err := os.WriteFile(in, ptx, 0o600); err != nil {
		return nil, err
	}
	said, err := exec.Command(ptxas, "-v", "-arch="+arch, "-o", out, in).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ptxas: %w\n%s", err, said)
	}
	code, err := os.ReadFile(out)
	return append(append(said, 0), code...), err
}
