package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"go/types"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const pytorchPage = "docs/pytorch.md"

// call is a row of docs/pytorch.md that has calls.
type call struct {
	at, section string
	left, right []string // the code of PyTorch, and of Ringo
}

// calls are the rows of docs/pytorch.md, without the table of defaults.
func calls(t *testing.T) []call {
	t.Helper()
	var list []call
	section := ""
	for i, line := range strings.Split(read(t, pytorchPage), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "| `") && !strings.HasPrefix(line, "| ") || len(cells) != 2 || cells[0] == " PyTorch" {
			continue
		}
		c := call{at: fmt.Sprintf("%s:%d", pytorchPage, i+1), section: section}
		for _, m := range code.FindAllStringSubmatch(cells[0], -1) {
			c.left = append(c.left, m[1])
		}
		for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
			c.right = append(c.right, m[1])
		}
		list = append(list, c)
	}
	require.Greater(t, len(list), 90)
	return list
}

// pytorchProgram is testdata/pytorch.go with the right column of the page behind it.
func pytorchProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/pytorch.go")
	require.NoError(t, err)
	s, err := loadScope()
	require.NoError(t, err)
	names := strings.Join(strings.Fields(pageNames), " ")
	var b strings.Builder
	b.WriteString(strings.Replace(string(text), "NAMES", names, 1))
	b.WriteString("\nvar sections = []section{\n")
	section := ""
	for _, c := range calls(t) {
		if c.section != section {
			if section != "" {
				b.WriteString("\t}},\n")
			}
			section = c.section
			fmt.Fprintf(&b, "\t{%q, []expr{\n", section)
		}
		for _, expr := range c.right {
			if goCode(expr) {
				fmt.Fprintf(&b, "\t\t{%q, %q, func(%s) []any { %s }},\n", c.at, expr, names, s.body(expr))
			}
		}
	}
	b.WriteString("\t}},\n}\n")
	pretty, err := format.Source([]byte(b.String()))
	require.NoError(t, err, b.String())
	return string(pretty)
}

// body is a function body that runs an expression and returns its results.
func (s *scope) body(expr string) string {
	if m := member.FindStringSubmatch(expr); m != nil {
		if tv, err := types.Eval(s.fset, s.pkg, s.pos, m[1]+"."+m[2]); err == nil && tv.IsType() {
			return fmt.Sprintf("return []any{(*%s.%s).%s}", m[1], m[2], m[3])
		}
	}
	tv, err := types.Eval(s.fset, s.pkg, s.pos, expr)
	tuple, isTuple := tv.Type.(*types.Tuple)
	switch {
	case err != nil: // TestNames says so
		return "return nil"
	case tv.IsType():
		return fmt.Sprintf("return []any{new(%s)}", expr)
	case tv.IsVoid():
		return expr + "; return nil"
	case isTuple:
		vars := strings.TrimSuffix(strings.Repeat("v%d, ", tuple.Len()), ", ")
		numbers := make([]any, tuple.Len())
		for i := range numbers {
			numbers[i] = i
		}
		vars = fmt.Sprintf(vars, numbers...)
		return fmt.Sprintf("%s := %s; return []any{%s}", vars, expr, vars)
	}
	return fmt.Sprintf("return []any{%s}", expr)
}

// ran is what an expression of the page did on a rank.
type ran struct {
	Value any                  // what it returned; nil: nothing that has numbers
	After map[string][]float64 // the names x, y, p (a parameter) and grad (its gradient), and what they were then
}

// fixture is what PyTorch computed for the left column, by the code: testdata/pytorch.py writes it.
type fixture struct {
	Torch    string
	Ran      map[string][]ran
	Defaults map[string]any
}

func readFixture(t *testing.T) fixture {
	t.Helper()
	text, err := os.ReadFile("testdata/pytorch.json")
	require.NoError(t, err)
	var f fixture
	require.NoError(t, json.Unmarshal(text, &f))
	return f
}

