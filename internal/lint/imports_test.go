package lint

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// checkImports compares the imports of every file with the table.
func checkImports(sources []*source, table map[string]row) []string {
	var findings []string
	unknown := map[string]bool{}
	for _, s := range sources {
		if s.nested {
			continue
		}
		external := s.test && strings.HasSuffix(s.file.Name.Name, "_test")
		r, ok := findRow(table, s.dir)
		if !ok && !unknown[s.dir] {
			unknown[s.dir] = true
			findings = append(findings, s.at(s.file.Package, "package %s is not in the import table", s.dir))
		}
		for _, spec := range s.file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			switch {
			case err != nil:
				findings = append(findings, s.at(spec.Pos(), "import %s: %v", spec.Path.Value, err))
			case name == "C":
				findings = append(findings, s.at(spec.Pos(), "%s uses cgo", s.dir))
			case ok && !external && !allowed(r, name, s.test):
				findings = append(findings, s.at(spec.Pos(), "%s may not import %s", s.dir, name))
			}
		}
	}
	return findings
}

// findRow is the row of a package: its own, else that of the nearest "/..." key.
func findRow(table map[string]row, dir string) (row, bool) {
	if r, ok := table[dir]; ok {
		return r, true
	}
	for at := dir; at != ""; {
		if r, ok := table[at+"/..."]; ok {
			return r, true
		}
		at = at[:max(strings.LastIndexByte(at, '/'), 0)]
	}
	return row{}, false
}

// allowed reports whether a row permits an import.
func allowed(r row, name string, test bool) bool {
	if test && slices.ContainsFunc(strings.Fields(testOnly), func(p string) bool { return within(name, p) }) {
		return true
	}
	if within(name, modulePath) {
		own := strings.TrimPrefix(strings.TrimPrefix(name, modulePath), "/")
		return matchOwn(everywhere+" "+r.own, own)
	}
	first, _, _ := strings.Cut(name, "/")
	if !strings.Contains(first, ".") {
		return true // standard library
	}
	for _, p := range strings.Fields(r.others) {
		if p == "..." || within(name, p) {
			return true
		}
	}
	return false
}

// matchOwn matches a package of this module against a list of patterns.
func matchOwn(patterns, name string) bool {
	for _, p := range strings.Fields(patterns) {
		dir, tree := strings.CutSuffix(p, "/...")
		if p == "..." || name == dir || tree && within(name, dir) {
			return true
		}
	}
	return false
}

func TestImports(t *testing.T) {
	report(t, checkImports(moduleSources(t), table))
}

// TestTable keeps the table itself honest: what a row allows must have a row.
func TestTable(t *testing.T) {
	for pkg, r := range table {
		for _, own := range strings.Fields(r.own) {
			if dir, tree := strings.CutSuffix(own, "/..."); own != "..." && !tree {
				_, ok := table[dir]
				assert.True(t, ok, "%s may import %s, which has no row", pkg, own)
			}
		}
	}
}

func TestCheckImports(t *testing.T) {
	rules := map[string]row{
		"a":       {},
		"b":       {own: "a", others: "golang.org/x/sys/cpu"},
		"c":       {own: "in/...", others: "golang.org/x/sys"},
		"in/x":    {},
		"cmd":     {},
		"cmd/...": {own: "...", others: "..."},
	}
	own := func(p string) string { return `"` + modulePath + "/" + p + `"` }
	for _, c := range []struct{ name, path, clause, imports, want string }{
		{"standard library", "a/a.go", "a", `"go/ast"`, ""},
		{"own, allowed", "b/b.go", "b", own("a"), ""},
		{"own, wrong direction", "a/a.go", "a", own("b"), "a/a.go:2: a may not import " + modulePath + "/b"},
		{"own, below an allowed one", "b/b.go", "b", own("a/sub"), "b/b.go:2: b may not import " + modulePath + "/a/sub"},
		{"own, tree", "c/c.go", "c", own("in/x"), ""},
		{"own, name only begins like the tree", "c/c.go", "c", own("inner"), "c/c.go:2: c may not import " + modulePath + "/inner"},
		{"other module, its package", "c/c.go", "c", `"golang.org/x/sys/unix"`, ""},
		{"other module, only one package", "b/b.go", "b", `"golang.org/x/sys/unix"`, "b/b.go:2: b may not import golang.org/x/sys/unix"},
		{"blank import counts", "a/a.go", "a", `_ "example.com/x"`, "a/a.go:2: a may not import example.com/x"},
		{"testify outside tests", "a/a.go", "a", `"github.com/stretchr/testify/require"`,
			"a/a.go:2: a may not import github.com/stretchr/testify/require"},
		{"testify in a test", "a/a_test.go", "a", `"github.com/stretchr/testify/require"`, ""},
		{"in-package test", "a/a_test.go", "a", own("b"), "a/a_test.go:2: a may not import " + modulePath + "/b"},
		{"external test", "a/a_test.go", "a_test", own("b"), ""},
		{"name ends in _test, file does not", "a/a.go", "a_test", own("b"), "a/a.go:2: a may not import " + modulePath + "/b"},
		{"anything", "cmd/x/main.go", "main", `"example.com/x"`, ""},
		{"own row before the tree's", "cmd/main.go", "main", `"example.com/x"`, "cmd/main.go:2: cmd may not import example.com/x"},
		{"cgo", "cmd/x/main.go", "main", `"C"`, "cmd/x/main.go:2: cmd/x uses cgo"},
		{"not in the table", "new/new.go", "new", `"fmt"`, "new/new.go:1: package new is not in the import table"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{c.path: "package " + c.clause + "\nimport " + c.imports + "\n"}
			assert.Equal(t, c.want, strings.Join(checkImports(fixture(t, files), rules), "\n"))
		})
	}
}
