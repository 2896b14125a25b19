package where

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
)

const module = "github.com/ringo-ml/ringo/"

// Panic returns the file and line of the innermost call outside Ringo's packages and the standard library, while the calling goroutine
// panics: in a deferred function, or in an Error method that the runtime calls to print a panic that is not recovered. Otherwise it is
// "". With RINGO_DEBUG=1 the stack follows, on lines of its own.
func Panic() string {
	calls, panicking := frames()
	line := ""
	if panicking {
		line = innermost(calls)
	}
	if panicking && os.Getenv("RINGO_DEBUG") == "1" {
		line += "\n" + Stack()
	}
	return line
}

// Call returns the file and line of the innermost call outside Ringo's packages and the standard library, or "".
func Call() string {
	pcs := make([]uintptr, 256)
	return innermost(runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)]))
}

// Of is Call of calls that runtime.Callers returned; zeros may follow them.
func Of(calls []uintptr) string { return innermost(runtime.CallersFrames(calls)) }

// innermost returns the file and line of the first call that is in the user's program, or "".
func innermost(calls *runtime.Frames) string {
	for {
		f, more := calls.Next()
		if users(f) {
			return fmt.Sprintf("%s:%d", relative(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// frames returns the calls below the newest panic, the innermost first, and whether there is a panic.
func frames() (calls *runtime.Frames, panicking bool) {
	pcs := make([]uintptr, 256)
	calls = runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := calls.Next()
		if f.Function == "runtime.gopanic" || !more {
			return calls, more
		}
	}
}

// Stack returns the stack of the calling goroutine in the runtime's form, without the calls above the newest panic or runtime.Goexit.
func Stack() string {
	head, calls, _ := strings.Cut(string(debug.Stack()), "\n")
	for _, end := range []string{"\npanic(", "\nruntime.Goexit("} {
		if _, below, found := strings.Cut(calls, end); found {
			_, below, _ = strings.Cut(below, "\n") // skip its arguments, then its line
			_, calls, _ = strings.Cut(below, "\n")
			break
		}
	}
	return head + "\n" + strings.TrimSuffix(calls, "\n")
}

// Goroutine returns the name of the calling goroutine, for StackOf.
func Goroutine() string {
	text := make([]byte, 64)
	name, _, _ := strings.Cut(string(text[:runtime.Stack(text, false)]), " [")
	return name
}

// StackOf returns the stack of the goroutine with that name; "" if it has ended.
func StackOf(goroutine string) string {
	text := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(text[:runtime.Stack(text, true)]), "\n\n") {
		if strings.HasPrefix(stack, goroutine+" [") {
			return strings.TrimSuffix(stack, "\n")
		}
	}
	return ""
}

// Stacks returns the stacks of all goroutines, of the first 64 KiB.
func Stacks() string {
	text := make([]byte, 64<<10)
	return string(text[:runtime.Stack(text, true)])
}

// users reports whether a call is in the user's program.
func users(f runtime.Frame) bool {
	if strings.HasSuffix(f.File, "_test.go") {
		return true
	}
	slash := strings.LastIndexByte(f.Function, '/') + 1 // in example.org/a/b.(*T).F
	name, _, _ := strings.Cut(f.Function[slash:], ".")
	path := f.Function[:slash] + name
	switch {
	case strings.HasPrefix(path, module):
		return strings.HasPrefix(path, module+"examples/")
	case path == "main":
		return true
	}
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") || path == own || own != "" && strings.HasPrefix(path, own+"/")
}

// own is the module of the program.
var own = func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path+"/" != module {
		return info.Main.Path
	}
	return ""
}()

// relative returns the path of a file relative to the working directory, if it is below it.
func relative(file string) string {
	if dir, err := os.Getwd(); err == nil {
		if r, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(r) {
			return r
		}
	}
	return file
}
