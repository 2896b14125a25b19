package reliability

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// The heaps of tests are small, so that garbage would be collected all the time: this takes a sixth from their time. GOGC changes it.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// Long reports whether t is part of the long runs: whether the name of its top-level test begins with TestLong. Where a short and a long
// test share code, it chooses the sizes.
func Long(t testing.TB) bool { return strings.HasPrefix(t.Name(), "TestLong") }

// SkipUnlessLong skips t without RINGO_LONG=1. Each test of the long runs calls it or AsLong, and no other (internal/lint
// checks that).
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if os.Getenv("RINGO_LONG") != "1" {
		t.Skip("RINGO_LONG=1 runs it")
	}
}

// AsLong runs a short test as one of the long runs, where Long gives it more or larger cases.
func AsLong(t *testing.T, short func(t *testing.T)) {
	t.Helper()
	SkipUnlessLong(t)
	short(t)
}
