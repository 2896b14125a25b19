package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two processes write a timeline each. One file is made of them, and the summary of both names the rank that was late.
func TestTraceOfProcesses(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	dir := t.TempDir()
	stdout, stderr, code := run(t, "run", "-n", "2", "-timeout", "20s", program(t, "late"), dir)
	require.Zero(t, code, stdout+stderr)
	all, zero, one := filepath.Join(dir, "all.json"), filepath.Join(dir, "trace-0.json"), filepath.Join(dir, "trace-1.json")
	stdout, stderr, code = run(t, "trace", "merge", "-o", all, one, zero)
	require.Zero(t, code, stderr)
	assert.Contains(t, stdout, ": 2 ranks; added to clocks:\n  rank 0: the same clock\n  rank 1: ")
	for _, files := range [][]string{{all}, {zero, one}} {
		stdout, stderr, code = run(t, append([]string{"trace", "summary"}, files...)...)
		require.Zero(t, code, stderr)
		assert.Contains(t, stdout, "20 steps a rank")
		_, late, _ := strings.Cut(stdout, "Who came last")
		assert.Regexp(t, regexp.MustCompile(`(?m)^ +0 +0 +20 +0.0%$`), late)
		assert.Regexp(t, regexp.MustCompile(`(?m)^ +1 +20 +20 +100.0% .* allreduce:\w+ of world$`), late)
	}
}

func TestTraceMisuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	good := file("good.json", `{"otherData":{"start":"1"},"traceEvents":[{"name":"process_labels","ph":"M","pid":3,"args":{"labels":"host a"}}]}`)
	for want, args := range map[string][]string{
		"no such file":                  {"summary", filepath.Join(dir, "none.json")},
		"it is not a timeline of Ringo": {"summary", file("other.json", `{"traceEvents":[]}`)},
		"bad.json: invalid character":   {"summary", file("bad.json", `x`)},
		"rank 3 is there twice":         {"merge", "-o", filepath.Join(dir, "out.json"), good, good},
		"missing flags: -out":           {"merge", good},
		"is a directory":                {"merge", "-o", dir, good},
	} {
		_, stderr, code := run(t, append([]string{"trace"}, args...)...)
		assert.Contains(t, stderr, want)
		assert.NotZero(t, code)
	}
	stdout, _, code := run(t, "trace", "summary", good)
	assert.Zero(t, code)
	assert.Contains(t, stdout, "1 ranks, 0.000 ms\n")
}
