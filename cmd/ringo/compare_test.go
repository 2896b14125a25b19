package main

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// Right layouts agree, in one process and in several.
func TestCompareAgrees(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	prog := program(t, "grads")
	for _, other := range []string{prog + " -tp 2", prog + " -dp 2 -tp 3", "ringo run -n 2 " + prog + " -dp 2"} {
		stdout, stderr, code := run(t, "compare", "-tol", "1e-9", prog, other)
		require.Equal(t, 0, code, stderr)
		assert.Contains(t, stdout, "the gradients of 10 parameters agree within 1e-09 in 3 steps\n")
		assert.Regexp(t, `(?m)^step 3 +shape +A +B +B/A +$`, stdout)
		assert.Regexp(t, `(?m)^mlp.up.weight +\[7,6\] +\S+ +\S+ +1.000000 +$`, stdout)
	}
}

// A backward without its sum, as in torchtitan PR 4054: the losses of the first step are equal, and the parameters before the block
// differ.
func TestCompareNamesTheParameter(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	prog := program(t, "grads")
	stdout, stderr, code := run(t, "compare", prog+" -steps 2", prog+" -steps 2 -tp 2 -wrong")
	require.Equal(t, 1, code, stderr)
	assert.Regexp(t, `ringo: step 1: the gradient of in.weight differs: norm \S+ and \S+, ratio \S+; nearest to the loss: norm.bias\n$`,
		stderr)
	for _, name := range []string{"in.weight", "in.bias", "norm.weight", "norm.bias"} {
		assert.Regexp(t, `(?m)^`+name+` .* differs`, stdout)
	}
	assert.Equal(t, 4, strings.Count(stdout, "differs"), stdout)
	assert.NotContains(t, stdout, "agree")

	stdout, _, code = run(t, "compare", "-json", prog, prog+" -tp 2 -wrong")
	require.Equal(t, 1, code)
	var d comparison
	require.NoError(t, json.Unmarshal([]byte(stdout), &d))
	assert.Equal(t, []any{"in.weight", "norm.bias", false, 1, [2]int{3, 3}}, []any{d.First, d.Nearest, d.Same, d.Step, d.Steps})
	require.NotNil(t, d.Loss[0])
	assert.InDelta(t, float64(*d.Loss[0]), float64(*d.Loss[1]), 1e-12, "nothing shows in the loss")
}

// A program whose loop is its own, with two optimizers, is compared, too, and -steps ends it. What types do not see is found: rows made
// from a rank's own rows.
func TestCompareOwnLoop(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	prog := program(t, "own")
	for _, other := range []string{prog + " -ranks 3", "ringo run -n 2 " + prog} {
		stdout, stderr, code := run(t, "compare", "-tol", "1e-9", "-steps", "4", prog, other)
		require.Equal(t, 0, code, stderr)
		assert.Contains(t, stdout, "the gradients of 4 parameters agree within 1e-09 in 4 steps\n")
		assert.Regexp(t, `(?m)^weight of optimizer 2 +\[1,3\] +`, stdout)
		assert.Contains(t, stderr, "RINGO_GRADS_STEPS=4: this optimizer has done its steps")
	}
	_, stderr, code := run(t, "compare", "-steps", "1", prog+" -wrong", prog+" -wrong -ranks 3")
	require.Equal(t, 1, code)
	assert.Regexp(t, `ringo: step 1: the gradient of weight differs: .*; nearest to the loss: bias of optimizer 2\n$`, stderr)
}

// The first example trains the same on one rank and on layouts of goroutines and processes, over shared memory and TCP.
func TestLongCompareExample(t *testing.T) {
	reliability.SkipUnlessLong(t)
	needsProcesses(t)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t,
		os.WriteFile(text, []byte(strings.Repeat("All the world's a stage, and all the men and women merely players. ", 100)), 0o666))
	flags := " -steps 10 -layers 2 -dim 32 -seq 30 -batch 5 -sample 0 -dtype float64 -threads 1 -data " + text
	const example = "../../examples/gpt"
	built := filepath.Join(t.TempDir(), "gpt")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", built, example).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, shm := range []string{"1", "0"} {
		t.Setenv("RINGO_SHM", shm)
		for i, other := range []string{"GPT -tp 2 -sp -dp 2", "ringo run -n 2 GPT -tp 2", "ringo run -n 4 GPT -tp 2 -sp -async 3 -fsdp 2",
			"ringo run -n 2 GPT -cp 2"} {
			line := built + flags
			switch {
			case i > 1: // packages were built once for compare, and once for run
			case shm == "1":
				line = example + flags
			case i == 0:
				continue
			}
			stdout, stderr, code := run(t, "compare", "-tol", "1e-9", line, strings.Replace(other, "GPT", line, 1))
			require.Equal(t, 0, code, "%s: %s", other, stderr)
			assert.Contains(t, stdout, "the gradients of 21 parameters agree within 1e-09 in 10 steps\n")
			assert.Equal(t, 1, strings.Count(stderr, "A: /"), stderr)
		}
	}
}

