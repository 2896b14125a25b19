package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/timeline"
	"github.com/ringo-ml/ringo/internal/trace"
)

// Two processes write a timeline each. They are merged into one file, and the summary of both names the rank that was late.
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
	joinApart(t, all, zero, one)
}

// otherHost changes the timeline in a file to that of another host, whose clock is ahead.
func otherHost(t *testing.T, path string, ahead time.Duration) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	start := regexp.MustCompile(`"start":"(\d+)"`)
	was, err := strconv.ParseInt(string(start.FindSubmatch(text)[1]), 10, 64)
	require.NoError(t, err)
	text = start.ReplaceAll(text, fmt.Appendf(nil, `"start":"%d"`, was+int64(ahead)))
	text = regexp.MustCompile(`"host":"[^"]*"`).ReplaceAll(text, []byte(`"host":"elsewhere"`))
	require.NoError(t, os.WriteFile(path, text, 0o666))
}

// joinApart joins two files; the clock of the second one is ahead. No receive ends before its send begins, and no all-reduce ends on a
// rank before the other rank has begun it.
func joinApart(t *testing.T, all, zero, one string) {
	t.Helper()
	const ahead = 5 * time.Second
	otherHost(t, one, ahead)
	stdout, stderr, code := run(t, "trace", "merge", "-o", all, one, zero)
	require.Zero(t, code, stderr)
	assert.Regexp(t, `\n  rank 1: -(4999|5000)\.\d+ ms, within \d+\.\d+ ms\n`, stdout)
	f, err := os.Open(all)
	require.NoError(t, err)
	defer f.Close()
	ranks, err := timeline.Read(f)
	require.NoError(t, err)
	type key struct {
		kind string
		seq  uint64
	}
	found := map[key][2]trace.Span{}
	for i, r := range ranks {
		for _, s := range r.Spans {
			if kind, _, _ := strings.Cut(s.Name, ":"); s.Track == trace.Comm {
				k := key{strings.Replace(kind, "recv", "send", 1), s.Seq}
				both := found[k]
				both[i] = s
				found[k] = both
			}
		}
	}
	for k, s := range found {
		assert.LessOrEqual(t, s[0].Start, s[1].End, k)
		assert.True(t, k.kind == "send" || s[1].Start <= s[0].End, k)
	}
	assert.Len(t, found, 40)
}

func TestTraceMisuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	good := file("good.json",
		`{"otherData":{"start":"1"},"traceEvents":[{"name":"process_labels","ph":"M","pid":3,"args":{"labels":"host a"}}]}`)
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
	assert.Contains(t, stdout, "1 rank, 0.000 ms\n")
}
