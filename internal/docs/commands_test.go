package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// commandLine begins like a command that somebody types.
var commandLine = regexp.MustCompile(`^(go|ringo|git|mkdir|torchrun|srun|mpirun|kubectl|sh|\.ci/\w+|scripts/\w+|RINGO_\w+=\S+) `)

// comment is what stands behind a command.
var comment = regexp.MustCompile(`\s+# .*$`)

// command is a line of a page that somebody types.
type command struct{ at, text string }

// commands are those in blocks of shell, and in blocks that say no language.
func commands(t *testing.T) []command {
	t.Helper()
	var list []command
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			if b.lang != "" && b.lang != "sh" && b.lang != "    " {
				continue
			}
			for i, line := range strings.Split(b.text, "\n") {
				line = comment.ReplaceAllString(strings.TrimPrefix(line, "$ "), "")
				if commandLine.MatchString(line + " ") {
					list = append(list, command{fmt.Sprintf("%s:%d", page, b.line+i), line})
				}
			}
		}
	}
	return list
}

// inClone are the commands that run in the repository, and what makes them short. TestLongRingo and TestLongFromTheTop
// run them.
var inClone = map[string]string{
	"go run ./examples/ddp-mnist":                                      "-steps 20",
	"go run ./cmd/ringo run -n 4 ./examples/ddp-mnist":                 "-steps 20",
	"go run ./examples/gpt":                                            "-steps 3 -sample 0",
	"go run ./examples/gpt -tp 2 -sp":                                  "-steps 3 -sample 0",
	"go run ./examples/gpt -pp 2 -schedule zb-h1":                      "-steps 3 -sample 0",
	"go run ./examples/gpt -pp 2 -dp 2 -micro 4 -schedule zb-h1":       "-steps 3",
	"go run ./examples/embed":                                          "",
	"go run ./examples/moe -ep 2 -plot experts.svg":                    "-steps 3 -sample 0",
	"go run ./examples/fsdp":                                           "",
	"go run ./examples/moe-routing -o routing.svg":                     "",
	"go run ./examples/tp-mlp":                                         "",
	"go run ./examples/collectives":                                    "",
	"go run ./cmd/ringo plan -layout dp=8,fsdp=8 -batch 512":           "",
	"go run ./cmd/ringo viz allreduce -algo ring -ranks 4 -o ring.svg": "",
	"go run ./cmd/ringo topo":                                          "",
	"go run ./cmd/ringo sim -algo ring,hierarchical -ranks 8..128":     "",
	"go run ./cmd/ringo doctor":                                        "",
	"go run ./cmd/ringo bench -ops allreduce,alltoall -sizes 4-16M -ranks 2,4 -backend local,shm,tcp -plot bench.svg":     "",
	"go run ./cmd/ringo compare './examples/gpt -steps 3' './examples/gpt -steps 3 -tp 2 -sp'":                            "",
	"ringo compare './examples/gpt -steps 3 -layers 1 -sample 0' './examples/gpt -steps 3 -layers 1 -sample 0 -tp 2 -sp'": "",
	"go build ./...": "",
}

// elsewhere are commands that another test runs, or that run this one.
var elsewhere = map[string]string{
	"go install github.com/ringo-ml/ringo/cmd/ringo@latest": "TestLongFromTheTop",
	"go get github.com/ringo-ml/ringo":                      "TestLongFromTheTop",
	"git clone https://github.com/ringo-ml/ringo":           "TestLongFromTheTop",
	"go mod init first":                                     "TestLongFromTheTop",
	"go mod tidy":                                           "TestLongFromTheTop",
	"go run .":                                              "TestLongFromTheTop",
	"ringo run -n 2 .":                                      "TestLongFromTheTop",
	"ringo run -n 4 ./train -epochs 3":                      "TestLongRingo",
	"ringo compare './grads -steps 2' './grads -steps 2 -tp 2 -wrong'": "cmd/ringo: TestCompareNamesTheParameter",
	"go test ./...":                               "this test is one of them",
	"RINGO_LONG=1 go test ./...":                  "this test is one of them",
	"RINGO_LONG=1 go test -run '^TestLong' ./...": "this test is a part of them",
	".ci/run":                "this test is a part of it",
	".ci/run gofmt vet race": "this test is a part of it",
}

// needs are the commands that need more than Go, as docs/README.md lists them.
func needs(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, r := range rows(t, "docs/README.md") {
		if m := code.FindStringSubmatch(r.cells[0]); m != nil && commandLine.MatchString(m[1]+" ") {
			require.Len(t, r.cells, 2, r.at)
			list[m[1]] = r.cells[1]
		}
	}
	return list
}

// Every command of the pages is run by a test, or docs/README.md says what it needs; and every entry is on a page.
func TestCommandsAreKnown(t *testing.T) {
	seen, more := map[string]bool{}, needs(t)
	for _, c := range commands(t) {
		_, here := inClone[c.text]
		_, there := elsewhere[c.text]
		_, need := more[c.text]
		n := 0
		for _, yes := range []bool{here, there, need} {
			if yes {
				n++
			}
		}
		assert.Equal(t, 1, n, "%s: %q must be run by a test, or be in the table of docs/README.md (and not in both)", c.at, c.text)
		seen[c.text] = true
	}
	for _, list := range []map[string]string{inClone, elsewhere, more} {
		for text := range list {
			assert.True(t, seen[text], "no page has the command %q", text)
		}
	}
}

