//go:build !nodl

package dl

import "unsafe"

// linkMap is the beginning of what the handle of an open library points to, with glibc and musl.
type linkMap struct {
	base    uintptr
	name    unsafe.Pointer //lint:ignore U1000 the struct of C has it
	dynamic *dynamic       // an array; the last entry has tag 0
}

type dynamic struct {
	tag   int64
	value uintptr
}

const (
	dtFiniArray     = 26 // address of an array of functions
	dtFiniArraySize = 28 // its bytes
)

// AtExit calls what the library has registered for the end of the process (atexit), and its destructors. A Go program ends without that.
// The library may not be used any more.
func (l *Lib) AtExit() {
	m := *(**linkMap)(unsafe.Pointer(&l.handle))
	var at, size uintptr
	for d := m.dynamic; d.tag != 0; d = (*dynamic)(unsafe.Add(unsafe.Pointer(d), unsafe.Sizeof(*d))) {
		switch d.tag {
		case dtFiniArray:
			at = m.base + d.value
		case dtFiniArraySize:
			size = d.value
		}
	}
	const word = unsafe.Sizeof(uintptr(0))
	for left := size / word; at != 0 && left > 0; left-- {
		entry := at + (left-1)*word
		Call4(**(**uintptr)(unsafe.Pointer(&entry)), 0, 0, 0, 0)
	}
}
