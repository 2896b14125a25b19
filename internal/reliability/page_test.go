package reliability_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
)

var update = flag.Bool("update", false, "run the tests of all rows and write docs/RELIABILITY.md")

const (
	root  = "../.."
	page  = root + "/docs/RELIABILITY.md"
	begin = "<!-- the table: go test ./internal/reliability -update -timeout 30m -->\n"
)

// head is a row without its last column, the measurements.
func head(r reliability.Row) string {
	return fmt.Sprintf("| %d | %s | %s | %s | %s |", r.N, r.Fault, r.Says, r.Engines, r.Bound)
}

// The page has every row of the table, and every operation and fault. Measurements are not compared.
func TestPage(t *testing.T) {
	if *update {
		write(t)
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, tail, ok := strings.Cut(string(text), begin)
	require.True(t, ok, "no table in %s", page)
	table, matrix, ok := strings.Cut(tail, matrixHead)
	require.True(t, ok, "no matrix in %s", page)
	lines := strings.Split(strings.TrimSpace(table), "\n")
	require.Greater(t, len(lines), 2)
	lines = lines[2:]
	require.Len(t, lines, len(reliability.Rows), "%s is stale: run go test ./internal/reliability -update", page)
	for i, r := range reliability.Rows {
		rest, ok := strings.CutPrefix(lines[i], head(r))
		assert.True(t, ok, "row %d on the page is\n%s\nwant\n%s", r.N, lines[i], head(r))
		assert.Regexp(t, `^ (passed|\S+: [^|]+) \|$`, rest, "row %d: what was measured", r.N)
	}
	lines = strings.Split(strings.TrimSpace(matrix), "\n")
	for i, op := range disttest.Operations() {
		want := `\| ` + op.Name + ` \|`
		for _, f := range reliability.Faults {
			want += " " + strings.Join(f.Engines, ` [\d.]+[µm]?s, `) + ` [\d.]+[µm]?s \|`
		}
		require.Less(t, i, len(lines))
		assert.Regexp(t, "^"+want+"$", lines[i])
	}
	assert.Len(t, lines, len(disttest.Operations()))
}

// matrixHead is the text between the rows and the matrix.
var matrixHead = func() string {
	b, line := strings.Builder{}, "|---|"
	b.WriteString(`
## Every operation and every fault

Three ranks repeat one operation. One of them is killed or stopped (before the operation, or in it), its cable is cut between network
namespaces, it comes late (a quarter of T) or is slow (stopped and continued eight times for 60 ms; on goroutines, late by 60 ms eight
times). The first three columns have the time until the last of the others had the error that names the rank, with T = 2 s. In the last two
the result is right, and the time is that of the longest step.

| operation |`)
	for _, f := range reliability.Faults {
		b.WriteString(" " + f.Head + " |")
		line += "---|"
	}
	return b.String() + "\n" + line + "\n"
}()

// cells are the longest times by operation, fault and engine.
type cells map[[3]string]time.Duration

func (c cells) add(line string) {
	if m, ok := reliability.ParseCell(line); ok {
		at := [3]string{m.Op, m.Fault, m.Engine}
		c[at] = max(c[at], m.Took)
	}
}

func (c cells) table(t *testing.T) string {
	var b strings.Builder
	b.WriteString(matrixHead)
	for _, op := range disttest.Operations() {
		b.WriteString("| " + op.Name + " |")
		for _, f := range reliability.Faults {
			var parts []string
			for _, engine := range f.Engines {
				took, ok := c[[3]string{op.Name, f.Name, engine}]
				require.True(t, ok, "%s, %s, on %s was not measured", op.Name, f.Name, engine)
				parts = append(parts, engine+" "+short(took))
			}
			b.WriteString(" " + strings.Join(parts, ", ") + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Rows are in order, and name tests that exist.
func TestRows(t *testing.T) {
	funcs, words := sources(t)
	last := 0
	for _, r := range reliability.Rows {
		assert.Greater(t, r.N, last)
		last = r.N
		assert.NotEmpty(t, r.Tests, "row %d", r.N)
		for _, name := range r.Tests {
			pkg, test, _ := strings.Cut(name, ":")
			parts := strings.Split(test, "/")
			assert.True(t, funcs[pkg+":"+parts[0]], "row %d: no test %s", r.N, name)
			for _, sub := range parts[1:] {
				_, column, _ := strings.Cut(sub, " ") // "tcp killed before"
				assert.True(t, words[sub] || words[column], "row %d: no subtest %q of %s", r.N, sub, name)
			}
		}
	}
}

// sources returns the test functions of the module as "package:Test", and all strings in its tests and suites.
func sources(t *testing.T) (funcs, words map[string]bool) {
	funcs, words = map[string]bool{}, map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") ||
			!strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "disttest") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				funcs[filepath.ToSlash(dir)+":"+n.Name.Name] = true
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					words[strings.Trim(n.Value, "\"`")] = true
				}
			}
			return true
		})
		return nil
	}))
	return funcs, words
}

