package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// minVersion is the oldest CUDA version that a driver must support, in the form of
// cuDriverGetVersion: 12.0.
const minVersion = 12000

// ErrNoDriver is wrapped by the error of Load if there is no usable driver.
var ErrNoDriver = errors.New("no CUDA driver")

// Driver is the CUDA driver of this process.
type Driver struct {
	Lib     *dl.Lib
	Version int // the newest CUDA it supports, 13000 for 13.0
	fn      Funcs

	mu      sync.Mutex
	devices map[int]*Device
}

// Funcs are the addresses of the driver's functions.
type Funcs struct {
	Init           uintptr `sym:"cuInit"`
	GetErrorName   uintptr `sym:"cuGetErrorName"`
	GetErrorString uintptr `sym:"cuGetErrorString"`

	DeviceGetCount         uintptr `sym:"cuDeviceGetCount"`
	DeviceGetName          uintptr `sym:"cuDeviceGetName"`
	DeviceTotalMem         uintptr `sym:"cuDeviceTotalMem_v2"`
	DeviceGetAttribute     uintptr `sym:"cuDeviceGetAttribute"`
	DeviceGetPCIBusID      uintptr `sym:"cuDeviceGetPCIBusId"`
	DeviceCanAccessPeer    uintptr `sym:"cuDeviceCanAccessPeer"`
	DevicePrimaryCtxRetain uintptr `sym:"cuDevicePrimaryCtxRetain"`
	CtxPushCurrent         uintptr `sym:"cuCtxPushCurrent_v2"`
	CtxPopCurrent          uintptr `sym:"cuCtxPopCurrent_v2"`
	CtxSynchronize         uintptr `sym:"cuCtxSynchronize"`
	CtxEnablePeerAccess    uintptr `sym:"cuCtxEnablePeerAccess"`
	MemGetInfo             uintptr `sym:"cuMemGetInfo_v2"`
	PointerGetAttribute    uintptr `sym:"cuPointerGetAttribute"`
	MemAlloc               uintptr `sym:"cuMemAlloc_v2"`
	MemFree                uintptr `sym:"cuMemFree_v2"`
	MemHostAlloc           uintptr `sym:"cuMemHostAlloc"`
	MemFreeHost            uintptr `sym:"cuMemFreeHost"`
	MemcpyHtoDAsync        uintptr `sym:"cuMemcpyHtoDAsync_v2"`
	MemcpyDtoHAsync        uintptr `sym:"cuMemcpyDtoHAsync_v2"`
	MemcpyDtoDAsync        uintptr `sym:"cuMemcpyDtoDAsync_v2"`
	MemcpyPeerAsync        uintptr `sym:"cuMemcpyPeerAsync"`
	MemsetD8Async          uintptr `sym:"cuMemsetD8Async"`
	MemsetD32Async         uintptr `sym:"cuMemsetD32Async"`
	StreamCreate           uintptr `sym:"cuStreamCreateWithPriority"`
	StreamDestroy          uintptr `sym:"cuStreamDestroy_v2"`
	StreamSynchronize      uintptr `sym:"cuStreamSynchronize"`
	StreamQuery            uintptr `sym:"cuStreamQuery"`
	StreamWaitEvent        uintptr `sym:"cuStreamWaitEvent"`
	StreamBeginCapture     uintptr `sym:"cuStreamBeginCapture_v2"`
	StreamEndCapture       uintptr `sym:"cuStreamEndCapture"`
	StreamIsCapturing      uintptr `sym:"cuStreamIsCapturing"`
	StreamGetCaptureInfo   uintptr `sym:"cuStreamGetCaptureInfo_v2"`
	EventCreate            uintptr `sym:"cuEventCreate"`
	EventDestroy           uintptr `sym:"cuEventDestroy_v2"`
	EventRecord            uintptr `sym:"cuEventRecord"`
	EventQuery             uintptr `sym:"cuEventQuery"`
	EventSynchronize       uintptr `sym:"cuEventSynchronize"`
	EventElapsedTime       uintptr `sym:"cuEventElapsedTime"`
	ModuleLoadData         uintptr `sym:"cuModuleLoadData"`
	ModuleGetFunction      uintptr `sym:"cuModuleGetFunction"`
	FuncLoad               uintptr `sym:"cuFuncLoad,optional"` // 12.4
	FuncSetAttribute       uintptr `sym:"cuFuncSetAttribute"`
	LaunchKernel           uintptr `sym:"cuLaunchKernel"`
	TensorMapEncode        uintptr `sym:"cuTensorMapEncodeTiled,optional"` // CUDA 12.0
	GraphInstantiate       uintptr `sym:"cuGraphInstantiateWithFlags"`
	GraphGetNodes          uintptr `sym:"cuGraphGetNodes"`
	GraphExecSetKernel     uintptr `sym:"cuGraphExecKernelNodeSetParams_v2"`
	GraphLaunch            uintptr `sym:"cuGraphLaunch"`
	GraphDestroy           uintptr `sym:"cuGraphDestroy"`
	GraphExecDestroy       uintptr `sym:"cuGraphExecDestroy"`
}

