package misuse

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

// Case is a wrong use.
type Case struct {
	Of   string       // the function, or Type.Method
	Want string       // all that its error says, but for the line of the program
	Do   func() error // returns the error, or panics with it
}

// at is how a Failure ends.
var at = regexp.MustCompile(` \(at [\w/.-]+_test\.go:\d+\)`)

// Check does what the cases do. Each exported function and method of the package in the working directory that takes arguments
// needs a case, or a word in never on why it cannot be used wrong.
func Check(t *testing.T, cases []Case, never map[string]string) {
	t.Helper()
	missing := functions(t)
	for _, c := range cases {
		assert.Contains(t, missing, c.Of, "there is no such function")
		err := c.try()
		if assert.Error(t, err, "%s: %s", c.Of, c.Want) {
			text := err.Error()
			if _, failed := err.(*tensor.Failure); failed {
				assert.Regexp(t, at.String()+"$", text, "%s: the line", c.Of)
			}
			assert.Equal(t, c.Want, at.ReplaceAllString(text, ""), c.Of)
		}
	}
	for _, c := range cases {
		delete(missing, c.Of)
	}
	for name, why := range never {
		assert.Contains(t, missing, name, "there is no such function, or it has a case: %s", why)
		delete(missing, name)
	}
	for name := range missing {
		assert.Fail(t, "no case", "%s has no wrong use here, and nobody says that there is none", name)
	}
}

func (c *Case) try() (err error) {
	if failed := tensor.Try(func() { err = c.Do() }); failed != nil {
		return failed
	}
	return err
}

// functions returns the exported functions and methods with arguments.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	all := map[string]bool{}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		require.NoError(t, err)
		for _, d := range syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && f.Type.Params.NumFields() > 0 {
				if of := receiver(f); ast.IsExported(of) {
					all[strings.TrimPrefix(of+"."+f.Name.Name, function)] = true
				}
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// function is the receiver of what is no method.
const function = "Function."

// receiver returns the type that a method is of.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return strings.TrimSuffix(function, ".")
	}
	of := f.Recv.List[0].Type
	for {
		switch x := of.(type) {
		case *ast.StarExpr:
			of = x.X
		case *ast.IndexExpr:
			of = x.X
		case *ast.IndexListExpr: // two type parameters or more
			of = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
