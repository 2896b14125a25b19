//go:build (linux || darwin) && !nodl

package dl

import "github.com/ebitengine/purego"

// Enabled reports whether this binary can open libraries.
const Enabled = true

func open(name string) (uintptr, error) {
	return purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func symbol(handle uintptr, name string) (uintptr, error) {
	return purego.Dlsym(handle, name)
}

// invoke calls fn with a list that is on the heap already.
func invoke(fn uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
