package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

var (
	lossLine   = regexp.MustCompile(`step (\d+) loss [0-9a-f]{16}`)
	resumeLine = regexp.MustCompile(`resumed at \d+`)
)

// TestLongResume: a job that crashes in the same step again and again continues from its checkpoint each time. Its losses have the bits of
// a job that never crashes, until it may not be restarted any more. The last error is the first cause. The same holds in float16, where the
// loss scale makes some steps overflow before and after each checkpoint. TestRestarts and TestProgress, and TestResume of
// examples/ddp-mnist, are the short forms.
func TestLongResume(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	needsProcesses(t)
	program := program(t, "resume")
	for _, dtype := range []string{"float16", "float32"} {
		t.Run(dtype, func(t *testing.T) {
			t.Parallel()
			testResume(t, program, dtype)
		})
	}
}

func testResume(t *testing.T, program, dtype string) {
	whole, stderr, code := run(t, "run", "-n", "2", "-timeout", "20s", program, dtype, t.TempDir(), "13")
	require.Zero(t, code, whole+stderr)
	want := lossLine.FindAllString(whole, -1)
	require.Len(t, want, 13)

	dir := t.TempDir()
	stdout, stderr, code := run(t, "run", "-n", "2", "-max-restarts", "2", "-timeout", "20s", program, dtype, dir, "13", "7", "7", "7")
	assert.Equal(t, 1, code, stdout+stderr)
	assert.Equal(t, []string{"resumed at 6", "resumed at 6"}, resumeLine.FindAllString(stdout, -1))
	assert.Regexp(t, `ringo: generation 3 was the last: restarts without progress are limited to 2\n`+
		`rank 1 \(pid \d+\) failed: crash in step 7 \(and 1 rank failed because of it\)\n$`, stderr)
	assert.Equal(t, slices.Concat(want[:7], want[6:7], want[6:7]), lossLine.FindAllString(stdout, -1))

	stdout, stderr, code = run(t, "ckpt", "verify", filepath.Join(dir, "step-00000006"))
	assert.Zero(t, code, stdout+stderr)

	// If it makes progress between crashes, the job succeeds.
	stdout, stderr, code = run(t, "run", "-n", "2", "-max-restarts", "1", "-timeout", "20s", program, dtype, dir, "13", "7", "10", "12")
	assert.Zero(t, code, stdout+stderr)
	assert.Equal(t, []string{"resumed at 6", "resumed at 6", "resumed at 9", "resumed at 12"}, resumeLine.FindAllString(stdout, -1))
	assert.Equal(t, slices.Concat(want[6:7], want[6:10], want[9:12], want[12:]), lossLine.FindAllString(stdout, -1))
	stdout, stderr, code = run(t, "ckpt", "verify", filepath.Join(dir, "step-00000012"))
	assert.Zero(t, code, stdout+stderr)
}

// saved returns a small checkpoint.
func saved(t *testing.T, seed uint64) string { return savedAt(t, seed, 1) }

// savedAt is saved for a step.
func savedAt(t *testing.T, seed uint64, step int) string {
	t.Helper()
	dir := t.TempDir()
	err := dist.Run(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		params := nn.Init(nn.Sequential{nn.NewLinear(8, 4), nn.NewLinear(4, 2)}, r.Device, tensor.Float32, seed)
		s := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		st := ckpt.State{Step: step, Params: params, TP: ckpt.Rules{"*.weight": {Dim: 0}}}
		if err := s.Save(ctx, st); err != nil {
			return err
		}
		return s.Close()
	})
	require.NoError(t, err)
	return filepath.Join(dir, fmt.Sprintf("step-%08d", step))
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// Layouts and rules that do not fit a checkpoint are told from damage.
func TestCkptMisfits(t *testing.T) {
	t.Parallel()
	a, rules := saved(t, 1), filepath.Join(t.TempDir(), "rules.json")
	require.NoError(t, os.WriteFile(rules, []byte(`{"*.weight": {"dim": 1}, "*.weigth": {"dim": 1}}`), 0o666))
	out, errs, code := run(t, "ckpt", "verify", "-layout", "tp=2", "-rules", rules, filepath.Join(a, "model.safetensors"))
	require.Equal(t, 3, code)
	require.Contains(t, out, `does not fit: the rule "*.weigth" fits no tensor`)
	require.Contains(t, errs, "model.safetensors is sound, and does not fit -layout tp=2, or -rules")
	out, errs, code = run(t, "ckpt", "verify", "-layout", "pp=5", a)
	require.Equal(t, 3, code)
	require.Contains(t, out, "does not fit: 5 stages of pp need a layer each, and names of tensors have 2")
	require.Contains(t, errs, a+" is sound, and does not fit -layout pp=5")
	require.NotContains(t, out, "loads")
	out, _, code = run(t, "ckpt", "verify", "-layout", "tp=2", filepath.Join(a, "model.safetensors"))
	require.Equal(t, 3, code)
	require.Contains(t, out, "the checkpoint has no rules, and none were given (by ringo ckpt verify -rules FILE, or VerifyConfig.Rules)")
}

