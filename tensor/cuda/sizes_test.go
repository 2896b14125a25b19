package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// poisoned is an output all of which must be overwritten.
func poisoned(d tensor.DType, n int) operand {
	return values(d, n, func(int) float64 { return math.NaN() })
}

// trained returns output, lse and gradients of attention; the operands depend only on the seed.
func (h heads) trained(t *testing.T, dev tensor.Device, seed uint64) []operand {
	t.Helper()
	const d = tensor.BFloat16
	r := rng(seed)
	n, stats := h.batch*h.steps*h.heads*h.hd, h.batch*h.heads*h.steps
	qkv, gout := values(d, 3*n, func(int) float64 { return r.NormFloat64() }), values(d, n, func(int) float64 { return r.NormFloat64() })
	out := launch{op: tensor.OpAttention, d: d, outs: 2, x: []operand{poisoned(d, n), poisoned(tensor.Float32, stats), qkv},
		set: h.set}.on(t, dev)[:2]
	grads := launch{op: tensor.OpAttentionGrad, d: d, outs: 1, x: []operand{poisoned(d, 3*n), qkv, out[0], gout, out[1]},
		set: h.set}.on(t, dev)
	return append(out, grads[0])
}

// TestAttentionAtRealSizes compares attention on tensor cores with the plain kernel, and two runs: with the lengths of models on a GPU,
// with others on the emulator.
func TestAttentionAtRealSizes(t *testing.T) {
	dev := device(t)
	cases := []heads{{1, 150, 2, 64, true, 0.1}}
	if emu.Real() {
		cases = nil
		for _, steps := range []int{1024, 4096} {
			for _, hd := range []int{64, 128} {
				cases = append(cases, heads{2, steps, 2, hd, true, 0}, heads{2, steps, 2, hd, false, 0}, heads{2, steps, 2, hd, true, 0.1})
			}
		}
	}
	for i, h := range cases {
		name, seed := fmt.Sprintf("%+v", h), uint64(20+i)
		got := h.trained(t, dev, seed)
		require.Equal(t, got, h.trained(t, dev, seed), "another run of %s", name)
		cuda.Plain(dev, true)
		requireNear(t, h.trained(t, dev, seed), got, mmaTolerance, name)
		cuda.Plain(dev, false)
	}
	require.Contains(t, cuda.Compiled(dev, "attention"), "attention_mma")
}

// TestGroupedAtRealSizes does the same with grouped products, as for experts.
func TestGroupedAtRealSizes(t *testing.T) {
	dev := device(t)
	g := grouped{136, 72, []int{100, 0, 33, 1}, true, 0}
	if emu.Real() {
		g = grouped{3072, 768, []int{1000, 0, 2049, 1, 513}, true, 0}
	}
	for _, l := range []launch{g.forward(tensor.BFloat16), g.grad(tensor.BFloat16)} {
		got := l.on(t, dev)
		require.Equal(t, got, l.on(t, dev), "another run of %v", l.op)
		cuda.Plain(dev, true)
		require.Negative(t, differs(l.on(t, dev)[0], got[0], sumsOf(max(g.k, g.rows()))), "%v", l.op)
		cuda.Plain(dev, false)
	}
}
