package nccl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// MinVersion is the oldest NCCL that works: the first 2.22. Up to 2.21 ncclCommAbort
// frees the communicator at once, also in a group, under a thread that is in a call.
const MinVersion = 22203

// ErrMissing is wrapped by the error of Load where there is no usable NCCL.
var ErrMissing = errors.New("no NCCL")

// Lib is the NCCL of this process.
type Lib struct {
	Path    string
	Version int // 22304 is 2.23.4
	fn      funcs
}

// funcs are the addresses of NCCL's functions.
type funcs struct {
	GetUniqueID    uintptr `sym:"ncclGetUniqueId"`
	GetErrorString uintptr `sym:"ncclGetErrorString"`
	GetLastError   uintptr `sym:"ncclGetLastError,optional"`
	InitRankConfig uintptr `sym:"ncclCommInitRankConfig"`
	Split          uintptr `sym:"ncclCommSplit,optional"` // RCCL may lack it
	Destroy        uintptr `sym:"ncclCommDestroy"`
	Abort          uintptr `sym:"ncclCommAbort"`
	GetAsyncError  uintptr `sym:"ncclCommGetAsyncError"`
	AllReduce      uintptr `sym:"ncclAllReduce"`
	Reduce         uintptr `sym:"ncclReduce"`
	Broadcast      uintptr `sym:"ncclBroadcast"`
	AllGather      uintptr `sym:"ncclAllGather"`
	ReduceScatter  uintptr `sym:"ncclReduceScatter"`
	AllToAll       uintptr `sym:"ncclAlltoAll,optional"` // 2.28
	Send           uintptr `sym:"ncclSend"`
	Recv           uintptr `sym:"ncclRecv"`
	GroupStart     uintptr `sym:"ncclGroupStart"`
	GroupEnd       uintptr `sym:"ncclGroupEnd"`
	RedOpPreMulSum uintptr `sym:"ncclRedOpCreatePreMulSum"`
	RedOpDestroy   uintptr `sym:"ncclRedOpDestroy"`
}

var load = sync.OnceValues(func() (*Lib, error) {
	if os.Getenv("NCCL_DEBUG") != "" {
		printLines()
	}
	return open(cuda.LibNCCL.Query(cuda.Major()))
})

// Load opens NCCL, once per process; later calls return the same. The error
// says what is missing and how to get it; it wraps ErrMissing. RINGO_NCCL_LIB
// names another library of the same interface.
func Load() (*Lib, error) { return load() }

func open(q dl.Query) (*Lib, error) {
	d, err := q.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	l := &Lib{Path: d.Path}
	if err := l.readVersion(d, q.Get); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err := d.Resolve(&l.fn); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return l, nil
}

// printLines makes the C library give out lines as they are printed: it keeps
// what NCCL_DEBUG has NCCL print back where standard output is a pipe, and a Go
// program ends without asking it for the rest.
func printLines() {
	libc, err := dl.Open("the C library", "libc.so.6")
	if err != nil {
		return // another C library: NCCL_DEBUG_FILE works everywhere
	}
	var fn struct {
		Stdout  uintptr `sym:"stdout"` // a variable
		Setvbuf uintptr `sym:"setvbuf"`
	}
	if libc.Resolve(&fn) != nil {
		return
	}
	const lines = 1 // _IOLBF
	file := **(**uintptr)(unsafe.Pointer(&fn.Stdout))
	dl.Call(fn.Setvbuf, file, 0, lines, 0)
}

// readVersion asks for the version before anything else is resolved: an old
// library is then named as such, not as one that lacks some symbol.
func (l *Lib) readVersion(d *dl.Lib, get string) error {
	fn, err := d.Sym("ncclGetVersion")
	if err != nil {
		return err
	}
	var v int32
	if r := Result(int32(dl.Call(fn, uintptr(unsafe.Pointer(&v))))); r != Success {
		return fmt.Errorf("%s: ncclGetVersion returned %d", l.Path, r)
	}
	l.Version = int(v)
	d.Version = "NCCL " + versionString(l.Version)
	if l.Version < MinVersion {
		return fmt.Errorf("%s is NCCL %s, but %s or newer is needed: %s", l.Path, versionString(l.Version), versionString(MinVersion), get)
	}
	return nil
}

// String returns "NCCL 2.23.4 (libnccl.so.2)".
func (l *Lib) String() string { return fmt.Sprintf("NCCL %s (%s)", versionString(l.Version), l.Path) }

// versionString undoes NCCL_VERSION_CODE, which had two digits for the minor
// version from 2.9 on.
func versionString(v int) string {
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// Result is an ncclResult_t.
type Result int32

// Success is the one result that is no error.
const Success Result = 0

// Error is a call of NCCL that failed, or a failure that NCCL noticed later.
type Error struct {
	Call string
	Code Result
	Text string // ncclGetErrorString
	Last string // ncclGetLastError. NCCL keeps one for all communicators and threads, so it may be of another call
}

// Error names the call, the code and both of NCCL's texts.
func (e *Error) Error() string {
	s := fmt.Sprintf("nccl: %s: %s (%d)", e.Call, e.Text, e.Code)
	if e.Last != "" {
		s += "; last error of the process: " + e.Last
	}
	if !strings.Contains(e.Text, "NCCL_DEBUG") {
		s += " (NCCL_DEBUG=INFO tells more)"
	}
	return s
}

// Err is nil for Success.
func (l *Lib) Err(call string, r Result) error {
	if r == Success {
		return nil
	}
	e := &Error{Call: call, Code: r, Text: goString(dl.Call(l.fn.GetErrorString, uintptr(r)))}
	if l.fn.GetLastError != 0 {
		e.Last = goString(dl.Call(l.fn.GetLastError, 0))
	}
	return e
}

// goString copies a C string at an address that C gave.
func goString(at uintptr) string {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&at))
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
