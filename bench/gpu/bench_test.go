package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/bench/gpu/measure"
)

// figures is a row of Ringo or of another variant: the median, lowest and highest rate; the same in all windows if there is one figure.
func figures(section, what, variant, unit string, median float64, span ...float64) measure.Row {
	r := measure.Row{Section: section, What: what, Variant: variant, Unit: unit, Median: median, Low: median, High: median}
	if len(span) > 0 {
		r.Low, r.High = span[0], span[1]
	}
	return r
}

// measuredRows are results for most targets.
var measuredRows = []measure.Row{
	figures("copy", "4.00 GiB", "eager", "GB/s", 3500),
	figures("copy", "4.00 GiB", "ringo", "GB/s", 3000),
	figures("host", "2x+1", "ringo", "ops/s", 400e3),
	figures("host", measure.Bare+"2x+1", "ringo", "µs/op", 0.75),
	figures("allreduce", "256.00 MiB", "ringo", "GB/s", 2700),
	figures("rows", "bfloat16 add 16384x4096", "ringo", "GB/s", 2700),
	figures("rows", "bfloat16 layernorm 32768x768", "ringo", "GB/s", 2760),
	figures("rows", "bfloat16 layernorm gradient 32768x768", "ringo", "GB/s", 2730),
	figures("rows", "bfloat16 cross-entropy and gradient 32768x50304", "ringo", "GB/s", 2880),
	figures("rows", "float32 rmsnorm 32768x768", "ringo", "GB/s", 2760),
	figures("attention", "4x4096, 16 heads of 128, forward", "ringo", "TFLOP/s", 1),
	figures("attention", "4x4096, 16 heads of 128, and backward", "ringo", "TFLOP/s", 519),
	figures("attention", "4x4096, 16 heads of 128, forward", "cuDNN", "TFLOP/s", 2),
	figures("attention", "4x4096, 16 heads of 128, and backward", "flash", "TFLOP/s", 900),
	figures("attention", "4x4096, 16 heads of 128, and backward", "cuDNN", "TFLOP/s", 500),
	figures("grouped", "32768 rows, 768 to 3072, forward", "ringo", "TFLOP/s", 240),
	figures("grouped", "32768 rows, 768 to 3072, forward", "_grouped_mm", "TFLOP/s", 600),
	figures("grouped", "32768 rows, 768 to 3072, forward", "loop", "TFLOP/s", 6),
	figures("conv", "float32, 128 pictures, forward", "ringo", "TFLOP/s", 30),
	figures("conv", "float32, 128 pictures, gradient of x", "ringo", "TFLOP/s", 10),
	figures("conv", "float32, 128 pictures, forward", "eager", "TFLOP/s", 20),
	figures("conv", "float32, 128 pictures, gradient of x", "TF32", "TFLOP/s", 40),
	figures("conv", "float32, 128 pictures, gradient of x", "eager", "TFLOP/s", 20),
	figures("conv", "bfloat16, 128 pictures, forward", "ringo", "TFLOP/s", 150),
	figures("conv", "bfloat16, 128 pictures, forward", "eager", "TFLOP/s", 120),
	figures("cnn", "batch 128", "ringo", "steps/s", 2000),
	figures("cnn", "batch 128, captured", "ringo", "steps/s", 4000),
	figures("cnn", "batch 128", "eager", "steps/s", 1000),
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
	figures("gpt2", "12 layers, length 1024, captured, tuned", "ringo", "tokens/s", 121),
	figures("gpt2", "12 layers, length 1024", "compiled", "tokens/s", 100),
	figures("gpt2", "12 layers, length 1024", "eager", "tokens/s", 10),
}

func TestTargets(t *testing.T) {
	for _, target := range targets {
		_, err := measure.Named([]string{target.section})
		assert.NoError(t, err)
	}
	var out strings.Builder
	writeTargets(&out, measuredRows)
	assert.Equal(t, `
| target | wanted | measured | worst case |
|---|---|---|---|
| GPT-2 124M, tokens/s by torch.compile's | ≥ 1.20 | 0.95, missed | 12 layers, length 1024 |
| GPT-2 124M captured, tokens/s by torch.compile's | ≥ 1.20 | 1.05, missed | 12 layers, length 1024, captured |
| GPT-2 124M captured and tuned, tokens/s by torch.compile's | ≥ 1.20 | 1.21, met | 12 layers, length 1024, captured, tuned |
| attention, forward and backward, by cuDNN | ≥ 1.00 | 1.04, met | 4x4096, 16 heads of 128, and backward |
| products of groups, forward, by torch._grouped_mm | ≥ 1.00 | 0.40, missed | 32768 rows, 768 to 3072, forward |
| products of groups, and backward, by torch._grouped_mm | ≥ 1.00 | not measured |  |
| matrix products from 2048³ on, by torch.matmul | ≥ 0.98 | 0.97, missed | bfloat16 32768x768x3072 |
| tuned matrix products from 2048³ on, by torch.matmul | ≥ 1.00 | 1.02, met | bfloat16 32768x768x3072, tuned |
| products of 8-bit floats by torch._scaled_mm | ≥ 0.98 | 0.97, missed | 4096x4096x4096 per row |
| Linear of 8-bit floats, and backward, by torch.compile's | ≥ 1.00 | 0.95, missed | Linear of 8 rows |
| convolutions by eager PyTorch's | ≥ 1.00 | 0.50, missed | float32, 128 pictures, gradient of x |
| bfloat16 convolutions by eager PyTorch's | ≥ 1.00 | 1.25, met | bfloat16, 128 pictures, forward |
| CNN step by eager PyTorch's | ≥ 1.00 | 2.00, met | batch 128 |
| CNN steps a second | ≥ 3000 | 2000, missed | batch 128 |
| MLP step by eager PyTorch's | ≥ 3.00 | 4.00, met | batch 64 |
| captured MLP step by that of PyTorch's CUDA graph | ≥ 1.00 | not measured |  |
| memory-bound kernels by copying | ≥ 0.90 | 0.90, met | bfloat16 add 16384x4096 |
| float32 norms of rows of 768 elements by copying | ≥ 0.93 | 0.92, missed | float32 rmsnorm 32768x768 |
| all-reduce of two ranks on one GPU by copying | ≥ 0.85 | 0.90, met | 256.00 MiB |
| µs of a small operation on the host without the launch | ≤ 0.70 | 0.75, missed | without the launch, 2x+1 |
`, out.String())
}

// writeProgram writes a file that can be started. A process that another test starts meanwhile would have it open for writing, and then
// nobody can start it ("text file busy").
func writeProgram(path, text string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, []byte(text), 0o755)
}

// TestTorchStops: if Python hangs, ends or fails in a section, its rows are kept, and the next section gets a new one.
func TestTorchStops(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("this test needs bash")
	}
	python := filepath.Join(t.TempDir(), "python")
	require.NoError(t, writeProgram(python, `#!/usr/bin/env bash
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
`))
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
		assert.Equal(t, []measure.Row{figures(name, "case", "eager", "GB/s", 2, 1, 3)}, rows)
		for range 2 {
			rows, err = other.measure("works")
			require.NoError(t, err)
			assert.Equal(t, []measure.Row{figures("works", "case", "eager", "GB/s", 2, 1, 3)}, rows)
		}
		assert.NotEqual(t, before, other.about(), "another Python")
	}
}
