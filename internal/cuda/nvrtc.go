package cuda

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// ErrNoCompiler is wrapped by the error of LoadCompiler if there is no NVRTC.
var ErrNoCompiler = errors.New("no CUDA compiler")

// Compiler is NVRTC, which compiles the text of a .cu file at run time.
type Compiler struct {
	Lib          *dl.Lib
	Major, Minor int
	fn           compilerFuncs

	turns, unsaved sync.Map // by the path of an entry: mutexes, and code that could not be written
}

type compilerFuncs struct {
	Version      uintptr `sym:"nvrtcVersion"`
	ErrorString  uintptr `sym:"nvrtcGetErrorString"`
	Create       uintptr `sym:"nvrtcCreateProgram"`
	Destroy      uintptr `sym:"nvrtcDestroyProgram"`
	Compile      uintptr `sym:"nvrtcCompileProgram"`
	GetCUBINSize uintptr `sym:"nvrtcGetCUBINSize"`
	GetCUBIN     uintptr `sym:"nvrtcGetCUBIN"`
	GetLogSize   uintptr `sym:"nvrtcGetProgramLogSize"`
	GetLog       uintptr `sym:"nvrtcGetProgramLog"`
}

var loadCompiler = sync.OnceValues(func() (*Compiler, error) {
	return openCompiler(LibNVRTC.Query(Major()))
})

// LoadCompiler opens NVRTC, once per process: the one for the driver's major
// version if there is one. It needs neither a driver nor a device. The error says
// how to get NVRTC; it wraps ErrNoCompiler. RINGO_NVRTC_LIB names another library.
func LoadCompiler() (*Compiler, error) { return loadCompiler() }

// OpenCompiler opens the NVRTC at a path; with "" it looks for one of CUDA 13, then
// 12.
func OpenCompiler(path string) (*Compiler, error) {
	q := LibNVRTC.Query(13)
	q.Env = ""
	if path != "" {
		q.Names, q.Wheels = []string{path}, nil
	}
	return openCompiler(q)
}

func openCompiler(q dl.Query) (*Compiler, error) {
	lib, err := q.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	c := &Compiler{Lib: lib}
	if err := lib.Resolve(&c.fn); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	var major, minor int32
	if r := dl.Call(c.fn.Version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))); int32(r) != 0 {
		return nil, fmt.Errorf("%w: nvrtcVersion returned %d", ErrNoCompiler, int32(r))
	}
	c.Major, c.Minor = int(major), int(minor)
	lib.Version = fmt.Sprintf("NVRTC %d.%d", major, minor)
	if c.Major < 12 {
		return nil, fmt.Errorf("%w: %s is NVRTC %d.%d, but 12.0 or newer is needed", ErrNoCompiler, lib.Path, major, minor)
	}
	return c, nil
}

// Source is the text of a .cu file.
type Source struct {
	Name string // of the file, for messages: "norm.cu"
	Text string // without the prelude, which is put before it
	// Specific code uses instructions of one architecture alone: sm_90 is then compiled as sm_90a, and runs on no later device.
	Specific bool
}

// Compile compiles a source for an architecture ("sm_90") and returns the
// machine code (a cubin). Options are NVRTC's ("-DTILE=64"). The error holds
// the compiler's log, with the lines of the source.
func (c *Compiler) Compile(src Source, arch string, options ...string) ([]byte, error) {
	text, name := cString(src.full()), cString(src.Name)
	var prog uintptr
	r := dl.Call(c.fn.Create, uintptr(unsafe.Pointer(&prog)), uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(name)), 0, 0, 0)
	if int32(r) != 0 {
		return nil, c.failure("nvrtcCreateProgram", src.Name, arch, r)
	}
	defer dl.Call(c.fn.Destroy, uintptr(unsafe.Pointer(&prog)))
	var list []*byte
	for _, o := range compileOptions(arch, options) {
		list = append(list, cString(o))
	}
	r = dl.Call(c.fn.Compile, prog, uintptr(len(list)), uintptr(unsafe.Pointer(&list[0])))
	if int32(r) != 0 {
		return nil, fmt.Errorf("%w\n%s", c.failure("nvrtcCompileProgram", src.Name, arch, r), c.log(prog))
	}
	return c.bytes("nvrtcGetCUBIN", c.fn.GetCUBINSize, c.fn.GetCUBIN, prog)
}

// compileOptions are NVRTC's options, which are a part of the cache's key. They
// declare all code to be for the device: NVRTC 13.0 takes generic lambdas inside
// kernels for host code.
func compileOptions(arch string, options []string) []string {
	return append([]string{"--gpu-architecture=" + arch, "--std=c++17", "--device-as-default-execution-space"}, options...)
}

func (c *Compiler) log(prog uintptr) string {
	log, err := c.bytes("nvrtcGetProgramLog", c.fn.GetLogSize, c.fn.GetLog, prog)
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(string(log), "\x00\n")
}

// bytes gets a size, and then that many bytes.
func (c *Compiler) bytes(call string, sizeFn, getFn, prog uintptr) ([]byte, error) {
	var n uintptr
	if r := dl.Call(sizeFn, prog, uintptr(unsafe.Pointer(&n))); int32(r) != 0 {
		return nil, fmt.Errorf("cuda: %sSize: %s", call, c.errorString(r))
	}
	if n == 0 {
		return nil, nil
	}
	out := make([]byte, n)
	if r := dl.Call(getFn, prog, uintptr(unsafe.Pointer(&out[0]))); int32(r) != 0 {
		return nil, fmt.Errorf("cuda: %s: %s", call, c.errorString(r))
	}
	return out, nil
}

func (c *Compiler) failure(call, name, arch string, r uintptr) error {
	return fmt.Errorf("cuda: %s of %s for %s (NVRTC %d.%d): %s", call, name, arch, c.Major, c.Minor, c.errorString(r))
}

func (c *Compiler) errorString(r uintptr) string {
	return goString(*(**byte)(unsafe.Pointer(new(dl.Call(c.fn.ErrorString, r)))))
}

// cString copies a string and adds a zero byte.
func cString(s string) *byte { return &append([]byte(s), 0)[0] }
