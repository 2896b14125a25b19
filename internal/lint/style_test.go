package lint

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// maxFunctionLines counts from the line of func to that of the closing brace.
const maxFunctionLines = 70

// checkLength finds functions that are too long. A function literal counts
// with the function around it.
func checkLength(sources []*source) []string {
	var findings []string
	for _, s := range sources {
		if s.generated {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			name := "function literal"
			switch f := n.(type) {
			case *ast.FuncDecl:
				name = f.Name.Name
			case *ast.FuncLit:
			default:
				return true
			}
			if lines := s.line(n.End()-1) - s.line(n.Pos()) + 1; lines > maxFunctionLines {
				findings = append(findings, s.at(n.Pos(), "%s has %d lines, at most %d", name, lines, maxFunctionLines))
			}
			return false
		})
	}
	return findings
}

// checkSleep finds time.Sleep outside tests.
func checkSleep(sources []*source) []string {
	var findings []string
	for _, s := range sources {
		name := importName(s.file, "time")
		if s.test || name == "" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && !s.excused(n.Pos(), "sleep") {
				findings = append(findings, s.at(n.Pos(), `time.Sleep without a "//sleep: reason" comment`))
			}
			return true
		})
	}
	return findings
}

// checkClock finds times of package dist and those below it that are numbers. They would be of the clock on the wall, which
// somebody may set: then waits end at once, or never.
func checkClock(sources []*source) []string {
	var findings []string
	for _, s := range sources {
		if s.test || !strings.HasPrefix(s.path, "dist/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Unix", "UnixNano", "UnixMicro", "UnixMilli"}, sel.Sel.Name) {
				findings = append(findings, s.at(n.Pos(), "time from the clock on the wall; take time.Since"))
			}
			return true
		})
	}
	return findings
}

// importName is the name by which a file knows a package, "" if it does not.
func importName(file *ast.File, pkg string) string {
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err != nil || name != pkg {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(pkg)
	}
	return ""
}

// checkDocs finds exported names and packages without documentation.
func checkDocs(sources []*source) []string {
	var findings []string
	packages := map[string][]*source{}
	for _, s := range sources {
		if s.test {
			continue
		}
		packages[s.dir] = append(packages[s.dir], s)
		if s.generated {
			continue
		}
		for _, decl := range s.file.Decls {
			for _, name := range undocumented(decl) {
				findings = append(findings, s.at(name.Pos(), "%s has no doc comment", name.Name))
			}
		}
	}
	for _, files := range packages {
		if finding := checkPackageDoc(files); finding != "" {
			findings = append(findings, finding)
		}
	}
	slices.Sort(findings)
	return findings
}

// checkPackageDoc wants "Package name …" in doc.go, or any package comment in
// a command.
func checkPackageDoc(files []*source) string {
	first := files[0]
	name := first.file.Name.Name
	for _, s := range files {
		doc := s.file.Doc.Text()
		if name == "main" && doc != "" {
			return ""
		}
		if path.Base(s.path) == "doc.go" && strings.HasPrefix(doc, "Package "+name+" ") {
			return ""
		}
	}
	if name == "main" {
		return first.at(first.file.Package, "command %s has no package comment", first.dir)
	}
	return first.at(first.file.Package, `%s has no doc.go with a comment that begins "Package %s "`, first.dir, name)
}

// undocumented lists the exported names of a declaration without a comment.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc.Text() == "" && (d.Recv == nil || token.IsExported(receiver(d.Recv))) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var names []*ast.Ident
		for _, spec := range d.Specs {
			names = append(names, undocumentedSpec(d, spec)...)
		}
		return names
	}
	return nil
}

// undocumentedSpec is undocumented for a part of a declaration. One comment on
// a group of constants or variables serves the group, but not one of types.
func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) []*ast.Ident {
	group := d.Doc.Text()
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if d.Lparen.IsValid() {
			group = ""
		}
		if s.Name.IsExported() && group+s.Doc.Text() == "" {
			return []*ast.Ident{s.Name}
		}
	case *ast.ValueSpec:
		if group+s.Doc.Text()+s.Comment.Text() == "" {
			return slices.DeleteFunc(slices.Clone(s.Names), func(n *ast.Ident) bool { return !n.IsExported() })
		}
	}
	return nil
}