// If programs cannot be compared, the exit status is 2.
func TestCompareTrouble(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	prog := program(t, "grads")
	for _, c := range []struct{ a, b, want string }{
		{prog, `"` + prog, "is no command line: a quote is not closed (see ringo compare -h)"},
		{"", prog, `"" is no command line: no program`},
		{"sh -c 'exit 0'", prog, "A wrote no norms of gradients: it must train a step, with an optimizer of package optim"},
		{prog, "sh -c 'exit 3'", "B failed: exit status 3"},
		{"no-such-program", prog, "A failed: exec: \"no-such-program\""},
	} {
		stdout, stderr, code := run(t, "compare", c.a, c.b)
		assert.Equal(t, 2, code, stderr)
		assert.Contains(t, stderr, c.want)
		assert.Empty(t, stdout)
	}
	_, stderr, code := run(t, "compare", "-tol", "-1", "a", "b")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "-tol -1: want a number from 0 to 1")
	_, stderr, code = run(t, "compare", "-steps", "-1", "a", "b")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "-steps -1: want a number of steps")
	_, stderr, code = run(t, "compare", prog+" -steps 2", prog)
	assert.Equal(t, 1, code)
	assert.Contains(t, stderr, "ringo: A did 2 steps, B 3; those of both agree within 0.001\n")
}

// If the file cannot be written, there is an error before the first step.
func TestGradsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	cmd, _, stderr, _ := command(t, "run", "-n", "2", program(t, "grads"), "-dp", "2")
	cmd.Env = append(cmd.Env, "RINGO_GRADS="+filepath.Join(t.TempDir(), "none"))
	require.Error(t, cmd.Run())
	assert.Contains(t, stderr.String(), "RINGO_GRADS: open ")
	assert.Contains(t, stderr.String(), "no such file or directory")
}

// stepOf makes a step of norms of w1, w2, …
func stepOf(step int, loss float64, norms ...float64) grads.Step {
	s := grads.Step{Step: step, Loss: &loss}
	for i, x := range norms {
		s.Grads = append(s.Grads, grads.Norm{Name: "w" + string(rune('1'+i)), Shape: []int{2, 3}, Norm: x})
	}
	return s
}