func TestCkpt(t *testing.T) {
	t.Parallel()
	a, b := saved(t, 1), saved(t, 2)
	out, _, code := run(t, "ckpt", "ls", a)
	require.Zero(t, code)
	require.Regexp(t, `tensor +shape +dtype +file +bytes +shards\n0.weight +\[4,8\] +F32 +model.safetensors +128 +1\n`, out)
	require.Regexp(t, `\n4 tensors +184 *\n$`, out)
	out, _, code = run(t, "ckpt", "ls", "-json", a)
	require.Zero(t, code)
	require.Len(t, parse(t, out)["tensors"], 4)

	out, _, code = run(t, "ckpt", "verify", a, "-json", "-layout", "tp=2,fsdp=2")
	require.Zero(t, code)
	v := parse(t, out)
	require.Equal(t, []any{true, 4.0, 4.0, 184.0, []any{}, 0.0}, []any{v["ok"], v["tensors"], v["shards"], v["bytes"], v["errors"], v["nan"]})
	require.Len(t, v["ranks"], 4)
	require.Equal(t, map[string]any{"rank": 3.0, "place": "tp=1,fsdp=1", "bytes": 32.0 + 8 + 8 + 4}, v["ranks"].([]any)[3])

	rules := filepath.Join(t.TempDir(), "rules.json") // rules for a checkpoint without tags of tensor parallelism
	require.NoError(t, os.WriteFile(rules, []byte(`{"*.weight": {"dim": 1}}`), 0o666))
	out, _, code = run(t, "ckpt", "verify", "-json", "-layout", "tp=2,fsdp=4", "-rules", rules, filepath.Join(a, "model.safetensors"))
	require.Zero(t, code)
	v = parse(t, out)
	require.Len(t, v["ranks"], 8)
	require.Equal(t, map[string]any{"rank": 7.0, "place": "tp=1,fsdp=3", "bytes": 4.0 * (4 + 1 + 1 + 0)}, v["ranks"].([]any)[7])
	require.Len(t, v["unchecked"], 2)
	_, errs, code := run(t, "ckpt", "verify", "-rules", rules, a)
	require.Equal(t, 1, code)
	require.Contains(t, errs, "rules of tensor parallelism say nothing without a layout")

	out, _, code = run(t, "ckpt", "diff", a, a)
	require.Zero(t, code)
	require.Equal(t, "no difference\n", out)
	out, errs, code = run(t, "ckpt", "diff", a, b)
	require.Equal(t, 1, code)
	require.Contains(t, out, "model:0.weight: 32 of 32 elements differ, by 0.")
	require.Contains(t, errs, "differ")

	to := filepath.Join(t.TempDir(), "half")
	out, errs, code = run(t, "ckpt", "convert", a, to, "-dtype", "bfloat16", "-file-bytes", "65")
	require.Zero(t, code, errs)
	require.Contains(t, out, "4 tensors in 4 shards, 92 bytes\nsound\n")
	require.FileExists(t, filepath.Join(to, "model-00002-of-00002.safetensors"))
	out, _, code = run(t, "ckpt", "diff", "-json", a, to)
	require.Equal(t, 1, code)
	require.Len(t, parse(t, out)["structure"], 4)

	file := filepath.Join(a, "model.safetensors")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	require.NoError(t, os.WriteFile(file, text, 0o666))
	out, errs, code = run(t, "ckpt", "verify", a)
	require.Equal(t, 1, code)
	require.Contains(t, out, `error: model.safetensors: tensor "1.weight"`)
	require.Contains(t, errs, "is not sound: 1 errors")
	out, _, code = run(t, "ckpt", "verify", "-json", a)
	require.Equal(t, 1, code)
	require.Equal(t, false, parse(t, out)["ok"])

	out, _, code = run(t, "ckpt", "verify", file, "-json") // a single file has no hash
	require.Zero(t, code)
	require.Len(t, parse(t, out)["unchecked"], 2)
}

