package emu

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// Config configures the emulated machine. The zero value is two devices of 4 GiB
// whose streams run as fast as they can.
type Config struct {
	Devices int    // 2 when 0, none when -1; at most 16
	Memory  uint64 // bytes of each device, 4 GiB when 0
	Seed    uint64 // of pauses and of the order of blocks

	// Delay is the longest pause of a stream before an operation. One operation in
	// four has one.
	Delay time.Duration
	// Lazy makes a stream run only as far as somebody waits for it (the host, or
	// another stream through an event): so a missing wait is always found.
	Lazy bool
	// Reverse runs the threads of a block from the last to the first.
	Reverse bool
	// Banks makes it an error if ldmatrix reads rows from the same banks of shared
	// memory. On a GPU that only costs time.
	Banks bool
	// Left puts the guard page directly before an allocation, not directly after
	// it.
	Left bool

	FailAlloc  int           // the n-th allocation from now on fails
	FailLaunch int           // the n-th launch from now on fails
	Timeout    time.Duration // of a kernel, one minute when 0
	Version    int           // of the driver, 13000 when 0
	NoPeers    bool          // turns off peer access that earlier tests enabled
	Apart      bool          // there is no path between devices

	// Reaches lets devices access ordinary host memory (Linux HMM, Grace). Copies
	// from and to it are then not staged, and do not block the host.
	Reaches bool
}

// control are the emulator's own functions (src/emu.h).
type control struct {
	Reset uintptr `sym:"emu_reset"`
	Leaks uintptr `sym:"emu_leaks"`
	Hold  uintptr `sym:"emu_hold"`
	Block uintptr `sym:"emu_block"`
}

// nativeConfig is struct EmuConfig.
type nativeConfig struct {
	devices, memory, seed, delay, lazy, reverse, left, failAlloc, failLaunch, timeout, version, noPeers, banks, apart, reaches uint64
}

// Start makes cuda.Load open the emulated driver, and configures it for the test.
// At the test's end, holds, faults and errors are removed. Devices, compiled
// modules and what the test leaves open stay, because a process has one driver.
// Tests that use the emulator do not run in parallel. If the emulator cannot be
// built, the test is skipped. See OnGPU.
func Start(t testing.TB, cfg Config) *cuda.Driver {
	t.Helper()
	if OnGPU() {
		return gpu(t, cfg)
	}
	needed(t)
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	setenv(t, "RINGO_CUDA_LIB", filepath.Join(dir, "libcuda.so"))
	setenv(t, "RINGO_NVRTC_LIB", filepath.Join(dir, "libnvrtc.so"))
	setenv(t, "RINGO_NCCL_LIB", filepath.Join(dir, "libnccl.so"))
	setenv(t, "RINGO_CUBLASLT_LIB", filepath.Join(dir, "libcublaslt.so"))
	setenv(t, "RINGO_CUDA_CACHE", filepath.Join(dir, "cubin"))
	setenv(t, "RINGO_NVML_LIB", filepath.Join(dir, "libnvml.so"))
	setenv(t, "EMU_SHIM", filepath.Join(dir, "shim.h"))
	Heal()
	d, err := cuda.Load()
	if err != nil {
		t.Fatal(err)
	}
	if d.Lib.Path != filepath.Join(dir, "libcuda.so") {
		t.Fatalf("emu: this process already uses the driver %s", d.Lib.Path)
	}
	reset(cfg)
	t.Cleanup(Heal)
	return d
}

// needed skips a test if the emulator cannot be built.
func needed(t testing.TB) {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
}

// missing says what the emulator needs and this machine does not have.
func missing() string {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "the CUDA emulator runs on linux/amd64 only"
	}
	if !dl.Enabled {
		return "the CUDA emulator is a library, and this binary was built with -tags nodl"
	}
	if _, err := exec.LookPath("g++"); err != nil {
		return "the CUDA emulator needs g++, which is not installed"
	}
	return ""
}

func reset(c Config) {
	n := nativeConfig{
		devices: uint64(max(0, or(c.Devices, 2))), memory: or(c.Memory, 4<<30), seed: or(c.Seed, 1),
		delay: uint64(c.Delay), lazy: flag(c.Lazy), reverse: flag(c.Reverse), left: flag(c.Left),
		failAlloc: uint64(c.FailAlloc), failLaunch: uint64(c.FailLaunch),
		timeout: uint64(or(c.Timeout, time.Minute)), version: uint64(or(c.Version, 13000)), noPeers: flag(c.NoPeers), banks: flag(c.Banks),
		apart: flag(c.Apart), reaches: flag(c.Reaches),
	}
	dl.Call(controls().Reset, uintptr(unsafe.Pointer(&n)))
}

func or[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// Library returns the path of the emulated driver or NVRTC ("libcuda.so",
// "libnvrtc.so"), for tests that open one themselves. Call Start first.
func Library(t testing.TB, name string) string {
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// realNVRTC is the user's setting, before Start sets its own. emulated is set if
// that is the emulator's, too, as when it stands for a GPU.
var realNVRTC, emulated = os.Getenv("RINGO_NVRTC_LIB"), os.Getenv("EMU_SHIM") != ""

// NVRTC opens NVIDIA's compiler, which needs no GPU: RINGO_NVRTC_LIB, else where
// package cuda looks for it. If there is none, the test is skipped.
func NVRTC(t testing.TB) *cuda.Compiler {
	t.Helper()
	if emulated {
		t.Skip("RINGO_NVRTC_LIB names the emulator's compiler")
	}
	c, err := cuda.OpenCompiler(realNVRTC)
	if err != nil {
		t.Skipf("this test needs NVIDIA's NVRTC (pip install nvidia-cuda-nvrtc, then RINGO_NVRTC_LIB=.../libnvrtc.so.13): %v", err)
	}
	return c
}

// Heal ends a sticky error, for which real CUDA needs a new process, and configures
// the machine like Start with a zero Config.
func Heal() {
	if !OnGPU() {
		reset(Config{})
	}
}

// Leaks lists the device memory, pinned memory, streams, events and graphs that are
// open, one a line. "" is none; on a GPU it is always "".
func Leaks() string {
	if OnGPU() {
		return ""
	}
	text := make([]byte, 1<<16)
	dl.Call(controls().Leaks, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
	return cString(text)
}

// Block makes a call of the driver on a device hang, until open is called:
// "cuEventQuery" or "cuEventRecord".
func Block(call string, device int) (open func()) {
	name, none := append([]byte(call), 0), []byte{0}
	dl.Call(emulator().Block, uintptr(unsafe.Pointer(&name[0])), uintptr(device))
	return func() { dl.Call(emulator().Block, uintptr(unsafe.Pointer(&none[0])), 0) }
}

// Hold stops a stream before its next operation until it is released.
func Hold(s *cuda.Stream) { dl.Call(emulator().Hold, s.Handle(), 1) }

// Release lets a held stream go on.
func Release(s *cuda.Stream) { dl.Call(emulator().Hold, s.Handle(), 0) }
