package lint

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "lower the budgets that are too high; without the file, write it")

const (
	budgetsFile    = "testdata/budgets.txt"
	budgetsCommand = "go test ./internal/lint -run TestBudgets -update"
)

// budgetsHead stands at the top of the file.
const budgetsHead = `# What every package may have at most: lines of code, exported names, and fields of its widest struct. Tests, generated files, comments
# and empty lines do not count. To raise a number, write it here, and the reason behind the last number of the line.
# To lower what is too high: ` + budgetsCommand + `
`

// budget is what a package has, or may have at most.
type budget struct {
	lines  int    // with a token that is no comment
	names  int    // exported functions, types, methods of exported types, constants and variables
	fields int    // of the widest struct
	reason string // why a number was raised
}

// measure counts what each package has. A name that files of several systems declare counts once.
func measure(sources []*source) map[string]budget {
	all, names := map[string]budget{}, map[string]map[string]bool{}
	for _, s := range sources {
		if s.test || s.generated {
			continue
		}
		if names[s.dir] == nil {
			names[s.dir] = map[string]bool{}
		}
		for _, decl := range s.file.Decls {
			for _, name := range exportedNames(decl) {
				names[s.dir][name] = true
			}
		}
		b := all[s.dir]
		b.lines += codeLines(s.text)
		b.names = len(names[s.dir])
		b.fields = max(b.fields, widest(s.file))
		all[s.dir] = b
	}
	return all
}

// codeLines counts the lines on which a token stands. A string of several lines stands on each of them.
func codeLines(text []byte) int {
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	n, last := 0, 0
	for {
		pos, t, lit := s.Scan()
		if t == token.EOF {
			return n
		}
		first := file.Line(pos)
		end := first
		if t == token.STRING {
			end += strings.Count(lit, "\n")
		}
		n += max(0, end-max(first, last+1)+1)
		last = max(last, end)
	}
}

// exportedNames are the names of a declaration that other packages can use; a method has that of its type before it.
func exportedNames(decl ast.Decl) []string {
	var names []string
	add := func(prefix string, name *ast.Ident) {
		if name.IsExported() {
			names = append(names, prefix+name.Name)
		}
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			add("", d.Name)
		} else if r := receiver(d.Recv); token.IsExported(r) {
			add(r+".", d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				add("", s.Name)
			case *ast.ValueSpec:
				for _, name := range s.Names {
					add("", name)
				}
			}
		}
	}
	return names
}

// widest is the number of fields of the struct that has most of them.
func widest(file *ast.File) int {
	most := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.StructType); ok {
			most = max(most, s.Fields.NumFields())
		}
		return true
	})
	return most
}

// checkBudgets compares what packages have with what they may have.
func checkBudgets(have, may map[string]budget) []string {
	var findings []string
	for _, dir := range slices.Sorted(maps.Keys(have)) {
		h := have[dir]
		m, ok := may[dir]
		if !ok {
			findings = append(findings, fmt.Sprintf("package %s has no budget: if it has to be, add its line to internal/lint/%s:\n%s",
				dir, budgetsFile, formatBudget(dir, h, len(dir))))
			continue
		}
		compare := func(what string, have, may, slack int) {
			switch {
			case have > may:
				findings = append(findings, fmt.Sprintf("package %s has %d %s, and %d is its budget: remove some, "+
					"or write %d and the reason at the end of its line in internal/lint/%s", dir, have, what, may, have, budgetsFile))
			case have < may-slack:
				findings = append(findings, fmt.Sprintf("package %s has %d %s, and %d is its budget: lower it: %s",
					dir, have, what, may, budgetsCommand))
			}
		}
		compare("lines of code", h.lines, m.lines, max(2, m.lines/50))
		compare("exported names", h.names, m.names, 0)
		compare("fields in a struct", h.fields, m.fields, 0)
	}
	for _, dir := range slices.Sorted(maps.Keys(may)) {
		if _, ok := have[dir]; !ok {
			findings = append(findings, fmt.Sprintf("there is a budget of a package %s, but no such package: %s", dir, budgetsCommand))
		}
	}
	return findings
}

