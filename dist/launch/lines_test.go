package launch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLineWriter(t *testing.T) {
	cases := []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"a\n"}, "[7] a\n"},
		{[]string{"a\nb\n\n"}, "[7] a\n[7] b\n[7] \n"},
		{[]string{"a", "b", "c\nd", "e\n"}, "[7] abc\n[7] de\n"},
		{[]string{"a\nrest"}, "[7] a\n[7] rest\n"},
		{[]string{strings.Repeat("x", maxLine), "y", "z\n"}, "[7] " + strings.Repeat("x", maxLine) + "y\n[7] z\n"},
	}
	for i, c := range cases {
		var got bytes.Buffer
		w := &lineWriter{out: &output{}, to: &got, prefix: "[7] "}
		for _, s := range c.writes {
			n, err := w.Write([]byte(s))
			assert.NoError(t, err)
			assert.Equal(t, len(s), n)
		}
		w.Flush()
		assert.True(t, c.want == got.String(), "case %d: %.60q", i, got.String())
	}
}

// TestLineWriterShared writes from several goroutines in odd pieces: no line may be torn.
func TestLineWriterShared(t *testing.T) {
	const ranks, lines = 8, 300
	var got bytes.Buffer
	var out output
	var all sync.WaitGroup
	for rank := range ranks {
		all.Go(func() {
			w := &lineWriter{out: &out, to: &got, prefix: fmt.Sprintf("[%d] ", rank)}
			for i := range lines {
				s := fmt.Sprintf("rank %d line %d\n", rank, i)
				cut := i % len(s)
				_, _ = w.Write([]byte(s[:cut]))
				_, _ = w.Write([]byte(s[cut:]))
			}
		})
	}
	all.Wait()
	requireLines(t, got.String(), ranks, lines)
}

// requireLines wants "[r] rank r line i" for each rank in order, and nothing else.
func requireLines(t *testing.T, text string, ranks, lines int) {
	t.Helper()
	next := make([]int, ranks)
	for line := range strings.Lines(text) {
		var prefix, rank, i int
		n, err := fmt.Sscanf(line, "[%d] rank %d line %d\n", &prefix, &rank, &i)
		require.True(t, n == 3 && err == nil, "%q", line)
		require.Equal(t, prefix, rank, "%q", line)
		require.Equal(t, next[rank], i, "%q", line)
		next[rank]++
	}
	for rank, n := range next {
		require.Equal(t, lines, n, "rank %d", rank)
	}
}

type brokenWriter struct{ error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.error }

func TestLineWriterKeepsFirstError(t *testing.T) {
	var out output
	first := errors.New("disk full")
	w := &lineWriter{out: &out, to: brokenWriter{first}}
	n, err := w.Write([]byte("a\n"))
	assert.NoError(t, err)
	assert.Equal(t, 2, n)
	w.to = brokenWriter{errors.New("later")}
	_, _ = w.Write([]byte("a\n"))
	assert.Equal(t, first, out.err)
}