// words splits a command line, in which a word may stand between single quotes.
func words(line string) []string {
	var list []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
		} else {
			list = append(list, strings.Fields(part)...)
		}
	}
	return list
}

// ringo builds the command and returns its path.
func ringo(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ringo"+exe())
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./cmd/ringo")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return file
}

func exe() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// output runs a program in a folder.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// Commands of ringo that take no second run as they are printed; all flags of ringo that the pages name are flags of its commands; and
// README's script is one rank of a job under ringo run.
func TestLongRingo(t *testing.T) {
	reliability.SkipUnlessLong(t)
	file := ringo(t)
	for text := range inClone {
		args := words(text)
		if len(args) > 3 && args[2] == "./cmd/ringo" && args[3] != "run" && args[3] != "bench" && args[3] != "compare" {
			output(t, t.TempDir(), file, args[3:]...)
		}
	}
	t.Run("flags", func(t *testing.T) { flagsExist(t, file) })
	t.Run("processes", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("ringo run needs Linux or macOS")
		}
		built.once.Do(func() { built.bin = module(t, programs(t)) })
		dir := t.TempDir()
		require.NoError(t, os.Link(built.bin, filepath.Join(dir, "train")))
		t.Setenv("PROGRAM", "readme")
		out := output(t, dir, file, words("run -n 4 ./train -epochs 3")...)
		assert.Len(t, numbers(t, out, `(?m)epoch \d  loss (\S+)$`), 3, out)
	})
}

// flagWord is a flag of a command line.
var flagWord = regexp.MustCompile(`^-([a-z][a-z-]*)$`)

// flagUse is a flag in a command of a page.
type flagUse struct{ at, sub, flag string }

// flagsOf are the flags of the command ringo in blocks and in code spans of all pages, and what has none.
func flagsOf(t *testing.T) (uses []flagUse) {
	t.Helper()
	var list []command
	for _, c := range commands(t) {
		text := strings.Replace(c.text, "go run ./cmd/ringo ", "ringo ", 1)
		list = append(list, command{c.at, text})
	}
	for _, page := range pages(t) {
		for _, m := range code.FindAllStringSubmatch(read(t, page), -1) {
			list = append(list, command{page, m[1]})
		}
	}
	for _, c := range list {
		args := words(c.text)
		if len(args) < 2 || args[0] != "ringo" {
			continue
		}
		sub := args[1]
		switch {
		case sub == "viz" && (len(args) < 3 || args[2] != "schedule"): // may be left out
			sub = "viz collective"
		case (sub == "viz" || sub == "ckpt") && len(args) > 2:
			sub += " " + args[2]
		}
		uses = append(uses, flagUse{c.at, sub, ""})
		for k, arg := range args[1:] {
			if k > 0 && (strings.HasPrefix(arg, "./") || arg == "ringo") { // a program and its own flags
				break
			}
			if m := flagWord.FindStringSubmatch(arg); m != nil {
				uses = append(uses, flagUse{c.at, sub, m[1]})
			}
		}
	}
	return uses
}

// flagsExist asks the command: what pages call a command is one, and its flags are its own.
func flagsExist(t *testing.T, file string) {
	help := map[string]string{}
	for _, use := range flagsOf(t) {
		if help[use.sub] == "" {
			help[use.sub] = output(t, t.TempDir(), file, append(strings.Fields(use.sub), "--help")...)
			require.Contains(t, help[use.sub], "ringo "+use.sub, use.at)
		}
		known := strings.Contains(help[use.sub], "--"+use.flag) ||
			len(use.flag) == 1 && strings.Contains(help[use.sub], "  -"+use.flag+",")
		assert.True(t, known, "%s: ringo %s has no flag -%s", use.at, use.sub, use.flag)
	}
}

// flagField is a field that is a flag, with the names that its tag gives.
var flagField = regexp.MustCompile("(?m)^\t([A-Z]\\w*) .*`.*(?:help|arg|cmd|short):\".*`")

// tagged is a name in the tag of such a field.
var tagged = regexp.MustCompile(`(?:name|short):"([^"]+)"`)

// The flags that pages name are flags of some command, as far as the code tells without being built: TestLongRingo asks the commands.
func TestFlagsOfRingo(t *testing.T) {
	sources, err := filepath.Glob(root + "cmd/ringo/*.go")
	require.NoError(t, err)
	known := map[string]bool{"": true}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range flagField.FindAllStringSubmatch(string(text), -1) {
			known[strings.ToLower(m[1])] = true
			for _, name := range tagged.FindAllStringSubmatch(m[0], -1) {
				known[name[1]] = true
			}
		}
	}
	uses := 0
	for _, use := range flagsOf(t) {
		if assert.True(t, known[strings.ReplaceAll(use.flag, "-", "")] || known[use.flag], "%s: ringo has no flag -%s", use.at, use.flag) {
			uses++
		}
	}
	assert.Greater(t, uses, 30)
}