// write runs the tests of all rows and writes the table.
func write(t *testing.T) {
	passed, measured, matrix := map[string]bool{}, map[int]map[string][]reliability.Measured{}, cells{}
	byPackage := byPackage()
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		begin := time.Now()
		args := []string{"test", "-count=1", "-v", "-timeout=20m", "-run", "^(" + strings.Join(byPackage[pkg], "|") + ")$", "./" + pkg}
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "RINGO_LONG=1")
		out, err := cmd.CombinedOutput()
		if !assert.NoError(t, err, "%s", out) { // continue with the other packages
			continue
		}
		t.Logf("%s: %v", pkg, time.Since(begin).Round(time.Second))
		for _, line := range strings.Split(string(out), "\n") {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- PASS: "); ok {
				passed[pkg+":"+strings.Fields(name)[0]] = true
			}
			matrix.add(line)
			if m, ok := reliability.Parse(line); ok {
				if measured[m.Row] == nil {
					measured[m.Row] = map[string][]reliability.Measured{}
				}
				measured[m.Row][m.Engine] = append(measured[m.Row][m.Engine], m)
			}
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	intro, _, _ := strings.Cut(string(text), begin)
	var b strings.Builder
	b.WriteString(intro + begin + "| # | failure | the error says | engines | within | measured |\n|---|---|---|---|---|---|\n")
	for _, r := range reliability.Rows {
		for _, name := range r.Tests {
			require.True(t, passed[strings.ReplaceAll(name, " ", "_")], "row %d: %s did not run", r.N, name)
		}
		fmt.Fprintf(&b, "%s %s |\n", head(r), summary(measured[r.N]))
	}
	b.WriteString(matrix.table(t))
	require.NoError(t, os.WriteFile(page, []byte(b.String()), 0o644))
}

// byPackage returns the names of the top-level tests of each package.
func byPackage() map[string][]string {
	out := map[string][]string{}
	for _, r := range reliability.Rows {
		for _, name := range r.Tests {
			pkg, test, _ := strings.Cut(name, ":")
			test, _, _ = strings.Cut(test, "/")
			if !slices.Contains(out[pkg], test) {
				out[pkg] = append(out[pkg], test)
			}
		}
	}
	return out
}

// summary is the last column: the longest time for each engine and, if there are several, the median.
func summary(engines map[string][]reliability.Measured) string {
	var parts []string
	for engine, all := range engines {
		slices.SortFunc(all, func(a, b reliability.Measured) int { return int(a.Took - b.Took) })
		text := fmt.Sprintf("%s: %s", engine, short(all[len(all)-1].Took))
		if len(all) > 4 {
			text += fmt.Sprintf(" (median of %d: %s)", len(all), short(all[len(all)/2].Took))
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "passed"
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

// short rounds to a readable number.
func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// Lines of Took can be parsed.
func TestParse(t *testing.T) {
	m := reliability.Measured{Row: 14, Engine: "tcp", Took: 2100 * time.Millisecond, Bound: 2200 * time.Millisecond}
	got, ok := reliability.Parse("    x_test.go:12: " + m.String())
	assert.True(t, ok)
	assert.Equal(t, m, got)
	_, ok = reliability.Parse("row of houses")
	assert.False(t, ok)
	c := reliability.Cell{Op: "send", Fault: "cable cut", Engine: "tcp", Took: 2100 * time.Millisecond}
	cell, ok := reliability.ParseCell("    x_test.go:12: " + c.String())
	assert.True(t, ok)
	assert.Equal(t, c, cell)
	_, ok = reliability.ParseCell("cell division")
	assert.False(t, ok)
}
