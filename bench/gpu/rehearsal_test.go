package main

import (
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/bench/gpu/bundle"
	"github.com/ringo-ml/ringo/bench/gpu/measure"
	"github.com/ringo-ml/ringo/dist/disttest"
	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// plantFaults breaks kernels of sections if the environment says so: softmax writes a NaN, the float32 normalization writes zeros, products
// of 8-bit floats scaled per row write a NaN, and the gradient of grouped products never ends.
func plantFaults(args []string) error {
	if os.Getenv("GPU_TEST_FAULTS") != "1" || args[0] != "measure" {
		return nil
	}
	slog.Info("as if it compiled for more than a second")
	dev, _, err := measure.OpenDevice("cuda") // all devices share the table
	if err != nil {
		return err
	}
	must := func(err error) {
		if err != nil {
			panic(&tensor.Failure{Op: "fault", Err: err})
		}
	}
	behind := func(k *tensor.Kernel, fault func(s *gpu.Stream, out gpu.Ptr, n int) error) {
		right := *k
		*k = func(q tensor.Queue, a *tensor.Args) {
			right(q, a)
			must(fault(q.(*cuda.Queue).Stream(), gpu.Ptr(uintptr(a.X[0])), a.Len[0]))
		}
	}
	table := dev.Kernels()
	behind(&table[ops.OpSoftmax][tensor.Float32], func(s *gpu.Stream, out gpu.Ptr, _ int) error {
		return s.Fill32(out, math.Float32bits(float32(math.NaN())), 1)
	})
	behind(&table[ops.OpLayerNorm][tensor.Float32], func(s *gpu.Stream, out gpu.Ptr, n int) error { return s.Fill32(out, 0, n) })
	multiply := table[ops.OpScaledMM][tensor.BFloat16]
	table[ops.OpScaledMM][tensor.BFloat16] = func(q tensor.Queue, a *tensor.Args) {
		if multiply(q, a); a.I[2] != 0 { // per row
			must(q.(*cuda.Queue).Stream().Fill32(gpu.Ptr(uintptr(a.X[0])), 0x7fc07fc0, 1))
		}
	}
	table[ops.OpGroupedGrad][tensor.BFloat16] = func(tensor.Queue, *tensor.Args) { select {} }
	return nil
}

// machineWithoutGo makes a path with only the programs that the emulator needs.
func machineWithoutGo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"g++", "as", "ld"} {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	t.Setenv("PATH", dir)
	t.Setenv("GOROOT", "")
	t.Setenv("GPU_TEST_FAULTS", "1")
}

var faults = []string{
	`(?m)^ *(rows by Ringo: .*\n.*)?float32 softmax 64x64: .*element 0 is NaN instead of 0\.0`,
	`(?m)float32 layernorm 64x64: .*element 0 is 0 instead of `,
	`(?m)32x64x48 per row: .*element 0, 0 is NaN instead of `,
	`(?m)Linear of 32 rows, 64 to 48 per row, and backward: .*output: element 0, 0 is NaN instead of `,
}

// TestFaultsAreNamed: a NaN, a wrong kernel and a section that hangs cost only their own rows.
func TestFaultsAreNamed(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Start(t, emu.Config{})
	file := testPrograms(t)
	machineWithoutGo(t)
	out, err := program(t, file, "bench", "-small", "-python", "", "-window", "1us", "rows", "float8")
	require.Error(t, err)
	for _, fault := range faults {
		assert.Regexp(t, fault, out)
	}
	assert.Regexp(t, "(?m)^rows\tbfloat16 layernorm 64x64\tringo\t", out)
	assert.Regexp(t, "(?m)^rows\tfloat32 sum, gradient", out)
	assert.NotRegexp(t, `(?m)^rows\tfloat32 (softmax|layernorm) \d`, out)
	assert.Regexp(t, "(?m)^float8\t32x64x48 per tensor\tringo\t", out)
	assert.Regexp(t, "(?m)^float8\tLinear of 32 rows, 64 to 48 per tensor, and backward\tringo\t", out)
	assert.NotRegexp(t, "(?m)^float8\t.* per row", out)
	t.Setenv("RINGO_HOPPER", "1") // as main sets it
	out, err = program(t, file, "bench", "-small", "-python", "", "-each", "1s", "grouped")
	require.Error(t, err)
	assert.Contains(t, out, "grouped by Ringo: stopped: it took too long")
	assert.Contains(t, out, "with RINGO_HOPPER=0: stopped: it took too long")
}

