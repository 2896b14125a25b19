//go:build windows && !nodl

package dl

import (
	"path/filepath"
	"syscall"
	"unsafe"
)

// alteredSearchPath is LOAD_WITH_ALTERED_SEARCH_PATH: the loader looks for a library's dependencies in the library's folder first
// (nvrtc-builtins64_*.dll).
const alteredSearchPath = 0x8

var loadLibraryEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LoadLibraryExW")

// Enabled reports whether this binary can open libraries.
const Enabled = true

func open(name string) (uintptr, error) {
	if !filepath.IsAbs(name) {
		handle, err := syscall.LoadLibrary(name)
		return uintptr(handle), err
	}
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return 0, err
	}
	handle, _, err := loadLibraryEx.Call(uintptr(unsafe.Pointer(path)), 0, alteredSearchPath)
	if handle == 0 {
		return 0, err
	}
	return handle, nil
}

func symbol(handle uintptr, name string) (uintptr, error) {
	return syscall.GetProcAddress(syscall.Handle(handle), name)
}

// invoke calls fn with a list that is on the heap already.
func invoke(fn uintptr, args []uintptr) uintptr {
	r, _, _ := syscall.SyscallN(fn, args...)
	return r
}
