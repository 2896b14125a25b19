package tensor

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/internal/where"
)

// Failure is the panic value of wrong use: wrong shapes, types or devices, an invalid handle. It is also that of a collective that failed
// inside Forward or Backward. Try and dist.Run turn it into an error.
type Failure struct {
	Op     string   // the function or operation that was called
	Shapes []Shape  // of its operands
	Params []string // for each operand the name of the parameter that it is or views, or ""; nil if none is one
	Err    error    // what is wrong
	// At is the line of the program that made the call, as file:line: the innermost one outside Ringo's packages. With RINGO_DEBUG=1 the
	// stack follows. Try and dist.Run set it.
	At string
}

// Error names the operation, the operands, the cause and the line.
func (f *Failure) Error() string {
	s := f.sentence()
	at := f.At
	if at == "" {
		at = where.Panic() // nobody recovered it: the runtime prints it
	}
	switch {
	case strings.Contains(at, "\n"):
		s += "\nat " + at
	case at != "":
		s += " (at " + at + ")"
	}
	return s
}

func (f *Failure) sentence() string {
	s := f.Op
	for i, sh := range f.Shapes {
		if i > 0 {
			s += ","
		}
		if i < len(f.Params) && f.Params[i] != "" {
			s += " " + f.Params[i]
		}
		s += " " + sh.String()
	}
	return fmt.Sprintf("%s: %v", s, f.Err)
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// Try runs fn and returns the *Failure that it panicked with, or nil. Other panics go on.
func Try(fn func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*Failure)
			if !ok {
				panic(r)
			}
			if f.At == "" {
				f.At = where.Panic()
			}
			err = f
		}
	}()
	fn()
	return nil
}

// fail panics with a *Failure about operands, of which some may be nil.
func fail(op string, in []*header, format string, a ...any) {
	failWith(op, in, fmt.Errorf(format, a...))
}

func failWith(op string, in []*header, err error) {
	f := &Failure{Op: op, Err: err}
	for _, h := range in {
		if h == nil {
			continue
		}
		f.Shapes = append(f.Shapes, h.shape())
		if p := h.param(); p != "" {
			f.Params = append(append(f.Params, make([]string, len(f.Shapes)-1-len(f.Params))...), p)
		}
	}
	panic(f)
}

// these lists operands for fail.
func these(in ...*header) []*header { return in }

// param returns the name of the parameter that h is or views, or "".
func (h *header) param() string {
	switch {
	case h.base != nil:
		return h.base.p.name
	case h.valueOf() != nil:
		return h.valueOf().name
	}
	return h.st.wholeName()
}

// called names an operand by its parameter, or else by its role.
func (h *header) called(role string) string {
	if p := h.param(); p != "" {
		return p
	}
	return role
}

// mustMatch fails unless dimension i of a is equal to dimension j of b. The roles name the operands in the error.
func mustMatch(op string, a *header, i int, role string, b *header, j int, other string, in ...*header) {
	if a.dims[i] != b.dims[j] {
		fail(op, in, "%s", mismatch(a, i, role, b, j, other))
	}
}

func mismatch(a *header, i int, role string, b *header, j int, other string) string {
	return fmt.Sprintf("dimension %d of %s is %d, dimension %d of %s is %d", i, a.called(role), a.dims[i], j, b.called(other), b.dims[j])
}

// mustBeAlike fails unless a and b have the same shape.
func mustBeAlike(op string, a *header, role string, b *header, other string, in ...*header) {
	if a.alike(b) {
		return
	}
	if a.ndim != b.ndim {
		fail(op, in, "%s: %s, %s: %s", a.called(role), dimensions(int(a.ndim)), b.called(other), dimensions(int(b.ndim)))
	}
	for i := range int(a.ndim) {
		mustMatch(op, a, i, role, b, i, other, in...)
	}
}

func dimensions(n int) string {
	if n == 1 {
		return "1 dimension"
	}
	return fmt.Sprintf("%d dimensions", n)
}