// lower returns the budgets with each number lowered to what there is, and without packages that are no more.
func lower(have, may map[string]budget) map[string]budget {
	lowered := map[string]budget{}
	for dir, m := range may {
		if h, ok := have[dir]; ok {
			lowered[dir] = budget{min(h.lines, m.lines), min(h.names, m.names), min(h.fields, m.fields), m.reason}
		}
	}
	return lowered
}

// parseBudgets reads the file: "#" begins a comment; other lines are a package, three numbers, and the reason if there is one.
func parseBudgets(text string) (map[string]budget, error) {
	budgets := map[string]budget{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		var b budget
		if len(words) < 4 {
			return nil, fmt.Errorf("line %d: want a package and three numbers: %s", i+1, line)
		}
		if _, err := fmt.Sscan(strings.Join(words[1:4], " "), &b.lines, &b.names, &b.fields); err != nil {
			return nil, fmt.Errorf("line %d: want three numbers after the package: %s", i+1, line)
		}
		if _, ok := budgets[words[0]]; ok {
			return nil, fmt.Errorf("line %d: %s is there twice", i+1, words[0])
		}
		b.reason = strings.Join(words[4:], " ")
		budgets[words[0]] = b
	}
	return budgets, nil
}

// formatBudgets is the text of the file.
func formatBudgets(budgets map[string]budget) string {
	dirs := slices.Sorted(maps.Keys(budgets))
	width := 0
	for _, dir := range dirs {
		width = max(width, len(dir))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n# %-*s  lines  names  fields\n", budgetsHead, width-2, "package")
	for _, dir := range dirs {
		fmt.Fprintln(&text, formatBudget(dir, budgets[dir], width))
	}
	return text.String()
}

func formatBudget(dir string, b budget, width int) string {
	return strings.TrimRight(fmt.Sprintf("%-*s  %5d  %5d  %6d  %s", width, dir, b.lines, b.names, b.fields, b.reason), " ")
}

func TestBudgets(t *testing.T) {
	have := measure(moduleSources(t))
	text, err := os.ReadFile(budgetsFile)
	if *update && errors.Is(err, fs.ErrNotExist) {
		text, err = []byte(formatBudgets(have)), nil
	}
	require.NoError(t, err)
	may, err := parseBudgets(string(text))
	require.NoError(t, err, budgetsFile)
	if *update {
		may = lower(have, may)
		require.NoError(t, os.WriteFile(budgetsFile, []byte(formatBudgets(may)), 0o666))
	}
	report(t, checkBudgets(have, may))
}

func TestMeasure(t *testing.T) {
	have := measure(fixture(t, map[string]string{
		"a/a.go": "// Package a is.\npackage a\n\n/* not\ncode */\nvar A, b = `1\n\n3`, 1 // A is.\n\nfunc F() { f(); f() }\nfunc f() {\n}\n",
		"a/a_linux.go": "package a\n\ntype T struct {\n\ta, B int\n\t*b\n}\n\nfunc (T) M() {}\nfunc (t) M() {}\nconst C, d = 1, 2\n" +
			"func G() {\n\tvar _ struct{ a, b, c, d int }\n}\n",
		"a/a_windows.go": "package a\n\nfunc G() {}\ntype t[K any] struct{}\nfunc (*t[K]) N() {}\n",
		"a/a_test.go":    "package a\n\ntype Test struct{ a, b, c, d, e int }\n",
		"a/gen.go":       "// Code generated by x. DO NOT EDIT.\n\npackage a\n\ntype Gen struct{ a, b, c, d, e int }\n",
		"b/b_test.go":    "package b\n",
	}))
	// a.go: package, three lines of var, F and f; a_linux.go: package, T, M twice, C and G; a_windows.go: package and three.
	// Names: A, F, T, T.M, C and G.
	assert.Equal(t, map[string]budget{"a": {lines: 7 + 11 + 4, names: 6, fields: 4}}, have)
}

func TestCheckBudgets(t *testing.T) {
	planted := fixture(t, map[string]string{"new/new.go": "package new\n" + strings.Repeat("var _ = 0\n", 1999)})
	const raise = "remove some, or write %d and the reason at the end of its line in internal/lint/testdata/budgets.txt"
	const lowerIt = "lower it: go test ./internal/lint -run TestBudgets -update"
	may := map[string]budget{"a": {100, 10, 5, ""}, "big": {1000, 0, 0, ""}}
	for name, c := range map[string]struct {
		change func(have map[string]budget)
		want   string
	}{
		"as it may be": {func(map[string]budget) {}, ""},
		"2,000 lines in a new package": {func(have map[string]budget) { maps.Copy(have, measure(planted)) },
			"package new has no budget: if it has to be, add its line to internal/lint/testdata/budgets.txt:\nnew   2000      0       0"},
		"a line more": {func(have map[string]budget) { have["a"] = budget{lines: 101, names: 10, fields: 5} },
			"package a has 101 lines of code, and 100 is its budget: " + fmt.Sprintf(raise, 101)},
		"a name more": {func(have map[string]budget) { have["a"] = budget{lines: 100, names: 11, fields: 5} },
			"package a has 11 exported names, and 10 is its budget: " + fmt.Sprintf(raise, 11)},
		"a field more": {func(have map[string]budget) { have["a"] = budget{lines: 100, names: 10, fields: 6} },
			"package a has 6 fields in a struct, and 5 is its budget: " + fmt.Sprintf(raise, 6)},
		"two lines fewer": {func(have map[string]budget) { have["a"] = budget{lines: 98, names: 10, fields: 5} }, ""},
		"three lines fewer": {func(have map[string]budget) { have["a"] = budget{lines: 97, names: 10, fields: 5} },
			"package a has 97 lines of code, and 100 is its budget: " + lowerIt},
		"two percent fewer": {func(have map[string]budget) { have["big"] = budget{lines: 980} }, ""},
		"more than that": {func(have map[string]budget) { have["big"] = budget{lines: 979} },
			"package big has 979 lines of code, and 1000 is its budget: " + lowerIt},
		"a name fewer": {func(have map[string]budget) { have["a"] = budget{lines: 100, names: 9, fields: 5} },
			"package a has 9 exported names, and 10 is its budget: " + lowerIt},
		"no such package": {func(have map[string]budget) { delete(have, "big") },
			"there is a budget of a package big, but no such package: go test ./internal/lint -run TestBudgets -update"},
	} {
		t.Run(name, func(t *testing.T) {
			have := maps.Clone(may)
			c.change(have)
			assert.Equal(t, c.want, strings.Join(checkBudgets(have, may), "\n"))
		})
	}
}

func TestLowerBudgets(t *testing.T) {
	may := map[string]budget{"a": {100, 10, 5, "a reason"}, "gone": {1, 1, 1, ""}}
	have := map[string]budget{"a": {90, 11, 4, ""}, "new": {1, 1, 1, ""}}
	assert.Equal(t, map[string]budget{"a": {90, 10, 4, "a reason"}}, lower(have, may))
}

func TestParseBudgets(t *testing.T) {
	budgets := map[string]budget{"a": {1, 2, 3, ""}, "a/long/name": {10000, 20, 30, "it has a reason"}}
	text := formatBudgets(budgets)
	assert.Contains(t, text, "\n# package    lines  names  fields\na                1      2       3\n"+
		"a/long/name  10000     20      30  it has a reason\n")
	parsed, err := parseBudgets(text)
	require.NoError(t, err)
	assert.Equal(t, budgets, parsed)
	for text, want := range map[string]string{
		"a 1 2":              "line 1: want a package and three numbers: a 1 2",
		"# a\na 1 2 x":       "line 2: want three numbers after the package: a 1 2 x",
		"a 1 2 3\n\na 1 2 3": "line 3: a is there twice",
	} {
		_, err := parseBudgets(text)
		assert.EqualError(t, err, want)
	}
}
