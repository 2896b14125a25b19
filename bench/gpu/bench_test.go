package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// a row of Ringo or of another variant, with the same rate in all windows.
func figures(section, what, variant, unit string, x float64) row {
	return row{section, what, variant, unit, x, x, x}
}

func TestTargets(t *testing.T) {
	for _, target := range targets {
		_, err := chosenSections([]string{target.section})
		assert.NoError(t, err)
	}
	var out strings.Builder
	writeTargets(&out, []row{
		figures("copy", "4.00 GiB", "eager", "GB/s", 3500),
		figures("copy", "4.00 GiB", "ringo", "GB/s", 3000),
		figures("host", "2x+1", "ringo", "ops/s", 400e3),
		figures("host", bare+"2x+1", "ringo", "µs/op", 0.75),
		figures("allreduce", "256.00 MiB", "ringo", "GB/s", 2700),
		figures("rows", "bfloat16 add 16384x4096", "ringo", "GB/s", 2700),
		figures("rows", "bfloat16 layernorm 32768x768", "ringo", "GB/s", 2400),
		figures("allreduce", "8.00 KiB", "ringo", "calls/s", 10),
		figures("gemm", "float32 1024x1024x1024", "ringo", "TFLOP/s", 1),
		figures("gemm", "float32 1024x1024x1024", "eager", "TFLOP/s", 9),
		figures("gemm", "float32 2048x2048x2048", "ringo", "TFLOP/s", 9),
		figures("gemm", "float32 2048x2048x2048", "TF32", "TFLOP/s", 90),
		figures("gemm", "float32 2048x2048x2048", "eager", "TFLOP/s", 9),
		figures("gemm", "bfloat16 32768x768x3072", "ringo", "TFLOP/s", 97),
		figures("gemm", "bfloat16 32768x768x3072", "eager", "TFLOP/s", 100),
		figures("gemm", "bfloat16 32768x768x3072, tuned", "ringo", "TFLOP/s", 102),
		figures("float8", "4096x4096x4096 per tensor", "ringo", "TFLOP/s", 99),
		figures("float8", "4096x4096x4096 per row", "ringo", "TFLOP/s", 97),
		figures("float8", "4096x4096x4096 per tensor", "_scaled_mm", "TFLOP/s", 100),
		figures("float8", "4096x4096x4096 per row", "_scaled_mm", "TFLOP/s", 100),
		figures("float8", "Linear of 8 rows", "ringo", "TFLOP/s", 95),
		figures("float8", "Linear of 8 rows", "eager", "TFLOP/s", 10),
		figures("float8", "Linear of 8 rows", "compiled", "TFLOP/s", 100),
		figures("mlp", "batch 64", "ringo", "steps/s", 8),
		figures("mlp", "batch 64, captured", "ringo", "steps/s", 20),
		figures("mlp", "batch 64", "eager", "steps/s", 2),
		figures("gpt2", "12 layers, length 1024", "ringo", "tokens/s", 95),
		figures("gpt2", "12 layers, length 1024, captured", "ringo", "tokens/s", 105),
		figures("gpt2", "12 layers, length 1024, captured, tuned", "ringo", "tokens/s", 111),
		figures("gpt2", "12 layers, length 1024", "compiled", "tokens/s", 100),
		figures("gpt2", "12 layers, length 1024", "eager", "tokens/s", 10),
	})
	assert.Equal(t, `
| target | wanted | measured | worst case |
|---|---|---|---|
| GPT-2 124M, tokens/s by torch.compile's | ≥ 0.90 | 0.95, met | 12 layers, length 1024 |
| GPT-2 124M captured, tokens/s by torch.compile's | ≥ 1.10 | 1.05, missed | 12 layers, length 1024, captured |
| GPT-2 124M captured and tuned, tokens/s by torch.compile's | ≥ 1.10 | 1.11, met | 12 layers, length 1024, captured, tuned |
| matrix products from 2048³ on, by torch.matmul | ≥ 0.98 | 0.97, missed | bfloat16 32768x768x3072 |
| tuned matrix products from 2048³ on, by torch.matmul | ≥ 1.00 | 1.02, met | bfloat16 32768x768x3072, tuned |
| products of 8-bit floats by torch._scaled_mm | ≥ 0.98 | 0.97, missed | 4096x4096x4096 per row |
| Linear of 8-bit floats, and backward, by torch.compile's | ≥ 0.90 | 0.95, met | Linear of 8 rows |
| MLP step by eager PyTorch's | ≥ 3.00 | 4.00, met | batch 64 |
| captured MLP step by that of PyTorch's CUDA graph | ≥ 1.00 | not measured |  |
| memory-bound kernels by copying | ≥ 0.85 | 0.90, met | bfloat16 add 16384x4096 |
| norms of rows of 768 elements by copying | ≥ 0.80 | 0.80, met | bfloat16 layernorm 32768x768 |
| all-reduce of two ranks on one GPU by copying | ≥ 0.85 | 0.90, met | 256.00 MiB |
| µs of a small operation on the host without the launch | ≤ 0.70 | 0.75, missed | without the launch, 2x+1 |
`, out.String())
}