// Names in files do not steer the terminal.
func TestCkptPrintable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	head := `{"a\u001b[2J\tb\nc":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	text := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	file := filepath.Join(dir, "\x1b]0;x\a.safetensors")
	require.NoError(t, os.WriteFile(file, append(text, 0, 0, 0, 0), 0o666))
	other := filepath.Join(dir, "other.safetensors")
	require.NoError(t, os.WriteFile(other, append(text, 0, 0, 128, 63), 0o666))
	out, errs, code := run(t, "ckpt", "ls", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, `a\x1b[2J\tb\nc  [1]    F32    \x1b]0;x\a.safetensors  4`)
	out, _, code = run(t, "ckpt", "diff", file, other)
	require.Equal(t, 1, code)
	require.Contains(t, out, `model:a\x1b[2J`)
	require.NotContains(t, out, "\x1b")
	require.NoError(t, os.Truncate(file, 60))
	out, errs, code = run(t, "ckpt", "verify", file)
	require.Equal(t, 1, code)
	require.Contains(t, out, `error: \x1b]0;x\a.safetensors: `)
	_, more, code := run(t, "ckpt", "ls", file)
	require.Equal(t, 1, code)
	require.Contains(t, more, `\x1b]0;x\a.safetensors: `)
	require.NotContains(t, out+errs+more, "\x1b")
}

func TestCkptTorch(t *testing.T) {
	t.Parallel()
	fixtures := filepath.Join("..", "..", "ckpt", "torch", "testdata")
	to := filepath.Join(t.TempDir(), "new")
	out, errs, code := run(t, "ckpt", "convert", filepath.Join(fixtures, "sgd.pt"), to)
	require.Zero(t, code, errs)
	require.Equal(t, "left out: ema: 1 tensors\n", errs)
	require.Contains(t, out, "step 1, 8 tensors in 8 shards, 256 bytes\nsound\n")
	groups := filepath.Join(fixtures, "groups.pt")
	_, errs, code = run(t, "ckpt", "convert", groups, to+"2")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "which is which is not said")
	out, errs, code = run(t, "ckpt", "convert", "-model-only", groups, to+"2")
	require.Zero(t, code, errs)
	require.Contains(t, out, "4 tensors in 4 shards, 128 bytes\nsound\n")
}

// A folder of checkpoints means its newest one.
func TestCkptNewest(t *testing.T) {
	t.Parallel()
	a, b := savedAt(t, 1, 12), savedAt(t, 2, 7)
	several := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(several, "step-00000007"), os.DirFS(b)))
	require.NoError(t, os.CopyFS(filepath.Join(several, "step-00000012"), os.DirFS(a)))
	for _, command := range []string{"verify", "ls"} {
		_, errs, code := run(t, "ckpt", command, several)
		require.Zero(t, code)
		require.Equal(t, "ringo: "+several+" holds step-00000007, step-00000012: taking the newest\n", errs)
	}
	out, _, code := run(t, "ckpt", "diff", several, a)
	require.Zero(t, code, out)
}

func TestCkptUsage(t *testing.T) {
	t.Parallel()
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"ckpt"}, 2, "ringo ckpt -h"},
		{[]string{"ckpt", "verify"}, 2, "<path>"},
		{[]string{"ckpt", "diff", "a"}, 2, "<b>"},
		{[]string{"ckpt", "ls", nowhere}, 1, nowhere},
		{[]string{"ckpt", "verify", nowhere}, 1, "not sound"},
		{[]string{"ckpt", "verify", "-layout", "tp=0", nowhere}, 1, `"tp=0" should be an axis`},
		{[]string{"ckpt", "verify", "-rules", nowhere, nowhere}, 1, nowhere},
		{[]string{"ckpt", "convert", nowhere, nowhere + "2", "-dtype", "float"}, 2, "unknown dtype"},
		{[]string{"ckpt", "convert", nowhere, nowhere + "2", "-file-bytes", "x"}, 2, "-file-bytes"},
		{[]string{"ckpt", "convert", nowhere, nowhere + "2"}, 1, nowhere},
	} {
		out, errs, code := run(t, c.args...)
		assert.Equal(t, c.code, code, "%v: %s%s", c.args, out, errs)
		assert.Contains(t, errs, c.says, "%v", c.args)
	}
}