func TestCompareGrads(t *testing.T) {
	type steps = []grads.Step
	nan, inf := math.NaN(), math.Inf(1)
	other := stepOf(1, 1, 1, 2)
	other.Grads[1].Name = "v"
	shape := stepOf(1, 1, 1, 2)
	shape.Grads[1].Shape = []int{3, 2}
	for name, c := range map[string]struct {
		a, b  steps
		step  int
		first string
		want  string
	}{
		"equal":          {a: steps{stepOf(1, 1, 1, 2), stepOf(2, 1, 0, 3)}, b: steps{stepOf(1, 1, 1, 2), stepOf(2, 1, 0, 3)}, step: 2},
		"rounding":       {a: steps{stepOf(1, 1, 1, 2)}, b: steps{stepOf(1, 1.0009, 0.9991, 2.0019)}, step: 1},
		"zero but noise": {a: steps{stepOf(1, 1, 1e-9, 2)}, b: steps{stepOf(1, 1, 9e-8, 2)}, step: 1},
		"small":          {a: steps{stepOf(1, 1, 1e-5, 2)}, b: steps{stepOf(1, 1, 1.1e-5, 2)}, step: 1, first: "w1", want: "ratio 1.1"},
		"in step 2": {a: steps{stepOf(1, 1, 1, 2), stepOf(2, 1, 1, 2)}, b: steps{stepOf(1, 1, 1, 2), stepOf(2, 1, 1, 2.1)}, step: 2,
			first: "w2", want: "step 2: the gradient of w2 differs: norm 2 and 2.1, ratio 1.05"},
		"twice": {a: steps{stepOf(1, 1, 1, 2)}, b: steps{stepOf(1, 1, 2.0001, 2)}, step: 1, first: "w1",
			want: "B is 2.000 times A: a sum or a factor of 2 too many in B, or missing in A"},
		"a third": {a: steps{stepOf(1, 1, 3, 2)}, b: steps{stepOf(1, 1, 1, 2)}, step: 1, first: "w1",
			want: "B is 1/3.000 of A: a sum or a factor of 3 missing in B, or too many in A"},
		"no gradient": {a: steps{stepOf(1, 1, 3, 2)}, b: steps{stepOf(1, 1, 3, 0)}, step: 1, first: "w2",
			want: "ratio 0; B has no gradient"},
		"NaN in both":      {a: steps{stepOf(1, 1, nan, 2)}, b: steps{stepOf(1, 1, nan, 2)}, step: 1, first: "w1", want: "not finite"},
		"infinite in both": {a: steps{stepOf(1, 1, 1, inf)}, b: steps{stepOf(1, 1, 1, inf)}, step: 1, first: "w2", want: "not finite"},
		"infinite in one": {a: steps{stepOf(1, 1, 1, 2)}, b: steps{stepOf(1, 1, 1, inf)}, step: 1, first: "w2",
			want: "w2 differs: norm 2 and +Inf, ratio +Inf; not finite"},
		"NaN beside equal": {a: steps{stepOf(1, 1, 1, nan)}, b: steps{stepOf(1, 1, 1, nan)}, step: 1, first: "w2", want: "not finite"},
		"infinite beside": {a: steps{stepOf(1, 1, inf, 2)}, b: steps{stepOf(1, 1, inf, 3)}, step: 1, first: "w1",
			want: "nearest to the loss: w2"},
		"another name": {a: steps{stepOf(1, 1, 1, 2)}, b: steps{other}, step: 1, first: "w2",
			want: "w2 differs: trained in A alone; nearest to the loss: v"},
		"another shape": {a: steps{stepOf(1, 1, 1, 2)}, b: steps{shape}, step: 1, first: "w2", want: "[3 2] in B"},
		"loss":          {a: steps{stepOf(1, 1, 1)}, b: steps{stepOf(1, 1.1, 1)}, step: 1, want: "step 1: the loss differs: 1 and 1.1"},
		"both": {a: steps{stepOf(1, 1, 1)}, b: steps{stepOf(1, 1.1, 4)}, step: 1, first: "w1",
			want: "; the loss differs too: 1 and 1.1"},
		"steps": {a: steps{stepOf(1, 1, 1)}, b: steps{stepOf(1, 1, 1), stepOf(2, 1, 1)}, step: 1, want: "A did 1 steps, B 2"},
		"from another": {a: steps{stepOf(1, 1, 1)}, b: steps{stepOf(4, 1, 1)}, step: 1,
			want: "a line of A is of step 1, and that of B of step 4"},
	} {
		d := compareGrads(c.a, c.b, 1e-3)
		assert.Equal(t, c.step, d.Step, name)
		assert.Equal(t, c.first, d.First, name)
		assert.Equal(t, c.want == "", d.Same, name)
		assert.Contains(t, d.Why, c.want, name)
		_, err := json.Marshal(d)
		assert.NoError(t, err, name)
	}
}

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                           nil,
		"  a  b\t-c ":                {"a", "b", "-c"},
		`a 'b c' "d e"f`:             {"a", "b c", "d ef"},
		`a '' ""`:                    {"a", "", ""},
		`a\ b 'c\d' "e\f\"g" h\"`:    {"a b", `c\d`, `e\f"g`, `h"`},
		`./gpt -data "O'Neill's $x"`: {"./gpt", "-data", "O'Neill's $x"},
	} {
		got, err := splitWords(line)
		require.NoError(t, err)
		assert.Equal(t, want, got, line)
	}
	for _, line := range []string{`a 'b`, `"`, `a\`} {
		_, err := splitWords(line)
		assert.Error(t, err, line)
	}
}

// An interrupt ends the running program, and nothing is left.
func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	needsProcesses(t)
	cmd, _, _, tmp := command(t, "compare", `sh -c 'echo runs; exec sleep 1000'`, "sh")
	cmd.Stderr = nil
	errs, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(errs)
	for lines.Scan() && lines.Text() != "runs" {
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	rest := ""
	for lines.Scan() {
		rest += lines.Text()
	}
	_ = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode())
	assert.Equal(t, "ringo: ended by signal terminated", rest)
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}
