package where

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPanic(t *testing.T) {
	assert.Empty(t, Panic(), "nobody panics")
	t.Setenv("RINGO_DEBUG", "")
	for _, f := range []func(){func() { panic("x") }, func() { _ = []int{}[len(t.Name())-9:][0] }} {
		line := during(f)
		assert.Regexp(t, `^(\S+/)?where_test.go:14$`, line, "with -trimpath, the path is that of the import")
	}
	library := func() { _ = strings.Repeat("x", -1) }
	assert.Regexp(t, `^(\S+/)?where_test.go:18$`, during(library))
	t.Setenv("RINGO_DEBUG", "1")
	assert.Regexp(t, `^(\S+/)?where_test.go:18\ngoroutine \d+ \[running\]:\nstrings.Repeat`,
		during(library), "the stack begins where the panic does")
}

func TestCall(t *testing.T) {
	assert.Regexp(t, `^(\S+/)?where_test.go:\d+$`, Call())
}

// during returns the result of Panic in a deferred function.
func during(f func()) (line string) {
	defer func() {
		line = Panic()
		_ = recover()
	}()
	f()
	return "there was no panic"
}

func TestUsers(t *testing.T) {
	for function, yes := range map[string]bool{
		"main.main":                              true,
		"main.main.func1":                        true,
		"example.org/my/model.(*T).Forward":      true,
		"gopkg.in/yaml%2ev3.F":                   true,
		"runtime.panicIndex":                     false,
		"slices.SortFunc[...]":                   false,
		"internal/sync.(*Map).Load":              false,
		module + "tensor.Linear":                 false,
		module + "dist/autograd.(*F).Forward":    false,
		module + "examples/internal/lm.(*T).Run": true,
		"github.com/ringo-ml/ringoes.F":          true,
	} {
		assert.Equal(t, yes, users(runtime.Frame{Function: function, File: "/x/y.go"}), function)
	}
	assert.True(t, users(runtime.Frame{Function: module + "tensor.TestX", File: "/x/y_test.go"}))
	old := own
	defer func() { own = old }()
	own = "mine"
	assert.True(t, users(runtime.Frame{Function: "mine/model.F", File: "/x/y.go"}), "a module whose name has no dot")
	assert.False(t, users(runtime.Frame{Function: "mines.F", File: "/x/y.go"}))
}

func TestRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	assert.Equal(t, "/usr/x.go", relative("/usr/x.go"))
}
