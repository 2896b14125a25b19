package dl

import "sync"

// Call calls the C function at fn with integers and pointers, at most 32, and
// returns its result. A pointer to Go memory must be converted to uintptr in the
// argument list itself, as for syscall.Syscall: only then does it stay alive and
// in its place during the call. The list is allocated: see Call12.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr { return invoke(fn, args) }

// Call12 is Call for hot paths: it allocates nothing. Arguments that the function
// does not have are ignored by every calling convention in use.
//
//go:uintptrescapes
func Call12(fn, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12 uintptr) uintptr {
	f := frames.Get().(*frame)
	*f = frame{a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12}
	r := invoke(fn, f[:])
	frames.Put(f)
	return r
}

// Call4 is Call12 with up to four arguments.
//
//go:uintptrescapes
func Call4(fn, a1, a2, a3, a4 uintptr) uintptr {
	f := frames.Get().(*frame)
	*f = frame{a1, a2, a3, a4}
	r := invoke(fn, f[:4])
	frames.Put(f)
	return r
}

// frame is a list of arguments on the heap, where the C side expects it to stay.
type frame [12]uintptr

var frames = sync.Pool{New: func() any { return new(frame) }}