// TestGoesOn: problems that the doctor finds stop nothing if there is a device.
func TestGoesOn(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Start(t, emu.Config{})
	t.Setenv("RINGO_CUBLASLT_LIB", "/nowhere/libcublasLt.so")
	out, err := program(t, testPrograms(t), "-small", "-python", "", "-run", "TestSummary")
	require.Error(t, err)
	assert.Contains(t, out, "no usable cuBLASLt")
	assert.Contains(t, out, "suite/gpu.test: 1 passed, 0 failed")
	_, said, _ := strings.Cut(out, "tests: 1 of 1 passed")
	assert.Regexp(t, `(?s)doctor: exit status 1: see the beginning.*copy by Ringo: exit status 1`, said)

	t.Setenv("EMU_DEVICES", "0")
	out, err = program(t, testPrograms(t), "-small", "-python", "")
	require.Error(t, err)
	assert.Contains(t, out, "nothing was tested or measured: ")
}

// TestLongRehearsal does in one call all that is done on a machine with a GPU, on the emulator and without Go.
func TestLongRehearsal(t *testing.T) {
	reliability.SkipUnlessLong(t)
	emu.Start(t, emu.Config{})
	self, err := os.Executable()
	require.NoError(t, err)
	suite := suiteEntry
	suite.File = self
	file, logs := filepath.Join(t.TempDir(), "ringo-gpu"), t.TempDir()
	require.NoError(t, bundle.Join(file, self, []bundle.Entry{{Name: bundle.Program, File: self}, suite}))
	python, err := exec.LookPath(os.Getenv("RINGO_PYTHON")) // "": measure only Ringo
	if err != nil {
		python = ""
	}
	machineWithoutGo(t)
	t.Setenv("EMU_DEVICES", "1")
	out, err := program(t, file, "-small", "-python", python, "-window", "1ms", "-each", "60s", "-limit", "20m", "-logs", logs)
	require.Error(t, err)
	assert.Contains(t, out, "suite/gpu.test: 2 passed, 2 failed, 0 skipped")
	for _, s := range measure.Sections {
		assert.Regexp(t, "(?m)^"+s.Name+"\t.*\tringo\t", out, "a row of each section")
	}
	for _, fault := range faults {
		assert.Regexp(t, fault, out)
	}
	assert.Contains(t, out, "grouped by Ringo: stopped: it took too long")
	assert.Contains(t, out, "with RINGO_HOPPER=0: stopped: it took too long")
	assert.Regexp(t, "(?m)^grouped\t64 rows, 16 to 64, forward\tringo", out, "what was measured before")
	wrong := regexp.MustCompile(`(?m)^  (\w+( by \w+)?): `).FindAllString(tail(out, "not measured:"), -1)
	slices.Sort(wrong)
	assert.Equal(t, []string{"  float8 by Ringo: ", "  grouped by Ringo: ", "  rows by Ringo: "}, slices.Compact(wrong),
		"others are whole")
	assert.Regexp(t, "(?m)^gpt2\t2 layers of 32, batch 2, length 16, loss after 5 steps\tringo\tloss\t", out)
	if python != "" {
		assert.Regexp(t, "(?m)^gpt2\t2 layers of 32, batch 2, length 16, loss after 5 steps\teager\tloss\t", out)
	}
}

// TestPackedFile runs parts of the file that scripts/gpu makes, on the emulator and without Go.
func TestPackedFile(t *testing.T) {
	file := os.Getenv("RINGO_GPU_FILE")
	if file == "" {
		t.Skip("this test needs what scripts/gpu makes: set RINGO_GPU_FILE")
	}
	emu.Start(t, emu.Config{})
	machineWithoutGo(t)
	t.Setenv("GPU_TEST_FAULTS", "")
	for _, args := range [][]string{
		{"doctor"}, {"test", "dist/peer"}, {"bench", "-small", "-python", "", "-window", "1us", "copy"},
	} {
		out, err := program(t, file, args...)
		require.NoError(t, err, "%s: %s", args, out)
		t.Log(out)
	}
	out, err := program(t, file+"-examples", "smoke", "-small", "-python", "")
	require.NoError(t, err, out)
	t.Log(out)
}

// TestPython: PyTorch, given the weights, has the losses of Ringo's GPT-2 in the first step and after the others.
func TestPython(t *testing.T) {
	python := os.Getenv("RINGO_PYTHON")
	if python == "" {
		t.Skip("this test needs PyTorch: set RINGO_PYTHON to a Python that has it")
	}
	emu.Start(t, emu.Config{})
	out, err := program(t, testPrograms(t), "bench", "-small", "-python", python, "-window", "1ms", "gpt2")
	require.NoError(t, err, out)
	for _, variant := range []string{"ringo", "eager"} {
		for _, loss := range []string{"first loss", "loss after 5 steps", "float32, first loss", "float32, loss after 20 steps"} {
			assert.Regexp(t, "(?m)^gpt2\t2 layers of 32, batch 2, length 16, "+loss+"\t"+variant+"\tloss\t", out)
		}
	}
	assert.Regexp(t, "(?m)^gpt2\t2 layers of 32, batch 2, length 16\tringo\ttokens/s\t", out)
}

// tail returns the text after the first mark.
func tail(text, mark string) string {
	_, after, _ := strings.Cut(text, mark)
	return after
}
