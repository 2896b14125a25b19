package dl

import "sync"

// Call calls the C function at fn with at most 32 integers and pointers, and returns its result. A pointer to Go memory must be converted
// to uintptr in the argument list itself, as for syscall.Syscall: only then does it stay alive, and in its place, during the call. Call
// allocates the list; Call12 does not.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr { return invoke(fn, args) }

// Call12 is Call for hot paths: it allocates nothing. If the function has fewer arguments, every calling convention in use ignores the
// rest.
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

// frame is a list of arguments on the heap, where it does not move.
type frame [12]uintptr

var frames = sync.Pool{New: func() any { return new(frame) }}
