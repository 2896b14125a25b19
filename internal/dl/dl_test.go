//go:build (linux || darwin || windows) && !nodl

package dl_test

import (
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// libc is a library that every system has.
func libc(t testing.TB) *dl.Lib {
	t.Helper()
	name := map[string]string{"linux": "libc.so.6", "darwin": "/usr/lib/libSystem.B.dylib", "windows": "msvcrt.dll"}[runtime.GOOS]
	lib, err := dl.Open("the C library", "libnosuch.so.1", name)
	require.NoError(t, err)
	require.Equal(t, name, lib.Path)
	return lib
}

func TestCall(t *testing.T) {
	strlen, err := libc(t).Sym("strlen")
	require.NoError(t, err)
	text := []byte("eleven char\x00")
	require.Equal(t, uintptr(11), dl.Call(strlen, uintptr(unsafe.Pointer(&text[0]))))
	require.Equal(t, uintptr(11), dl.Call4(strlen, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0))
	require.Equal(t, uintptr(11), dl.Call12(strlen, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
}

// Many arguments arrive in order: snprintf prints them.
func TestManyArguments(t *testing.T) {
	lib := libc(t)
	print, err := lib.Sym("snprintf")
	if err != nil || runtime.GOOS == "darwin" && runtime.GOARCH == "arm64" {
		t.Skip("no variadic function to try this with")
	}
	out, format := make([]byte, 64), []byte("%d %d %d %d %d %d %d %d %d\x00")
	n := dl.Call12(print, uintptr(unsafe.Pointer(&out[0])), 64, uintptr(unsafe.Pointer(&format[0])), 1, 2, 3, 4, 5, 6, 7, 8, 9)
	require.Equal(t, "1 2 3 4 5 6 7 8 9", string(out[:n]))
	n = dl.Call(print, uintptr(unsafe.Pointer(&out[0])), 64, uintptr(unsafe.Pointer(&format[0])), 9, 8, 7, 6, 5, 4, 3, 2, 1)
	require.Equal(t, "9 8 7 6 5 4 3 2 1", string(out[:n]))
}

func TestOpenNamesAllTried(t *testing.T) {
	_, err := dl.Open("the missing library", "libnosuch.so.2", filepath.Join(t.TempDir(), "libnosuch.so.1"))
	require.ErrorIs(t, err, dl.ErrNotFound)
	require.ErrorContains(t, err, "library not found: the missing library; tried libnosuch.so.2 (")
	require.ErrorContains(t, err, "libnosuch.so.1 (")
	if runtime.GOOS == "linux" {
		require.ErrorContains(t, err, "(cannot open shared object file: No such file or directory)")
	}
	_, err = dl.Open("a library of another system")
	require.ErrorContains(t, err, "no library of that kind for this system")
}

func TestMissingSymbol(t *testing.T) {
	lib := libc(t)
	lib.Version = "version 2.36"
	_, err := lib.Sym("nosuchfunction")
	require.EqualError(t, err,
		"the C library ("+lib.Path+", version 2.36) has no symbol nosuchfunction: a newer or another version of it is needed")
	require.True(t, lib.Has("strlen"))
	require.False(t, lib.Has("nosuchfunction"))
}

func TestResolve(t *testing.T) {
	lib := libc(t)
	var f struct {
		Strlen  uintptr `sym:"strlen"`
		Maybe   uintptr `sym:"nosuchfunction,optional"`
		Nothing int
	}
	require.NoError(t, lib.Resolve(&f))
	require.NotZero(t, f.Strlen)
	require.Zero(t, f.Maybe)
	var g struct {
		Never uintptr `sym:"nosuchfunction"`
	}
	require.ErrorContains(t, lib.Resolve(&g), "nosuchfunction")
}

func TestQueryTakesOnlyTheVariable(t *testing.T) {
	lib := libc(t)
	q := dl.Query{What: "the C library", Env: "RINGO_TEST_LIB", Names: []string{lib.Path}}
	t.Setenv("RINGO_TEST_LIB", "")
	_, err := q.Open()
	require.NoError(t, err)
	t.Setenv("RINGO_TEST_LIB", "libnosuch.so.3")
	_, err = q.Open()
	require.ErrorIs(t, err, dl.ErrNotFound)
	require.ErrorContains(t, err, "RINGO_TEST_LIB is set: ")
	require.ErrorContains(t, err, "libnosuch.so.3")
}

func TestCallAllocatesNothing(t *testing.T) {
	if reliability.Racing {
		t.Skip("sync.Pool drops things under the race detector")
	}
	strlen, err := libc(t).Sym("strlen")
	require.NoError(t, err)
	text := append(make([]byte, 0, 16), "text\x00"...)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		dl.Call4(strlen, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0)
		dl.Call12(strlen, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}))
}

func BenchmarkCall(b *testing.B) {
	strlen, err := libc(b).Sym("strlen")
	require.NoError(b, err)
	text := []byte{0}
	b.Run("Call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dl.Call(strlen, uintptr(unsafe.Pointer(&text[0])))
		}
	})
	b.Run("Call4", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dl.Call4(strlen, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0)
		}
	})
	b.Run("Call12", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dl.Call12(strlen, uintptr(unsafe.Pointer(&text[0])), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		}
	})
}
