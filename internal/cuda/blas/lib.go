package blas

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// minVersion is the oldest supported cuBLASLt, in the form of cublasLtGetVersion:
// 12.0.
const minVersion = 120000

// rowScalesVersion is the oldest one with scales for each row of 8-bit floats: 12.9.
const rowScalesVersion = 120900

// ErrNotFound is wrapped by the error of Load if there is no usable cuBLASLt.
var ErrNotFound = errors.New("no cuBLASLt")

// Lib is cuBLASLt.
type Lib struct {
	Lib     *dl.Lib
	Version int // 130400 for 13.4.0
	fn      funcs
}

type funcs struct {
	GetVersion        uintptr `sym:"cublasLtGetVersion"`
	Create            uintptr `sym:"cublasLtCreate"`
	Destroy           uintptr `sym:"cublasLtDestroy"`
	DescCreate        uintptr `sym:"cublasLtMatmulDescCreate"`
	DescDestroy       uintptr `sym:"cublasLtMatmulDescDestroy"`
	DescSet           uintptr `sym:"cublasLtMatmulDescSetAttribute"`
	LayoutCreate      uintptr `sym:"cublasLtMatrixLayoutCreate"`
	LayoutDestroy     uintptr `sym:"cublasLtMatrixLayoutDestroy"`
	LayoutSet         uintptr `sym:"cublasLtMatrixLayoutSetAttribute"`
	PreferenceCreate  uintptr `sym:"cublasLtMatmulPreferenceCreate"`
	PreferenceDestroy uintptr `sym:"cublasLtMatmulPreferenceDestroy"`
	PreferenceSet     uintptr `sym:"cublasLtMatmulPreferenceSetAttribute"`
	GetHeuristic      uintptr `sym:"cublasLtMatmulAlgoGetHeuristic"`
	Matmul            uintptr `sym:"cublasLtMatmul"`
}

var load = sync.OnceValues(func() (*Lib, error) { return open(cuda.LibCuBLASLt.Query(cuda.Major())) })

// Load opens cuBLASLt, once per process: the one for the driver's major version if
// there is one. It needs neither a driver nor a device. The error says how to get
// cuBLASLt; it wraps ErrNotFound. RINGO_CUBLASLT_LIB names another library.
func Load() (*Lib, error) { return load() }

func open(q dl.Query) (*Lib, error) {
	lib, err := q.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	l := &Lib{Lib: lib}
	if err := lib.Resolve(&l.fn); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	l.Version = int(dl.Call(l.fn.GetVersion))
	lib.Version = fmt.Sprintf("cuBLASLt %d.%d", l.Version/10000, l.Version/100%100)
	if l.Version < minVersion {
		return nil, fmt.Errorf("%w: %s is %s, but 12.0 or newer is needed", ErrNotFound, lib.Path, lib.Version)
	}
	return l, nil
}

// status is a cublasStatus_t.
type status int32

const (
	success      status = 0
	invalidValue status = 7
	notSupported status = 15
)

var statusNames = map[status]string{
	1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", invalidValue: "CUBLAS_STATUS_INVALID_VALUE",
	8: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR", notSupported: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}

// Error is a failed call of cuBLASLt.
type Error struct {
	Call   string
	Status int // cublasStatus_t
	About  string
}

// Error returns the call, the status and the product.
func (e *Error) Error() string {
	name := statusNames[status(e.Status)]
	if name == "" {
		name = "a status unknown here"
	}
	return fmt.Sprintf("cuda: %s: %s (%d): %s", e.Call, name, e.Status, e.About)
}

// IsUnsupported reports whether err is, or wraps, the error that cuBLASLt has no
// algorithm for a product: the caller may compute it in another way.
func IsUnsupported(err error) bool {
	var e *Error
	return errors.As(err, &e) && status(e.Status) == notSupported
}

// check returns an error unless r is success.
func check(call string, r uintptr, g *Gemm) error {
	if s := status(int32(r)); s != success {
		return &Error{Call: call, Status: int(s), About: g.String()}
	}
	return nil
}