var load = sync.OnceValues(func() (*Driver, error) { return open(LibDriver.Query(0)) })

// Load opens the CUDA driver, once per process; later calls return the same one.
// The error says in one sentence what is missing and how to get it; it wraps
// ErrNoDriver. RINGO_CUDA_LIB names another library with the same functions.
func Load() (*Driver, error) { return load() }

func open(q dl.Query) (*Driver, error) {
	lib, err := q.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	d := &Driver{Lib: lib, devices: map[int]*Device{}}
	if err := d.readVersion(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	if err := lib.Resolve(&d.fn); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriver, err)
	}
	if r := dl.Call(d.fn.Init, 0); r != 0 {
		return nil, fmt.Errorf("%w: %s is there, but: %w", ErrNoDriver, lib.Path, d.failure("cuInit", -1, int(int32(r))))
	}
	return d, nil
}

// readVersion reads the version before other functions are looked up, so that the
// error for an old driver is its version, and not a missing function.
func (d *Driver) readVersion() error {
	fn, err := d.Lib.Sym("cuDriverGetVersion")
	if err != nil {
		return err
	}
	var v int32
	if r := dl.Call(fn, uintptr(unsafe.Pointer(&v))); r != 0 {
		return fmt.Errorf("%s: cuDriverGetVersion returned %d", d.Lib.Path, int32(r))
	}
	d.Version = int(v)
	d.Lib.Version = "CUDA " + versionString(d.Version)
	if d.Version < minVersion {
		return fmt.Errorf("the driver (%s) supports CUDA %s, but %s or newer is needed: update NVIDIA's driver",
			d.Lib.Path, versionString(d.Version), versionString(minVersion))
	}
	return nil
}

func versionString(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Count returns the number of devices, without those hidden by
// CUDA_VISIBLE_DEVICES.
func (d *Driver) Count() (int, error) {
	var n int32
	r := dl.Call(d.fn.DeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), d.check("cuDeviceGetCount", -1, r)
}

// CountGPUs returns the number of devices. No device and no driver are errors.
func CountGPUs() (int, error) {
	d, err := Load()
	if err != nil {
		return 0, err
	}
	n, err := d.Count()
	if err == nil && n == 0 {
		err = fmt.Errorf("the CUDA driver shows no GPU (CUDA_VISIBLE_DEVICES=%q)", os.Getenv("CUDA_VISIBLE_DEVICES"))
	}
	return n, err
}

// check returns an error unless r is success.
func (d *Driver) check(call string, device int, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return d.failure(call, device, int(int32(r)))
}

func (d *Driver) failure(call string, device, code int) *Error {
	return &Error{
		Call: call, Device: device, Code: code,
		Name: d.errorString(d.fn.GetErrorName, code),
		Text: d.errorString(d.fn.GetErrorString, code),
	}
}

func (d *Driver) errorString(fn uintptr, code int) string {
	var s *byte
	if r := dl.Call(fn, uintptr(code), uintptr(unsafe.Pointer(&s))); int32(r) != 0 || s == nil {
		return "unknown to this driver"
	}
	return goString(s)
}

// goString copies a C string.
func goString(s *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(s, n))
}
