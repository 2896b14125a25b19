package docs

import (
	"fmt"
	"go/format"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programs are the main packages of a stranger's module: what the pages say, and the text of main.go.
func programs(t *testing.T) map[string]string {
	t.Helper()
	readme := only(blocks(t, "README.md"), "go", "A training script")
	require.Len(t, readme, 1)
	page := blocks(t, "docs/tutorial.md")
	one := only(page, "go", "One rank")
	require.Len(t, one, 1)
	table := only(page, "go", "Your own data")
	require.Len(t, table, 1)
	list := map[string]string{"readme": readme[0].text, "one": one[0].text, "table": table[0].text}
	text := one[0].text
	for _, step := range []struct{ heading, name string }{{"Data parallel", "ddp"}, {"Sharded", "fsdp"}, {"Tensor parallel", "tp"}} {
		diff := only(page, "diff", step.heading)
		require.Len(t, diff, 1)
		var err error
		text, err = patch(text, diff[0].text)
		require.NoError(t, err, "docs/tutorial.md:%d", diff[0].line)
		list[step.name] = text
	}
	const sharder = "Sharder: rows, "
	require.Equal(t, 1, strings.Count(list["ddp"], sharder))
	list["refused"] = strings.Replace(list["ddp"], sharder, "", 1)
	for name, diff := range own {
		var err error
		list[name], err = patch(list["table"], diff)
		require.NoError(t, err, name)
	}
	list["snippets"], list["pytorch"] = snippets(t), pytorchProgram(t)
	finetune, err := os.ReadFile("testdata/finetune.go")
	require.NoError(t, err)
	list["finetune"] = string(finetune)
	for name, text := range list {
		pretty, err := format.Source([]byte(text))
		require.NoError(t, err, name)
		require.Equal(t, string(pretty), text, "%s is not in the form of gofmt", name)
	}
	return list
}

// place is a line of testdata/snippets.go that stands for a piece of Go in a page.
var place = regexp.MustCompile(`(?m)^\t// (\S+\.md): (.+)$`)

// snippets is testdata/snippets.go with the pieces of Go of all pages in it. A piece that it has no place for is an error.
func snippets(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/snippets.go")
	require.NoError(t, err)
	put := map[string]bool{}
	program := place.ReplaceAllStringFunc(string(text), func(line string) string {
		m := place.FindStringSubmatch(line)
		found := only(blocks(t, m[1]), "go", m[2])
		require.Len(t, found, 1, line)
		put[found[0].text] = true
		return "\t" + strings.ReplaceAll(strings.TrimSuffix(found[0].text, "\n"), "\n", "\n\t")
	})
	for _, page := range pages(t) {
		for _, b := range only(blocks(t, page), "go", "") {
			assert.True(t, put[b.text] || strings.HasPrefix(b.text, "package main\n"), "%s:%d: no test runs this piece of Go", b.page, b.line)
		}
	}
	return program
}

// patch applies a diff whose hunks begin with "@@" and have no line numbers: what a hunk begins from must stand in the text once.
func patch(text, diff string) (string, error) {
	for _, hunk := range strings.Split("\n"+diff, "\n@@\n")[1:] {
		var from, to strings.Builder
		for _, line := range strings.Split(strings.TrimSuffix(hunk, "\n"), "\n") {
			sign, rest := " ", ""
			if line != "" {
				sign, rest = line[:1], line[1:]
			}
			switch sign {
			case " ":
				from.WriteString(rest + "\n")
				to.WriteString(rest + "\n")
			case "-":
				from.WriteString(rest + "\n")
			case "+":
				to.WriteString(rest + "\n")
			default:
				return "", fmt.Errorf("the line %q begins with neither a space nor + nor -", line)
			}
		}
		if n := strings.Count(text, from.String()); n != 1 {
			return "", fmt.Errorf("the hunk's lines are there %d times, not once:\n%s", n, from.String())
		}
		text = strings.Replace(text, from.String(), to.String(), 1)
	}
	return text, nil
}

// module writes a module outside this one that uses it, with a package for each program, and builds one binary of all, which is
// linked once: it runs the program that PROGRAM names.
func module(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ringo-docs-")
	require.NoError(t, err)
	built.dir = dir
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	// The dependencies are those of this module, so that nothing has to be asked of the network.
	text := read(t, "go.mod")
	text = "module stranger\n" + text[strings.Index(text, "\n"):]
	text += "\nrequire github.com/ringo-ml/ringo v0.0.0\n\nreplace github.com/ringo-ml/ringo => " + strconv.Quote(filepath.ToSlash(here)) +
		"\n"
	files := map[string]string{"go.mod": text, "go.sum": read(t, "go.sum")}
	imports, cases := "", ""
	for name, text := range programs {
		for from, to := range map[string]string{"package main\n": "package " + name + "\n", "\nfunc main() {\n": "\nfunc Main() {\n"} {
			require.Equal(t, 1, strings.Count(text, from), name)
			text = strings.Replace(text, from, to, 1)
		}
		files[name+"/main.go"] = text
		imports += fmt.Sprintf("import %s \"stranger/%[1]s\"\n", name)
		cases += fmt.Sprintf("case %q:\n%[1]s.Main()\n", name)
	}
	files["main.go"] = "package main\nimport \"os\"\n" + imports + "func main() {\nswitch os.Getenv(\"PROGRAM\") {\n" + cases + "}}\n"
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	cmd := exec.Command("go", "build", "-mod=mod", "-ldflags=-s -w", "-o", "programs"+exe(), ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "programs"+exe())
}

var built struct {
	once     sync.Once
	dir, bin string
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(built.dir)
	os.Exit(code)
}

// start runs a program of the stranger's module in an empty folder with some files, on as many ranks as it says.
func start(t *testing.T, name string, files map[string]string, args ...string) (string, error) {
	t.Helper()
	return startIn(t, t.TempDir(), name, files, args...)
}

// startIn is start in a folder that the test also reads.
func startIn(t *testing.T, dir, name string, files map[string]string, args ...string) (string, error) {
	t.Helper()
	built.once.Do(func() { built.bin = module(t, programs(t)) })
	require.NotEmpty(t, built.bin, "the stranger's module was not built")
	for file, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	cmd := exec.CommandContext(t.Context(), built.bin, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PROGRAM="+name)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// README's script trains: its loss falls to less than a tenth.
func TestTrainingScript(t *testing.T) {
	out, err := start(t, "readme", nil)
	require.NoError(t, err, out)
	losses := numbers(t, out, `(?m)^epoch \d  loss (\S+)$`)
	require.Len(t, losses, 3, out)
	assert.Less(t, losses[2], 0.1*losses[0], out)
	assert.Less(t, losses[0], 2.31, "the first epoch is no better than guessing: %s", out)
}

// flat makes one line of a text, so that a page may break its lines elsewhere.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

// numbers are those of a pattern's first group.
func numbers(t *testing.T, text, pattern string) []float64 {
	t.Helper()
	var list []float64
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		var v float64
		_, err := fmt.Sscan(m[1], &v)
		require.NoError(t, err)
		list = append(list, v)
	}
	return list
}

// The four layouts of the tutorial print the same losses, and these are what the page prints.
func TestTutorial(t *testing.T) {
	one, err := start(t, "one", nil)
	require.NoError(t, err, one)
	losses := numbers(t, one, `(?m)^step \d  loss (\S+)$`)
	require.Len(t, losses, 10, one)
	assert.Less(t, losses[9], 0.5*losses[0], one)
	region(t, "docs/tutorial.md", "losses", one)
	for _, name := range []string{"ddp", "fsdp", "tp"} {
		out, err := start(t, name, nil)
		require.NoError(t, err, out)
		assert.Equal(t, one, out, name)
	}
}

// The tutorial's program without a Sharder stops with the error that the page prints.
func TestTutorialIsRefused(t *testing.T) {
	out, err := start(t, "refused", nil)
	require.Error(t, err, out)
	said := only(blocks(t, "docs/tutorial.md"), "", "If a line is missing")
	require.Len(t, said, 1)
	assert.Contains(t, flat(out), flat(said[0].text))
}

// A stranger's regression on a CSV file finds the line that the file was made from.
func TestOwnTable(t *testing.T) {
	var table strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	for range 203 {
		a, b := r.NormFloat64(), r.NormFloat64()
		fmt.Fprintf(&table, "%.4f,%.4f,%.4f\n", a, b, 2*a-3*b+1+0.01*r.NormFloat64())
	}
	out, err := start(t, "table", map[string]string{"table.csv": table.String()})
	require.NoError(t, err, out)
	losses := numbers(t, out, `(?m)^epoch \d+  loss (\S+)$`)
	require.Len(t, losses, 5, out)
	assert.Less(t, losses[4], 1e-3, out)
	assert.Contains(t, out, "weights [2.00 -3.00]  bias [1.00]")

	out, err = start(t, "table", map[string]string{"table.csv": "1,2,3\n4,five,6\n"})
	require.Error(t, err, out)
	assert.Contains(t, out, `table.csv: line 2, column 2: "five" is not a number`)
}

// The pieces of Go in the pages that are no whole programs do what they are said to do.
func TestSnippets(t *testing.T) {
	out, err := start(t, "snippets", nil)
	require.NoError(t, err, out)
	assert.Equal(t, 5, strings.Count(out, " done\n"), out)
}

func TestPatch(t *testing.T) {
	got, err := patch("a\nb\nc\nd\n", "@@\n a\n-b\n+x\n+y\n@@\n-d\n")
	require.NoError(t, err)
	assert.Equal(t, "a\nx\ny\nc\n", got)
	_, err = patch("a\na\n", "@@\n-a\n")
	assert.ErrorContains(t, err, "2 times")
	_, err = patch("a\n", "@@\n-b\n")
	assert.ErrorContains(t, err, "0 times")
	_, err = patch("a\n", "@@\nb\n")
	assert.ErrorContains(t, err, "begins with neither")
}
