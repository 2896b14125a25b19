package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/pp"
)

// Each schedule is drawn, and so is the file that it writes; what is wrong is said.
func TestVizSchedule(t *testing.T) {
	dir := t.TempDir()
	drawn := func(args ...string) string {
		out := filepath.Join(dir, "out.svg")
		stdout, stderr, code := run(t, append([]string{"viz", "schedule", "-o", out}, args...)...)
		require.Equal(t, 0, code, stderr)
		assert.Empty(t, stdout+stderr)
		text, err := os.ReadFile(out)
		require.NoError(t, err)
		return string(text)
	}
	csv := filepath.Join(dir, "s.csv")
	for _, name := range pp.Names() {
		text := drawn(name, "-stages", "3", "-microbatches", "7", "-csv", csv)
		assert.Contains(t, text, "<title>"+name+" on 3 ranks: 7 microbatches of a step</title>")
		assert.Equal(t, strings.ReplaceAll(text, name+" on", csv+" on"), drawn(csv), "from its file")
	}
	assert.Contains(t, drawn("1f1b"), ">33 units of time, of which ranks wait 27.3%; most microbatches of a stage that a rank holds: 4 3 2 1<")
	require.NoError(t, os.WriteFile(csv, []byte("0F0,0B0\n1B0,1F0\n"), 0o666))
	for args, want := range map[string]string{
		"dualpipev -stages 5 -o x.svg":            "DualPipeV needs at least 10 microbatches on 5 ranks, not 8",
		"1f1b -stages 0 -o x.svg":                 "-stages 0, -microbatches 8, -chunks 2: want 1 to 400 of each",
		"1f1b -stages 17 -o x.svg":                "a picture has at most 16 and 400",
		"1f1b -microbatches 200 -o x.svg":         "609 units of time: a picture has at most 16 and 400",
		"1f1b -o x.png":                           "-o x.png: the name must end in .svg",
		"2f2b -o x.svg":                           `"2f2b" is no schedule; there are a file .csv and: 1f1b, dualpipev`,
		dir + "/none.csv -o x.svg":                "no such file or directory",
		"1f1b -csv " + dir + "/no/x.csv -o x.svg": "no such file or directory",
		csv + " -o x.svg":                         "rank 1 waits for ever at 1B0 for 1F0, which comes later on this rank",
	} {
		_, stderr, code := run(t, append([]string{"viz", "schedule"}, strings.Fields(args)...)...)
		assert.NotEqual(t, 0, code, args)
		assert.Contains(t, stderr, want, args)
	}
	assert.NoFileExists(t, "x.svg")
}

func TestVizWritesAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out.svg")
	stdout, stderr, code := run(t, "viz", "allreduce", "-algo", "ring", "-ranks", "3", "-o", file)
	assert.Equal(t, 0, code, stderr)
	assert.Empty(t, stdout+stderr)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Contains(t, string(text), "<title>allreduce by ring on 3 ranks</title>")
	assert.Contains(t, string(text), ">12 messages in 4 steps<")
	assert.Contains(t, string(text), "S = 384 B; all ranks send 1.5 KiB = 2(n−1)·S, the busiest 512 B")
}

func TestVizHosts(t *testing.T) {
	assert.Equal(t, algo.Layout{0, 0, 0, 1, 1, 1, 2, 2}, evenly(8, 3))
}

func TestVizErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/is.svg", 0o755))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"allreduce", 2, "missing flags: -algo=NAME, -out=FILE"},
		{"-algo ring -o x.svg", 2, `expected "<op>"`},
		{"frob -algo ring -o x.svg", 2, `"frob" cannot be drawn; these can: broadcast, reduce, allreduce,`},
		{"batch -algo ring -o x.svg", 2, `"batch" cannot be drawn`},
		{"broadcast -algo ring -o x.svg", 2, `-algo "ring" cannot do broadcast, which has: linear, direct, chain, binomial`},
		{"allreduce -algo rank-order -o x.svg", 2, `-algo "rank-order" cannot do allreduce, which has: linear, direct, ring`},
		{"barrier -algo= -o x.svg", 2, `-algo "" cannot do barrier, which has: linear, direct, dissemination`},
		{"allreduce -algo ring -ranks 0 -o x.svg", 2, "-ranks 0: a picture has 2 to 16 ranks"},
		{"allreduce -algo ring -ranks 1 -o x.svg", 2, "-ranks 1:"},
		{"allreduce -algo ring -ranks 100 -o x.svg", 2, "-ranks 100:"},
		{"allreduce -algo ring -ranks=-3 -o x.svg", 2, "-ranks -3:"},
		{"allreduce -algo ring -hosts 0 -o x.svg", 2, "-hosts 0: 4 ranks lie on 1 to 4 hosts"},
		{"allreduce -algo ring -hosts 5 -o x.svg", 2, "-hosts 5:"},
		{"allreduce -algo ring -ranks x -o x.svg", 2, `"x"`},
		{"allreduce -algo ring -o x.png", 2, "-o x.png: the name must end in .svg"},
		{"allreduce -algo ring -o " + dir + "/none/x.svg", 1, "no such file or directory"},
		{"allreduce -algo ring -o " + dir + "/is.svg", 1, "is a directory"},
	} {
		_, stderr, code := run(t, append([]string{"viz"}, strings.Fields(c.args)...)...)
		assert.Equal(t, c.code, code, c.args)
		assert.Contains(t, stderr, c.want, c.args)
	}
	assert.NoFileExists(t, "x.svg")
}
