package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// texts are the string literals of the module's programs and packages, those that are added up as one, with "…" in place of verbs.
func texts(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(entry.Name(), ".") && name != root
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (hidden || entry.Name() == "testdata" || entry.Name() == "gen"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			text, ok := constant(e)
			if ok {
				list = append(list, plain(text))
			}
			return !ok
		})
		return nil
	})
	require.NoError(t, err)
	return list
}

// constant is the value of a string literal, or of several that are added up.
func constant(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		if x.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(x.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		a, okA := constant(x.X)
		b, okB := constant(x.Y)
		return a + b, okA && okB
	}
	return "", false
}

var verb = regexp.MustCompile(`%[-+# 0-9.]*(\[\d\])?[a-zA-Z]`)

// plain puts "…" where fmt puts something in.
func plain(format string) string { return verb.ReplaceAllString(format, "…") }

// Every text in the left column of a table of docs/troubleshooting.md, and of the second table of docs/TYPES.md, is in the source.
func TestErrorTexts(t *testing.T) {
	all := strings.Join(texts(t), "\n")
	checked := 0
	for _, page := range []string{"docs/troubleshooting.md", "docs/TYPES.md"} {
		for _, r := range rows(t, page) {
			for _, m := range code.FindAllStringSubmatch(r.cells[0], -1) {
				if page == "docs/TYPES.md" && m[1] == "GlobalMean" {
					continue // a word of several messages
				}
				assert.True(t, strings.Contains(all, m[1]), "%s: nothing in the source says %q", r.at, m[1])
				checked++
			}
		}
	}
	assert.Greater(t, checked, 40)
}

func TestPlain(t *testing.T) {
	assert.Equal(t, "rank … of …: … is … and 100%", plain("rank %d of %[2]s: %-5.2f is %+v and 100%"))
	for text, want := range map[string]string{`"a" + "b" + "c"`: "abc", "`a`": "a"} {
		e, err := parser.ParseExpr(text)
		require.NoError(t, err)
		got, ok := constant(e)
		assert.True(t, ok)
		assert.Equal(t, want, got)
	}
	e, err := parser.ParseExpr(`"a" + b`)
	require.NoError(t, err)
	_, ok := constant(e)
	assert.False(t, ok)
}

// Every variable of the environment that a page names is one that some Go file names, or .ci/run.
func TestVariables(t *testing.T) {
	var source strings.Builder
	source.WriteString(read(t, ".ci/run"))
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || filepath.Base(filepath.Dir(name)) == "docs" {
			return err
		}
		source.WriteString(read(t, strings.TrimPrefix(filepath.ToSlash(name), root)))
		return nil
	})
	require.NoError(t, err)
	variable, checked := regexp.MustCompile(`\bRINGO_[A-Z_]*[A-Z]\b`), 0
	for _, page := range pages(t) {
		for _, name := range variable.FindAllString(read(t, page), -1) {
			assert.True(t, strings.Contains(source.String(), name), "%s: no program has %s", page, name)
			checked++
		}
	}
	assert.Greater(t, checked, 50)
}
