package data

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

func TestLines(t *testing.T) {
	for text, want := range map[string][]string{
		"a":                        {"a"},
		"a\nb\n":                   {"a", "b"},
		"\n\na\r\n\r\nb\rc":        {"", "", "a", "", "b\rc"},
		"\xef\xbb\xbfäöü\n":        {"äöü"},
		"a\r":                      {"a"},
		"a\r\rb":                   {"a", "", "b"},
		strings.Repeat("x", 1<<17): {strings.Repeat("x", 1<<17)},
	} {
		lines, err := Lines(writeFile(t, t.TempDir(), "t.txt", []byte(text)))
		require.NoError(t, err)
		assert.Equal(t, want, lines, "%.20q", text)
	}
	for text, want := range map[string]string{
		"":               "no lines",
		"\xef\xbb\xbf":   "no lines",
		"a\nb\xffc\n":    "line 2 " + latin1,
		"\xff\xfea\x00":  utf16,
		"a\nb\x00\n":     "line 2 " + zero,
		"a\x00\n\x00":    "line 1 " + zero,
		"\x1f\x8b\x08ab": "the file is compressed: decompress it with gunzip (line 1 " + latin1 + ")",
		"version https://git-lfs.github.com/spec/v1\n": "this is a Git LFS pointer in place of the file: run git lfs pull in its folder " +
			"(no text)",
		"a\nb\n\xc3\n": "line 3 " + latin1,
	} {
		file := writeFile(t, t.TempDir(), "t.txt", []byte(text))
		_, err := Lines(file)
		assert.EqualError(t, err, "data: "+file+": "+want)
	}
	_, err := Lines(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = Lines(t.TempDir())
	assert.ErrorContains(t, err, "is not a regular file")
}

// A file of empty lines would take 16 bytes and more for each byte.
func TestLinesBomb(t *testing.T) {
	text := bytes.Repeat([]byte("\n"), 20_000_000)
	reliability.Bounded(t, len(text), func() {
		_, err := parseLines(text)
		require.ErrorContains(t, err, "20000001 lines: it would take more than")
	})
	text = bytes.Repeat([]byte("ab\n"), 1_000_000)
	reliability.Bounded(t, len(text), func() {
		lines, err := parseLines(text)
		require.NoError(t, err)
		require.Len(t, lines, 1_000_000)
	})
}

// No byte of a text is lost, except line ends.
func FuzzLines(f *testing.F) {
	for _, text := range []string{"a\nb", "a\r\rb\r", "a\r\n\nb\n", "\xef\xbb\xbfa", "\xff\xfe", "\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var lines []string
		var err error
		reliability.Bounded(t, len(text), func() { lines, err = parseLines(text) })
		if err != nil {
			return
		}
		want := strings.ReplaceAll(strings.TrimPrefix(string(text), "\xef\xbb\xbf"), "\r\n", "\n")
		if !strings.Contains(want, "\n") { // lines end in CR
			want = strings.ReplaceAll(want, "\r", "\n")
		}
		require.Equal(t, strings.TrimSuffix(want, "\n"), strings.Join(lines, "\n"))
	})
}
