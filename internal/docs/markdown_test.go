package docs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the root of the module, seen from this directory.
const root = "../../"

var update = flag.Bool("update", false, "write what the pages must print into them")

// block is a fenced or indented block of a page.
type block struct {
	page    string // relative to the root
	line    int    // of its first line
	heading string // above it
	lang    string // behind the fence; "    " for an indented block
	text    string
}

// read returns the text of a file of this module.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(root + name)
	require.NoError(t, err)
	return string(text)
}

// pages are README.md, CONTRIBUTING.md and the pages of docs.
func pages(t *testing.T) []string {
	t.Helper()
	list := []string{"README.md", "CONTRIBUTING.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md"} {
		files, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, f := range files {
			list = append(list, filepath.ToSlash(strings.TrimPrefix(f, filepath.FromSlash(root))))
		}
	}
	return list
}

// blocks returns the code blocks of a page.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	var list []block
	var now *block
	heading, blank := "", true
	fenced := false
	for i, line := range strings.Split(read(t, page), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		indented := !fenced && strings.HasPrefix(line, "    ") && (blank || now != nil)
		switch {
		case isFence && fenced:
			list, now, fenced = append(list, *now), nil, false
		case isFence:
			now, fenced = &block{page, i + 2, heading, fence, ""}, true
		case indented && now == nil:
			now = &block{page, i + 1, heading, "    ", line[4:] + "\n"}
		case indented:
			now.text += line[4:] + "\n"
		case fenced:
			now.text += line + "\n"
		default:
			if now != nil {
				list, now = append(list, *now), nil
			}
			if title := strings.TrimLeft(line, "#"); title != line {
				heading = strings.TrimSpace(title)
			}
		}
		blank = strings.TrimSpace(line) == ""
	}
	require.False(t, fenced, "%s ends in a block", page)
	return list
}

// only returns the blocks of a language, below a heading (if it is not empty).
func only(list []block, lang, heading string) []block {
	var found []block
	for _, b := range list {
		if b.lang == lang && (heading == "" || b.heading == heading) {
			found = append(found, b)
		}
	}
	return found
}

// region checks, or with -update writes, the block between <!-- name --> and <!-- /name --> of a page.
func region(t *testing.T, page, name, want string) {
	t.Helper()
	text := read(t, page)
	begin, end := "<!-- "+name+" -->\n```\n", "```\n<!-- /"+name+" -->"
	before, rest, ok := strings.Cut(text, begin)
	require.True(t, ok, "%s has no region %s", page, name)
	got, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "the region %s of %s does not end", name, page)
	if *update {
		require.NoError(t, os.WriteFile(root+page, []byte(before+begin+want+end+after), 0o666))
		return
	}
	require.Equal(t, want, got, "%s, %s: run go test ./internal/docs -update", page, name)
}