// Every expression of the right column of docs/pytorch.md runs. Where it and the one beside it return or change numbers, they are the same.
func TestPytorchRows(t *testing.T) {
	files := map[string]string{"t.csv": "x,y\n1,2\n3,4\n", "t.jsonl": `{"x": 1, "y": 2}`}
	for _, name := range []string{"config.json", "model.safetensors"} {
		files["model/"+name] = read(t, "models/gpt/testdata/gpt2/"+name)
	}
	out, err := start(t, "pytorch", files)
	require.NoError(t, err, out)
	var got, pytorch fixture
	require.NoError(t, json.Unmarshal([]byte(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]), &got), out)
	pytorch = readFixture(t)
	t.Run("defaults", func(t *testing.T) { checkDefaults(t, pytorch.Defaults, got.Defaults) })
	ringo, want := got.Ran, pytorch.Ran
	ran, same := 0, 0
	for _, c := range calls(t) {
		for i, expr := range c.right {
			if !goCode(expr) {
				continue
			}
			got := ringo[expr]
			if assert.NotEmpty(t, got, "%s: %s did not run", c.at, expr) {
				ran++
			}
			if len(c.left) == len(c.right) && want[c.left[i]] != nil {
				same += sameNumbers(t, fmt.Sprintf("%s: %s and %s", c.at, c.left[i], expr), want[c.left[i]], got)
			}
		}
	}
	assert.Equal(t, [2]int{186, 90}, [2]int{ran, same}, "expressions that ran, and that were compared with PyTorch's numbers")
}

// checkDefaults compares the page's table of defaults with what PyTorch and Ringo have: each difference has a row with both values, what is
// the same has none.
func checkDefaults(t *testing.T, pytorch, ringo map[string]any) {
	_, text, _ := strings.Cut(read(t, pytorchPage), "\n## Defaults that differ\n")
	text, _, _ = strings.Cut(text, "\n## ")
	said := map[string][2]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); len(cells) == 3 && cells[0] != "default" {
			said[cells[0]] = [2]string{firstWord.FindString(cells[1]), firstWord.FindString(cells[2])}
		}
	}
	differ := map[string][2]string{}
	for name, p := range pytorch {
		if r := ringo[name]; p != r {
			differ[name] = [2]string{fmt.Sprint(p), fmt.Sprint(r)}
		}
	}
	assert.Equal(t, differ, said)
	assert.Len(t, ringo, len(pytorch))
	assert.Greater(t, len(pytorch), len(differ)+10)
}

// firstWord is the value in a cell of the table of defaults.
var firstWord = regexp.MustCompile(`^[^,: ]+`)

// sameNumbers compares what PyTorch and Ringo did; it returns 1 if there was something to compare, else 0.
func sameNumbers(t *testing.T, what string, want, got []ran) int {
	t.Helper()
	compared := 0
	require.NotEmpty(t, got, what)
	for i := range min(len(want), len(got)) { // what only the root has
		for name, x := range want[i].After {
			assert.InDeltaSlice(t, x, got[i].After[name], 1e-6, "%s: %s afterwards, on rank %d", what, name, i)
			compared = 1
		}
		if want[i].Value != nil && got[i].Value != nil {
			assert.InDeltaSlice(t, flatNumbers(want[i].Value), flatNumbers(got[i].Value), 1e-6, what)
			compared = 1
		}
	}
	return compared
}

// flatNumbers are the numbers in a value of JSON, in order; texts count by their bytes.
func flatNumbers(v any) []float64 {
	var list []float64
	switch v := v.(type) {
	case float64:
		return []float64{v}
	case string:
		for _, c := range []byte(v) {
			list = append(list, float64(c))
		}
	case []any:
		for _, x := range v {
			list = append(list, flatNumbers(x)...)
		}
	}
	return list
}

// PyTorch computes what testdata/pytorch.json says; with -update, the file is written.
func TestPythonRows(t *testing.T) {
	python := os.Getenv("RINGO_PYTHON")
	if python == "" {
		t.Skip("this test needs PyTorch: set RINGO_PYTHON to a Python that has it")
	}
	var sections [][2]any
	for _, c := range calls(t) {
		if n := len(sections); n == 0 || sections[n-1][0] != c.section {
			sections = append(sections, [2]any{c.section, []string{}})
		}
		last := &sections[len(sections)-1]
		last[1] = append(last[1].([]string), c.left...)
	}
	in, err := json.Marshal(sections)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), python, "testdata/pytorch.py")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	text, err := cmd.Output()
	require.NoError(t, err)
	var got fixture
	require.NoError(t, json.Unmarshal(text, &got))
	if *update {
		text, err = json.MarshalIndent(got, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("testdata/pytorch.json", append(text, '\n'), 0o644))
	}
	want := readFixture(t)
	for code, w := range want.Ran {
		assert.Equal(t, 1, sameNumbers(t, code, w, got.Ran[code]), code)
	}
	assert.Len(t, got.Ran, len(want.Ran))
	assert.Equal(t, want.Defaults, got.Defaults)
}
