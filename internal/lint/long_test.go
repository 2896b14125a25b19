package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// longHome is the file that reads longVariable, in a function of the name longSkip. The tests of the long runs call that or longForm, which
// calls it. The variable is written in parts, so that this file may be read too.
const (
	longHome     = "internal/reliability/long.go"
	longVariable = "RINGO_" + "LONG"
	longSkip     = "SkipUnlessLong"
	longForm     = "AsLong"
)

// checkLong finds readers of longVariable outside longHome, tests whose name begins with TestLong that call neither longSkip nor longForm,
// and calls of these in other functions.
func checkLong(sources []*source) []string {
	var findings []string
	for _, s := range sources {
		if s.path == longHome {
			continue
		}
		for _, d := range s.file.Decls {
			fn, isFunc := d.(*ast.FuncDecl)
			long := isFunc && s.test && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "TestLong")
			calls := false
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.BasicLit:
					if text, _ := strconv.Unquote(n.Value); text == longVariable {
						findings = append(findings, s.at(n.Pos(), "uses %q, which only %s reads", longVariable, longHome))
					}
				case *ast.SelectorExpr:
					if n.Sel.Name != longSkip && n.Sel.Name != longForm {
						break
					}
					if calls = true; !long {
						findings = append(findings, s.at(n.Pos(), "uses %s outside a test whose name begins with TestLong", n.Sel.Name))
					}
				}
				return true
			})
			if long && !calls {
				findings = append(findings, s.at(fn.Pos(), "%s does not call reliability.%s", fn.Name.Name, longSkip))
			}
		}
	}
	return findings
}

func TestNamesOfLongRuns(t *testing.T) {
	report(t, checkLong(moduleSources(t)))
	report(t, checkLongForms(moduleSources(t)))
}

// function is a function of a package's tests, or its methods of one name.
type function struct {
	file        *source
	pos         token.Pos
	uses        map[string]bool // names of others; those of methods begin with a point
	short, seen bool            // it leaves cases to a long form, and a test of the long runs names it
}

// add notes what fn uses.
func (f *function) add(fn *ast.FuncDecl) {
	local := map[string]bool{}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				local[name.Name] = true
			}
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				if name, ok := x.(*ast.Ident); ok && n.Tok == token.DEFINE {
					local[name.Name] = true
				}
			}
		case *ast.SelectorExpr:
			of, _ := n.X.(*ast.Ident)
			f.short = f.short || of != nil && of.Name == "reliability" && n.Sel.Name == "Long"
			f.uses["."+n.Sel.Name] = true
		case *ast.Ident:
			f.uses[n.Name] = f.uses[n.Name] || !local[n.Name]
		}
		return true
	})
}

// checkLongForms finds tests which leave cases to a long form, themselves or by others of their package, and have none: TestX has
// TestLongX, or another test of the long runs names it, or a comment //long: in its first line says why it needs none.
func checkLongForms(sources []*source) []string {
	packages := map[string]map[string]*function{}
	for _, s := range sources {
		of := s.dir + " " + s.file.Name.Name
		if packages[of] == nil {
			packages[of] = map[string]*function{}
		}
		for _, d := range s.file.Decls {
			if fn, is := d.(*ast.FuncDecl); is && s.test {
				name := map[bool]string{true: "."}[fn.Recv != nil] + fn.Name.Name
				if packages[of][name] == nil {
					packages[of][name] = &function{file: s, pos: fn.Pos(), uses: map[string]bool{}}
				}
				packages[of][name].add(fn)
			}
		}
	}
	var findings []string
	for _, all := range packages {
		for again := true; again; {
			again = false
			for name, f := range all {
				for used, is := range f.uses {
					if g := all[used]; g != nil && g != f && is {
						again = again || g.short && !f.short
						f.short, g.seen = f.short || g.short, g.seen || strings.HasPrefix(name, "TestLong")
					}
				}
			}
		}
		for name, f := range all {
			x, test := strings.CutPrefix(name, "Test")
			if test && f.short && !f.seen && !strings.HasPrefix(x, "Long") && all["TestLong"+x] == nil && !f.file.excused(f.pos, "long") {
				findings = append(findings, f.file.at(f.pos, "%s leaves cases to a long form: write TestLong%s", name, x))
			}
		}
	}
	slices.Sort(findings)
	return findings
}