// receiver is the name of the type that a method belongs to.
func receiver(recv *ast.FieldList) string {
	for t := recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.ParenExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func TestFunctionLength(t *testing.T) { report(t, checkLength(moduleSources(t))) }

func TestClock(t *testing.T) { report(t, checkClock(moduleSources(t))) }

func TestSleep(t *testing.T) { report(t, checkSleep(moduleSources(t))) }

func TestDocs(t *testing.T) { report(t, checkDocs(moduleSources(t))) }

func TestCheckLength(t *testing.T) {
	body := func(lines int) string { return strings.Repeat("\n", lines-1) }
	generated := "// Code generated by x. DO NOT EDIT.\n\n"
	for _, c := range []struct{ name, path, text, want string }{
		{"70 lines", "a/a.go", "package a\nfunc F() {" + body(70) + "}\n", ""},
		{"71 lines", "a/a.go", "package a\nfunc F() {" + body(71) + "}\n", "a/a.go:2: F has 71 lines, at most 70"},
		{"the doc comment does not count", "a/a.go", "package a\n// F\n// is\nfunc F() {" + body(70) + "}\n", ""},
		{"tests too", "a/a_test.go", "package a\nfunc F() {" + body(71) + "}\n", "a/a_test.go:2: F has 71 lines, at most 70"},
		{"literal of a variable", "a/a.go", "package a\nvar f = func() {" + body(71) + "}\n",
			"a/a.go:2: function literal has 71 lines, at most 70"},
		{"line directive", "a/a.go", "package a\nfunc F() {\n//line x.go:1\n" + body(71) + "}\n", "a/a.go:2: F has 73 lines, at most 70"},
		{"generated", "a/a.go", generated + "package a\nfunc F() {" + body(71) + "}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, strings.Join(checkLength(fixture(t, map[string]string{c.path: c.text})), "\n"))
		})
	}
}

func TestCheckClock(t *testing.T) {
	const text = "package a\nimport \"time\"\nvar a = time.Now().UnixNano()\nvar b = time.Unix(0, a)\n"
	for path, want := range map[string]int{"dist/a/a.go": 2, "dist/a/a_test.go": 0, "train/a.go": 0} {
		assert.Len(t, checkClock(fixture(t, map[string]string{path: text})), want, path)
	}
}

func TestCheckSleep(t *testing.T) {
	const finding = `a/a.go:3: time.Sleep without a "//sleep: reason" comment`
	for _, c := range []struct{ name, path, imports, line, want string }{
		{"bare", "a/a.go", `"time"`, "func f() { time.Sleep(1) }", finding},
		{"as a value", "a/a.go", `"time"`, "var f = time.Sleep", finding},
		{"renamed", "a/a.go", `clock "time"`, "func f() { clock.Sleep(1) }", finding},
		{"no reason", "a/a.go", `"time"`, "func f() { time.Sleep(1) } //sleep:", finding},
		{"reason on another line", "a/a.go", `"time"`, "func f() { time.Sleep(1) }\n//sleep: backoff", finding},
		{"reason", "a/a.go", `"time"`, "func f() { time.Sleep(1) } //sleep: backoff", ""},
		{"test", "a/a_test.go", `"time"`, "func f() { time.Sleep(1) }", ""},
		{"somebody else's", "a/a.go", `time "example.com/clock"`, "func f() { time.Sleep(1) }", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "package a\nimport " + c.imports + "\n" + c.line + "\n"
			assert.Equal(t, c.want, strings.Join(checkSleep(fixture(t, map[string]string{c.path: text})), "\n"))
		})
	}
}

func TestCheckDocs(t *testing.T) {
	for _, c := range []struct{ name, code, want string }{
		{"function", "func F() {}", "F"},
		{"documented", "// F does.\nfunc F() {}", ""},
		{"directive only", "//go:noinline\nfunc F() {}", "F"},
		{"unexported", "func f() {}", ""},
		{"method", "func (t *T) M() {}", "M"},
		{"method of a generic type", "func (t T[A, B]) M() {}", "M"},
		{"method of an unexported type", "func (t *t[A]) M() {}", ""},
		{"type", "type T int", "T"},
		{"types in a group need their own", "// Types.\ntype (\n\tT int\n\t// U is.\n\tU int\n)", "T"},
		{"constants in a group share one", "// Kinds.\nconst (\n\tA = iota\n\tB\n)", ""},
		{"constants without", "const (\n\tA = iota\n\tB // B is.\n\tc\n)", "A"},
		{"variables", "var a, B, C int", "B C"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"a/doc.go": "// Package a is.\npackage a\n\n" + c.code + "\n"}
			var names []string
			for _, finding := range checkDocs(fixture(t, files)) {
				name, ok := strings.CutSuffix(finding[strings.Index(finding, " ")+1:], " has no doc comment")
				assert.True(t, ok, finding)
				names = append(names, name)
			}
			assert.Equal(t, c.want, strings.Join(names, " "))
		})
	}
}

func TestCheckPackageDoc(t *testing.T) {
	const missing = `a/a.go:1: a has no doc.go with a comment that begins "Package a "`
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"doc.go", map[string]string{"a/a.go": "package a", "a/doc.go": "// Package a is.\npackage a"}, ""},
		{"no doc.go", map[string]string{"a/a.go": "package a"}, missing},
		{"doc.go without a comment", map[string]string{"a/a.go": "package a", "a/doc.go": "package a"}, missing},
		{"doc.go that names another", map[string]string{"a/a.go": "package a", "a/doc.go": "// Package b is.\npackage a"}, missing},
		{"tests only", map[string]string{"a/a_test.go": "package a"}, ""},
		{"command", map[string]string{"a/a.go": "package main", "a/b.go": "// Command a is.\npackage main"}, ""},
		{"command without", map[string]string{"a/a.go": "package main"}, "a/a.go:1: command a has no package comment"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, strings.Join(checkDocs(fixture(t, c.files)), "\n"))
		})
	}
}
