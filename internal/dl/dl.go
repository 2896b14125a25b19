package dl

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Lib is an open shared library. It stays open until the process ends, because CUDA's libraries have threads and exit handlers that live
// longer than their users.
type Lib struct {
	What    string // what it is for, in words, such as "the CUDA driver"
	Path    string // the name or path by which the loader found it
	Version string // set by the caller when it is known; part of the error of a missing symbol

	handle uintptr
}

// ErrNotFound is wrapped by the error of Open if it found no library.
var ErrNotFound = errors.New("library not found")

// Open opens the first of the names or paths that the loader accepts. The loader searches for names without a slash. The error wraps
// ErrNotFound and names everything that was tried, with the loader's messages.
func Open(what string, names ...string) (*Lib, error) {
	var tried []string
	for _, name := range names {
		handle, err := open(name)
		if err == nil {
			return &Lib{What: what, Path: name, handle: handle}, nil
		}
		if errors.Is(err, errNoDL) {
			return nil, fmt.Errorf("%w: %s: %w", ErrNotFound, what, err)
		}
		tried = append(tried, reason(name, err))
	}
	if len(tried) == 0 {
		return nil, fmt.Errorf("%w: %s: no library of that kind for this system", ErrNotFound, what)
	}
	return nil, fmt.Errorf("%w: %s; tried %s", ErrNotFound, what, strings.Join(tried, "; "))
}

// reason is "name (why)". Loaders begin their message with the name, so it is cut off there.
func reason(name string, err error) string {
	why := strings.TrimPrefix(err.Error(), name+": ")
	return fmt.Sprintf("%s (%s)", name, why)
}

// errNoDL is the error of a binary that cannot open any library.
var errNoDL = errors.New("this binary was built with -tags nodl, without the means to open shared libraries")

// Sym returns the address of a symbol. The error names library, version and symbol.
func (l *Lib) Sym(name string) (uintptr, error) {
	addr, err := symbol(l.handle, name)
	if err != nil || addr == 0 {
		version := l.Version
		if version == "" {
			version = "version unknown"
		}
		return 0, fmt.Errorf("%s (%s, %s) has no symbol %s: a newer or another version of it is needed", l.What, l.Path, version, name)
	}
	return addr, nil
}

// Has reports whether the library has a symbol.
func (l *Lib) Has(name string) bool {
	addr, err := symbol(l.handle, name)
	return err == nil && addr != 0
}

// Resolve fills the fields of the struct that funcs points to. Each uintptr field with a tag `sym:"name"` gets the address of that
// symbol. A symbol with the tag `sym:"name,optional"` may be missing; then the field is 0. Any other missing symbol is an error.
func (l *Lib) Resolve(funcs any) error {
	v := reflect.ValueOf(funcs).Elem()
	for i := range v.NumField() {
		name, optional := strings.CutSuffix(v.Type().Field(i).Tag.Get("sym"), ",optional")
		if name == "" {
			continue
		}
		addr, err := l.Sym(name)
		if err != nil && !optional {
			return err
		}
		v.Field(i).SetUint(uint64(addr))
	}
	return nil
}
