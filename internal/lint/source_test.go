package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// moduleRoot is the root of the module, seen from this directory.
const moduleRoot = "../.."

// source is one parsed Go file.
type source struct {
	path      string // slash-separated, relative to the module's root
	dir       string // directory of path, "." at the root
	text      []byte
	file      *ast.File
	fset      *token.FileSet
	test      bool // a _test.go file
	generated bool
	nested    bool // belongs to a module of its own below this one
}

// at formats a finding for a position in the file.
func (s *source) at(pos token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", s.path, s.line(pos)) + fmt.Sprintf(format, args...)
}

// line is the line of a position in the file, in lines as written.
func (s *source) line(pos token.Pos) int {
	return s.fset.PositionFor(pos, false).Line
}

// excused reports whether the line of pos carries a comment "//marker: reason".
func (s *source) excused(pos token.Pos, marker string) bool {
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			reason, ok := strings.CutPrefix(c.Text, "//"+marker+":")
			if ok && strings.TrimSpace(reason) != "" && s.line(c.Pos()) == s.line(pos) {
				return true
			}
		}
	}
	return false
}

// parse makes a source from a path relative to the root and the file's text.
func parse(fset *token.FileSet, name string, text []byte) (*source, error) {
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &source{
		path:      name,
		dir:       path.Dir(name),
		text:      text,
		file:      file,
		fset:      fset,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(file),
	}, nil
}

// load reads every Go file below root that the go command would look at, and
// those of modules nested in it.
func load(root string) ([]*source, error) {
	var sources []*source
	var nested []string
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		hidden := strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_")
		switch {
		case name == ".":
			return nil
		case entry.IsDir() && (hidden || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir():
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				nested = append(nested, name)
			}
			return nil
		case hidden || path.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s, err := parse(fset, name, text)
		if err != nil {
			return err
		}
		s.nested = slices.ContainsFunc(nested, func(dir string) bool { return within(s.dir, dir) })
		sources = append(sources, s)
		return nil
	})
	return sources, err
}

// within reports whether the path is dir or below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

var loadModule = sync.OnceValues(func() ([]*source, error) { return load(moduleRoot) })

// moduleSources are the parsed files of this module, read once.
func moduleSources(t *testing.T) []*source {
	t.Helper()
	sources, err := loadModule()
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	return sources
}

// fixture parses files given as path and text.
func fixture(t *testing.T, files map[string]string) []*source {
	t.Helper()
	var sources []*source
	fset := token.NewFileSet()
	for name, text := range files {
		s, err := parse(fset, name, []byte(text))
		require.NoError(t, err)
		sources = append(sources, s)
	}
	slices.SortFunc(sources, func(a, b *source) int { return strings.Compare(a.path, b.path) })
	return sources
}

// report fails the test with one line per finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}
