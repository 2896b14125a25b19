package measure

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// If captured steps do something other than plain ones, they have no rate.
func TestCapturedStepsAreChecked(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	for name, broken := range map[string]bool{"right": false, "broken": true} {
		m := &meter{dev: dev, section: "mlp", small: true}
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
			whats = append(whats, r.What)
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
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, device: "cuda", section: "host", small: true, length: 1e-3}
	require.NoError(t, measureHost(m))
	require.Len(t, m.rows, 3)
	op, launch, cost := m.rows[0], m.rows[1], m.rows[2]
	assert.Equal(t, []string{"ops/s", "launches/s", "µs/op"}, []string{op.Unit, launch.Unit, cost.Unit})
	assert.InDelta(t, 1e6/op.Median-1e6/launch.Median, cost.Median, 1e-6)
	t.Logf("%.4g %s, %.4g %s, %.4g %s", op.Median, op.Unit, launch.Median, launch.Unit, cost.Median, cost.Unit)

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
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, device: "cuda", section: "gpt2", small: true}
	const name = "2 layers of 32, batch 2, length 16"
	if reliability.Long(t) || emu.OnGPU() {
		require.NoError(t, measureGPT2(m))
		var whats []string
		for _, r := range m.rows {
			whats = append(whats, r.What)
		}
		assert.Equal(t, []string{name + ", float32, first loss", name + ", float32, loss after 20 steps",
			name + ", first loss", name + ", loss after 5 steps", name, name + ", captured", name + ", captured, tuned"}, whats)
	}

	config, batch := m.gpt2()
	m.rows = nil
	err = m.tuned(func(on *meter) error {
		assert.NotSame(t, dev, on.dev)
		return on.addCaptured(", tuned", "tokens/s", 1, on.gpt(config, batch, tensor.BFloat16),
			progress{steps: 1, loss: 2 * math.Log(64), within: likePyTorch})
	})
	assert.ErrorContains(t, err, name+", captured, tuned: bench: after 1 steps the loss is ")
	assert.Empty(t, m.rows)
	choices, err := filepath.Glob(filepath.Join(folder, "gemm-*.txt"))
	require.NoError(t, err)
	assert.NotEmpty(t, choices, "algorithms were timed")
}

func TestLongTunedSteps(t *testing.T) { reliability.AsLong(t, TestTunedSteps) }

// Of 8-bit floats, the products and the steps of a Linear have rows, if they are right.
func TestFloat8Section(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, device: "cuda", section: "float8", small: true}
	require.NoError(t, measureFloat8(m))
	var found []string
	for _, r := range m.rows {
		found = append(found, r.What+" "+r.Unit)
		assert.Positive(t, r.Median, r.What)
	}
	assert.Equal(t, []string{"32x64x48 per tensor TFLOP/s", "32x64x48 per row TFLOP/s",
		"Linear of 32 rows, 64 to 48 per tensor, and backward TFLOP/s", "Linear of 32 rows, 64 to 48 per row, and backward TFLOP/s"}, found)

	multiply := &dev.Kernels()[ops.OpScaledMM][tensor.BFloat16]
	right := *multiply
	defer func() { *multiply = right }()
	for what, change := range map[string]func(a *tensor.Args){
		"the scales of the other operand": func(a *tensor.Args) { a.X[3] = a.X[4] },
		"the wrong format":                func(a *tensor.Args) { a.I[0] = 1 - a.I[0] },
		"no longer the last row":          func(a *tensor.Args) { a.Dim[0]-- },
	} {
		*multiply = func(q tensor.Queue, a *tensor.Args) {
			old := *a
			change(a)
			right(q, a)
			*a = old
		}
		m.rows = nil
		err := measureFloat8(m)
		assert.ErrorContains(t, err, "Linear of 32 rows, 64 to 48 per row, and backward: ", what)
		assert.NotContains(t, Print(io.Discard, m.rows), "per row", what)
	}
}

