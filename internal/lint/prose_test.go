package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxProse is the longest line of prose in Markdown, in characters: a longer one is hard to read in a terminal and in a diff.
const maxProse = 140

// checkProse finds lines that are too long, and code that is broken over two lines, which nobody can search for or copy. Tables, code,
// pictures and what has no space to break at may be longer.
func checkProse(name, text string) []string {
	var findings []string
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		other := fenced || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "![") ||
			!strings.Contains(strings.TrimSpace(line), " ")
		if n := utf8.RuneCountInString(line); n > maxProse && !other {
			findings = append(findings, fmt.Sprintf("%s:%d: a line of %d characters, at most %d", name, i+1, n, maxProse))
		}
		if !fenced && strings.Count(line, "`")%2 != 0 {
			findings = append(findings, fmt.Sprintf("%s:%d: code that does not end in its line", name, i+1))
		}
	}
	return findings
}

func TestProse(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(moduleRoot, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != moduleRoot && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(moduleRoot, file)
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".md" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		pages++
		report(t, checkProse(filepath.ToSlash(rel), string(text)))
		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, pages, 20)
}

func TestCheckProse(t *testing.T) {
	long := strings.Repeat("word ", 29) // 145
	want := []string{"f:2: a line of 145 characters, at most 140"}
	assert.Equal(t, want, checkProse("f", "short\n"+long))
	assert.Equal(t, want, checkProse("f", "short\n- "+long[2:]))
	assert.Equal(t, []string{"f:4: a line of 145 characters, at most 140"}, checkProse("f", "```\n"+long+"\n```\n"+long))
	assert.Equal(t, []string{"f:1: code that does not end in its line"}, checkProse("f", "a `b"))
	for _, fine := range []string{
		"| " + long, "    " + long, "![" + long + "](x)", strings.Repeat("x", 200), long[:140], strings.Repeat("é", 140),
	} {
		assert.Empty(t, checkProse("f", fine), fine)
	}
}
