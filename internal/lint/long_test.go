package lint

import (
	"go/ast"
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