// Operands of a product with other keys have independent signs, so its sums are much smaller than those of the magnitudes.
func TestOperandsDiffer(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	m := &meter{dev: dev}
	x, w := tensor.Floats(m.random(1, tensor.BFloat16, 4096)), tensor.Floats(m.random(2, tensor.BFloat16, 4096))
	sum, size := 0., 0.
	for i := range x {
		sum, size = sum+x[i]*w[i], size+math.Abs(x[i]*w[i])
	}
	assert.Less(t, math.Abs(sum), 0.1*size)
	assert.InDelta(t, 1024, size, 100)
	uneven := tensor.Floats(m.uneven(1, 2, 4096))
	assert.Greater(t, math.Abs(slices.Max(uneven[:4096])-slices.Max(uneven[4096:])), 0.05, "rows differ in size")
}

// TestPassesAreChecked: a kernel whose last element is wrong has no rate. Convolutions have rates on a host, too.
func TestPassesAreChecked(t *testing.T) {
	emu.Start(t, emu.Config{})
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	for _, c := range []struct {
		op     tensor.Op
		dtype  tensor.DType
		run    func(m *meter) error
		output int
		what   string
	}{
		{ops.OpConv2d, tensor.Float32, measureConv, 0, "float32, 2 pictures of 6x6, 3 to 5 channels, forward"},
		{ops.OpConv2d, tensor.BFloat16, measureConv, 0, "bfloat16, 2 pictures of 6x6, 4 to 6 channels, forward"},
		{ops.OpConv2dGradX, tensor.Float32, measureConv, 0, "float32, 2 pictures of 6x6, 3 to 5 channels, gradient of x"},
		{ops.OpConv2dGradX, tensor.BFloat16, measureConv, 0, "bfloat16, 2 pictures of 6x6, 4 to 6 channels, gradient of x"},
		{ops.OpConv2dGradW, tensor.Float32, measureConv, 0, "float32, 2 pictures of 6x6, 3 to 5 channels, gradient of w"},
		{ops.OpConv2dGradW, tensor.BFloat16, measureConv, 0, "bfloat16, 2 pictures of 6x6, 4 to 6 channels, gradient of w"},
		{ops.OpLayerNormGrad, tensor.BFloat16, halfNorm, 0, "bfloat16 layernorm gradient 33x24"},
		{ops.OpLayerNormGrad, tensor.BFloat16, halfNorm, 1, "bfloat16 layernorm gradient 33x24"},
		{ops.OpLayerNormGrad, tensor.BFloat16, halfNorm, 2, "bfloat16 layernorm gradient 33x24"},
		{ops.OpCrossEntropyBoth, tensor.BFloat16, halfLogits, 0, "bfloat16 cross-entropy and gradient 5x40"},
		{ops.OpCrossEntropyBoth, tensor.BFloat16, halfLogits, 2, "bfloat16 cross-entropy and gradient 5x40"},
	} {
		m := &meter{dev: dev, device: "cuda", small: true}
		require.NoError(t, c.run(m), c.what)
		require.Contains(t, Print(io.Discard, m.rows), c.what+"\tringo\t")

		kernel := &dev.Kernels()[c.op][c.dtype]
		right := *kernel
		*kernel = func(q tensor.Queue, a *tensor.Args) {
			right(q, a)
			size := a.DT[c.output].Size()
			last := gpu.Ptr(uintptr(a.X[c.output])) + gpu.Ptr((a.Len[c.output]*size-1)&^3)
			must(q.(*cuda.Queue).Stream().Fill32(last, math.Float32bits(1.5), 1))
		}
		m.rows = nil
		assert.ErrorContains(t, c.run(m), c.what+": ", "output %d", c.output)
		assert.NotContains(t, Print(io.Discard, m.rows), c.what)
		*kernel = right
	}
}

func halfNorm(m *meter) error   { return m.normGradient(tensor.BFloat16, 33, 24) }
func halfLogits(m *meter) error { return m.crossEntropy(tensor.BFloat16, 5, 40) }

