//go:build (linux || darwin) && !nodl

package dl

import "github.com/ebitengine/purego"

// Enabled says whether this binary can open libraries: not with -tags nodl.
const Enabled = true

func open(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) (uintptr, error) {
	return purego.Dlsym(handle, name)
}

// Call calls the C function at fn with integers and pointers, at most 32, and
// returns its result. It allocates nothing. A pointer must be converted to
// uintptr in the argument list itself, as for syscall.Syscall: only then does
// it stay alive and in its place during the call.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