// If captured steps do something other than plain ones, they have no rate.
func TestCapturedStepsAreChecked(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	for name, broken := range map[string]bool{"right": false, "broken": true} {
		m := &meter{dev: dev, section: "mlp", small: true, block: map[tensor.DType]tensor.Tensor{}}
		made := 0
		_, err := m.addSteps("steps/s", 1, func() *training {
			made++
			t := m.mlp(64)
			if broken && made == 2 { // the one that is captured
				t.opt.SetLR(1e-3)
			}
			return t
		}, func(t *training) error {
			_, err := t.losses(5)
			return err
		})
		var whats []string
		for _, r := range m.rows {
			whats = append(whats, r.what)
		}
		if !broken {
			require.NoError(t, err, name)
			assert.Equal(t, []string{"batch 64", "batch 64, captured"}, whats)
			continue
		}
		assert.ErrorContains(t, err, "batch 64, captured: bench: after 5 steps the loss is ")
		assert.Equal(t, []string{"batch 64"}, whats)
	}
}

// The cost of an operation without the launch is the difference of two rows.
func TestHostCost(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, closer, err := openDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, device: "cuda", section: "host", small: true, length: 1e-3, block: map[tensor.DType]tensor.Tensor{}}
	require.NoError(t, measureHost(m))
	require.Len(t, m.rows, 3)
	op, launch, cost := m.rows[0], m.rows[1], m.rows[2]
	assert.Equal(t, []string{"ops/s", "launches/s", "µs/op"}, []string{op.unit, launch.unit, cost.unit})
	assert.InDelta(t, 1e6/op.median-1e6/launch.median, cost.median, 1e-6)
	t.Logf("%.4g %s, %.4g %s, %.4g %s", op.median, op.unit, launch.median, launch.unit, cost.median, cost.unit)

	on := dev.(*cuda.Device)
	empty, err := bareLaunch(on)
	require.NoError(t, err)
	require.NoError(t, on.Bind())
	defer on.Unbind()
	before := on.GPU().Stats().Launches
	empty()
	assert.Equal(t, int64(1), on.GPU().Stats().Launches-before)
	require.NoError(t, dev.Queue(0).Sync())
}

// GPT-2 has a row of captured steps on a device that times algorithms, if they are right.
func TestTunedSteps(t *testing.T) {
	emu.Start(t, emu.Config{})
	folder := t.TempDir() // with the kernels that are compiled already, and without choices
	kernels, err := filepath.Glob(filepath.Join(gpu.CacheDir(), "*.cubin"))
	require.NoError(t, err)
	for _, kernel := range kernels {
		require.NoError(t, os.Symlink(kernel, filepath.Join(folder, filepath.Base(kernel))))
	}
	t.Setenv("RINGO_CUDA_CACHE", folder)
	dev, closer, err := openDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, device: "cuda", section: "gpt2", small: true, block: map[tensor.DType]tensor.Tensor{}}
	require.NoError(t, measureGPT2(m))
	const name = "2 layers of 32, batch 2, length 16"
	var whats []string
	for _, r := range m.rows {
		whats = append(whats, r.what)
	}
	assert.Equal(t, []string{name + ", first loss", name + ", loss after 20 steps", name, name + ", captured", name + ", captured, tuned"},
		whats)
	choices, err := filepath.Glob(filepath.Join(folder, "gemm-*.txt"))
	require.NoError(t, err)
	assert.NotEmpty(t, choices, "algorithms were timed")

	config, batch := m.gpt2()
	m.rows = nil
	err = m.tuned(func(on *meter) error {
		assert.NotSame(t, dev, on.dev)
		return on.addCaptured(", tuned", "tokens/s", 1, on.gpt(config, batch, on.values),
			progress{steps: 1, loss: 2 * math.Log(64), within: likePyTorch})
	})
	assert.ErrorContains(t, err, name+", captured, tuned: bench: after 1 steps the loss is ")
	assert.Empty(t, m.rows)
}

// TestTorchStops: if Python hangs, ends or fails in a section, its rows are kept, and the next section gets a new one.
func TestTorchStops(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("this test needs bash")
	}
	python := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(python, []byte(`#!/usr/bin/env bash
echo "started at $$"
while read -r section; do
	printf '%s\tcase\teager\tGB/s\t2\t1\t3\n' "$section"
	case $section in
	hangs) sleep 20 2>/dev/null & wait ;;
	ends) exit ;;
	fails) echo "end RuntimeError: no memory" ;;
	nonsense) echo 1 2 ;;
	*) echo "end " ;;
	esac
done
`), 0o755))
	o := &options{device: "cpu", python: python, deadline: time.Now().Add(time.Hour), logs: t.TempDir()}
	other, err := o.startTorch(time.Hour)
	require.NoError(t, err)
	defer other.close()
	limit := &other.(*torch).most
	for name, want := range map[string]string{
		"hangs": "stopped after 1s", "ends": "ended within the section", "fails": "RuntimeError: no memory", "nonsense": "1 fields instead of 7",
	} {
		before := other.about()
		if name == "hangs" {
			*limit = time.Second
		}
		rows, err := other.measure(name)
		*limit = time.Hour
		assert.ErrorContains(t, err, want, name)
		assert.Equal(t, []row{{name, "case", "eager", "GB/s", 2, 1, 3}}, rows)
		for range 2 {
			rows, err = other.measure("works")
			require.NoError(t, err)
			assert.Equal(t, []row{{"works", "case", "eager", "GB/s", 2, 1, 3}}, rows)
		}
		assert.NotEqual(t, before, other.about(), "another Python")
	}
}
