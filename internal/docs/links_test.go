package docs

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
)

// link is a link or a picture of Markdown.
var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// prose returns the lines of a page without code: what stands in blocks and spans is left out.
func prose(t *testing.T, page string) string {
	t.Helper()
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(read(t, page)) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		} else if !fenced {
			b.WriteString(code.ReplaceAllString(line, ""))
		}
	}
	return b.String()
}

// anchor is what a heading of Markdown can be linked by, as GitHub makes it.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_':
			b.WriteRune(r)
		}
	}
	return b.String()
}

// anchors are those of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	list := map[string]bool{}
	for line := range strings.Lines(read(t, page)) {
		if title := strings.TrimLeft(line, "#"); title != line {
			list[anchor(strings.TrimSpace(title))] = true
		}
	}
	return list
}

// Every link inside the repository leads to a file that is there, and to a heading that the page has.
func TestLinks(t *testing.T) {
	checked := 0
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(root + target); !assert.NoError(t, err, "%s links to %s", page, m[1]) {
				continue
			}
			if heading != "" {
				assert.True(t, anchors(t, target)[heading], "%s links to %s, and %s has no such heading", page, m[1], target)
			}
			checked++
		}
	}
	assert.Greater(t, checked, 100)
}

// docs/README.md links every page of docs, and README.md the index.
func TestIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/adr/0") || page == "docs/README.md" {
			continue // docs/adr/README.md lists the decisions
		}
		name, inside := strings.CutPrefix(page, "docs/")
		if !inside {
			name = "../" + page
		}
		assert.True(t, strings.Contains(index, "]("+name+")"), "docs/README.md does not link %s", page)
	}
	readme := read(t, "README.md")
	assert.Contains(t, readme, "](docs/README.md)")
	assert.LessOrEqual(t, strings.Count(readme, "\n"), 110, "README.md is the first page: what else there is has a page in docs")
}

func TestAnchor(t *testing.T) {
	assert.Equal(t, "data-parallel-ddp", anchor("Data parallel (`ddp`)"))
	assert.Equal(t, "coming-from-pytorch", anchor("Coming from PyTorch"))
	assert.Equal(t, "is-it-right", anchor("Is it right?"))
}