// TestDevices opens GPUs as ranks do, and measures the operations that only move bytes.
func TestDevices(t *testing.T) {
	emu.Start(t, emu.Config{}) // two devices
	open, err := dist.Devices("cuda")
	require.NoError(t, err)
	for local, want := range []string{"cuda:0", "cuda:1", "cuda:0"} {
		dev, err := open(local, 1)
		require.NoError(t, err)
		assert.Equal(t, want, fmt.Sprint(dev))
		require.NoError(t, dev.(io.Closer).Close())
	}
	dev, closer, err := OpenDevice("cuda")
	require.NoError(t, err)
	defer closer()
	m := &meter{dev: dev, device: "cuda", section: "copy", small: true}
	require.NoError(t, measureCopy(m))
	require.NoError(t, measureAllReduce(m))
	require.Len(t, m.rows, 1+1+3*2)
	for _, r := range m.rows {
		assert.Positive(t, r.Median, r.What)
	}
	assert.Equal(t, "256.00 KiB, two ranks on one device", m.rows[1].What)
	assert.Equal(t, []string{"8.00 KiB, two ranks on one device, oneshot", "8.00 KiB, two ranks on one device, twoshot"},
		[]string{m.rows[2].What, m.rows[3].What})

	_, _, err = OpenDevice("tpu")
	assert.ErrorContains(t, err, `no device "tpu": there are cpu, cuda`)
}

func TestParseRow(t *testing.T) {
	r, err := ParseRow("gemm\tfloat32 1x2x3\tTF32\tTFLOP/s\t2.5\t2\t3e2")
	require.NoError(t, err)
	assert.Equal(t, Row{"gemm", "float32 1x2x3", "TF32", "TFLOP/s", 2.5, 2, 300}, r)
	for _, line := range []string{"", "a\tb", "a\tb\tc\td\t1\t2\tx"} {
		_, err := ParseRow(line)
		assert.Error(t, err, line)
	}
}

// If losses differ from PyTorch's, Ringo's rates are left out.
func TestAgreeing(t *testing.T) {
	figures := func(section, what, variant, unit string, x float64) Row {
		return Row{section, what, variant, unit, x, x, x}
	}
	rows := []Row{
		figures("gpt2", "case, first loss", "ringo", LossUnit, 10.82),
		figures("gpt2", "case, loss after 5 steps", "ringo", LossUnit, 10.72),
		figures("gpt2", "case", "ringo", "tokens/s", 100),
		figures("gpt2", "case, first loss", "eager", LossUnit, 10.83),
		figures("gpt2", "case, loss after 5 steps", "eager", LossUnit, 10.71),
		figures("gpt2", "case", "eager", "tokens/s", 90),
	}
	got, err := Agreeing(rows)
	require.NoError(t, err)
	assert.Len(t, got, 6)
	for _, wrong := range []float64{9.5, 10.65, 10.8, math.NaN()} { // of 10.65 and 10.8, only what the loss has lost differs
		rows[4].Median = wrong
		got, err = Agreeing(append([]Row(nil), rows...))
		assert.ErrorContains(t, err, "case, loss after 5 steps: 10.72, by PyTorch from the same weights ")
		assert.Len(t, got, 5)
		assert.NotContains(t, Print(io.Discard, got), "ringo\ttokens/s")
	}
}

// The first loss of a new model is that of guessing and what its logits add. For GPT-2 an H100 had 10.977, as PyTorch, and 6.297 for the
// small one; the loss of guessing is 10.826 and 6.238.
func TestFirstLoss(t *testing.T) {
	assert.InDelta(t, 10.977, firstLoss(gpt.Config{Vocab: 50304, Width: 768}), nearFirst/10)
	assert.InDelta(t, 6.297, firstLoss(gpt.Config{Vocab: 512, Width: 256}), nearFirst/3)
	dev := cpu.New(1)
	defer dev.Close()
	config := gpt.Config{Vocab: 512, Positions: 128, Width: 256, Layers: 1, Heads: 4, Tied: true}
	m := &meter{dev: dev}
	step := m.gpt(config, 2, tensor.Float32)
	assert.InDelta(t, firstLoss(config), step.loss().Item(), nearFirst)
	step.tape.Reset()
	require.NoError(t, step.learnt(config))
	config.Vocab /= 2
	assert.ErrorContains(t, step.learnt(config), "that of a new model 5.6264 at most")
}