func TestCheckLongForms(t *testing.T) {
	const short = "package p\nfunc TestX(t *testing.T) { x(t) }\n"
	for name, c := range map[string]struct{ code, want string }{
		"none": {"func x(t *testing.T) { reliability.Long(t) }", "a_test.go:2: TestX leaves cases to a long form: write TestLongX"},
		"by a method": {"func x(t *testing.T) { (&a{}).b(t) }\nfunc (*a) b(t *testing.T) { reliability.Long(t) }",
			"a_test.go:2: TestX leaves cases to a long form: write TestLongX"},
		"one":            {"func x(t *testing.T) { reliability.Long(t) }\nfunc TestLongX(t *testing.T) {}", ""},
		"named":          {"func x(t *testing.T) { reliability.Long(t) }\nfunc TestLongAll(t *testing.T) { reliability.AsLong(t, TestX) }", ""},
		"no cases":       {"func x(t *testing.T) {}", ""},
		"of another one": {"func x(t *testing.T) { b := 1; a(b) }\nfunc b(t *testing.T) { reliability.Long(t) }", ""},
		"excused":        {"func x(t *testing.T) {}\nfunc TestY(t *testing.T) { //long: it has all\n reliability.Long(t) }", ""},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, strings.Join(checkLongForms(fixture(t, map[string]string{"a_test.go": short + c.code})), "\n"))
		})
	}
}

func TestCheckLong(t *testing.T) {
	const head = "package p\nimport \"os\"\nfunc x(t *testing.T) {}\n"
	for name, c := range map[string]struct {
		file, code, want string
	}{
		"called":          {"a_test.go", `func TestLongX(t *testing.T) { reliability.SkipUnlessLong(t); x(t) }`, ""},
		"called in short": {"a_test.go", `func TestLongX(t *testing.T) { reliability.AsLong(t, TestX) }`, ""},
		"only prose":      {"a_test.go", "// RINGO_LONG=1 runs it.\nfunc TestX(t *testing.T) { t.Skip(\"RINGO_LONG=1 runs it\") }", ""},
		"no test":         {"a.go", `func TestLongX(t *testing.T) {}`, ""},
		"a method":        {"a_test.go", `func (s suite) TestLongX(t *testing.T) {}`, ""},
		"the home":        {longHome, `var long = os.Getenv("RINGO_LONG")`, ""},
		"not called": {"a_test.go", `func TestLongX(t *testing.T) { x(t) }`,
			"a_test.go:4: TestLongX does not call reliability.SkipUnlessLong"},
		"called by another": {"a_test.go", `func TestX(t *testing.T) { reliability.SkipUnlessLong(t) }`,
			"a_test.go:4: uses SkipUnlessLong outside a test whose name begins with TestLong"},
		"long by another": {"a_test.go", `func TestX(t *testing.T) { reliability.AsLong(t, x) }`,
			"a_test.go:4: uses AsLong outside a test whose name begins with TestLong"},
		"passed on": {"a_test.go", `var skip = reliability.SkipUnlessLong`,
			"a_test.go:4: uses SkipUnlessLong outside a test whose name begins with TestLong"},
		"read": {"a_test.go", `func TestX(t *testing.T) { os.Getenv("RINGO_LONG") }`,
			`a_test.go:4: uses "RINGO_LONG", which only internal/reliability/long.go reads`},
		"a constant": {"a.go", "const name = `RINGO_LONG`", `a.go:4: uses "RINGO_LONG", which only internal/reliability/long.go reads`},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, strings.Join(checkLong(fixture(t, map[string]string{c.file: head + c.code})), "\n"))
		})
	}
}
