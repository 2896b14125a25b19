package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

// mmaCrossed are cases on tensor cores: lengths around tiles, more queries than keys and the reverse, heads that share keys, offsets that
// hide all keys from some queries, or none, and masks.
func mmaCrossed(t *testing.T) (cases []crossed) {
	wide := []shape{
		{batch: 2, tq: 65, tk: 129, heads: 6, kv: 2, hd: 16, offset: 40, causal: true},
		{batch: 1, tq: 129, tk: 65, heads: 2, kv: 1, hd: 128, offset: 5, causal: true},
		{batch: 1, tq: 63, tk: 200, heads: 2, kv: 1, hd: 64},
	}
	tq, most := 150, 64
	if !long(t) {
		wide, tq, most = nil, 70, 32
	}
	for _, s := range append([]shape{
		{batch: 2, tq: 1, tk: 65, heads: 2, kv: 2, hd: 64, offset: 64, causal: true},
		{batch: 2, tq: 3, tk: 130, heads: 4, kv: 2, hd: 16, offset: 127, causal: true},
		{batch: 1, tq: 130, tk: 33, heads: 3, kv: 1, hd: 48, offset: -97, causal: true},
		{batch: 1, tq: 70, tk: 70, heads: 2, kv: 2, hd: 32, offset: -200, causal: true},
		{batch: 1, tq: 5, tk: 70, heads: 2, kv: 1, hd: 80, offset: 1000, causal: true},
		{batch: 2, tq: 67, tk: 40, heads: 4, kv: 1, hd: 32, drop: 0.3},
		{batch: 1, tq: 67, tk: 90, heads: 2, kv: 1, hd: 64, offset: 23, causal: true, drop: 0.3},
	}, wide...) {
		cases = append(cases, crossed{shape: s})
	}
	lengths := ints(4, func(b int) int { return []int{33, 0, 70, 64}[b] })
	qdocs, kdocs := ints(4*tq, func(i int) int { return i%tq/41 + i/tq }), ints(4*70, func(j int) int { return j%70/30 + j/70 })
	for i, c := range []crossed{{lengths: lengths}, {qdocs: qdocs, kdocs: kdocs}, {lengths: lengths, qdocs: qdocs, kdocs: kdocs}} {
		for _, causal := range []bool{true, false} {
			if !long(t) && causal != (i == 1) {
				continue
			}
			c.shape = shape{batch: 4, tq: tq, tk: 70, heads: 2, kv: 1, hd: min(16<<i, most), offset: -20, causal: causal, drop: 0.3 * float64(i%2)}
			cases = append(cases, c)
		}
	}
	cases = append(cases, crossed{shape: shape{batch: 1, tq: 5, tk: 70, heads: 2, kv: 1, hd: 32}, apart: 5})
	if reliability.Long(t) {
		r := rng(9)
		for range 40 {
			kv := 1 + r.IntN(2)
			cases = append(cases, crossed{shape: shape{1 + r.IntN(2), 1 + r.IntN(300), 1 + r.IntN(300), kv * (1 + r.IntN(3)), kv,
				16 * (1 + r.IntN(8)), r.IntN(400) - 200, r.IntN(4) > 0, 0.4 * float64(r.IntN(2))}})
		}
	}
	return cases
}

// tolerance is mmaTolerance, wider where the gradient of a key is a sum over many queries: of n terms with a deviation of about 0.2, more
// where some are dropped, roundings to 16 bits have one of 2^-9·0.2·√n. It allows four of these.
func (s shape) tolerance() tolerance {
	tol := mmaTolerance
	tol.floor = max(1, 0.1*math.Sqrt(float64(s.tq*s.heads/s.kv))/(1-s.drop))
	return tol
}

// TestCrossAttentionOnTensorCores compares with the CPU. Threads in the other order give the same bits.
func TestCrossAttentionOnTensorCores(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	var wants, gots [][]operand
	for _, reverse := range []bool{false, true} {
		emu.Start(t, emu.Config{Reverse: reverse, Banks: true})
		dev := open(t, 0)
		for i, c := range mmaCrossed(t) {
			if reverse && (i%3 == 0 || i%3 == 1 && !long(t)) {
				continue
			}
			d := []tensor.DType{tensor.BFloat16, tensor.Float16}[i%2]
			name := fmt.Sprintf("%v %+v", d, c.shape)
			if !reverse {
				wants = append(wants, c.run(t, host, d, nil))
			}
			got := c.run(t, dev, d, wants[i])
			requireNear(t, wants[i], got, c.tolerance(), name)
			if reverse {
				require.Equal(t, gots[i], got, name)
			}
			gots = append(gots, got)
		}
		require.NotContains(t, cuda.Compiled(dev, "attention"), "attention", "the plain kernel")
		require.NotContains(t, cuda.Compiled(dev, "attention"), "attention_delta", "the plain kernel")
	}
}

func TestLongCrossAttentionOnTensorCores(t *testing.T) {
	reliability.AsLong(t, TestCrossAttentionOnTensorCores)
}

// TestCrossTensorCoresAndPlainKernel compares the two, and two runs.
func TestCrossTensorCoresAndPlainKernel(t *testing.T) {
	dev := device(t)
	for i, c := range mmaCrossed(t) {
		if i%3 == 2 {
			got := c.run(t, dev, tensor.BFloat16, nil)
			require.Equal(t, got, c.run(t, dev, tensor.BFloat16, nil))
			cuda.Plain(dev, true)
			requireNear(t, c.run(t, dev, tensor.BFloat16, got), got, c.tolerance(), fmt.Sprintf("%+v", c.shape))
			cuda.Plain(dev, false)
		}
	}
}

func TestLongCrossTensorCoresAndPlainKernel(t *testing.T) {
	reliability.AsLong(t, TestCrossTensorCoresAndPlainKernel)
}

// A device computes CrossAttention of queries, keys and values that are qkv's to the bit as Attention of qkv.
func TestCrossAttentionIsAttention(t *testing.T) {
	h := heads{batch: 2, steps: 70, heads: 2, hd: 32, causal: true, drop: 0.3}
	dev, width := device(t), h.heads*h.hd
	r := rng(6)
	normal := func(n int) operand {
		return values(tensor.BFloat16, n, func(int) float64 { return r.NormFloat64() })
	}
	n, ns := h.batch*h.steps*width, h.batch*h.heads*h.steps
	qkv, gout := normal(3*n), normal(n)
	part := func(of operand, p int) operand {
		return values(tensor.BFloat16, n, func(i int) float64 { return of.at(i/width*3*width + p*width + i%width) })
	}
	sums, none := func() operand { return blank(tensor.Float32, ns) }, operand{}
	empty := func(n int) operand { return blank(tensor.BFloat16, n) }
	want := launch{op: ops.OpAttention, d: tensor.BFloat16, outs: 2, x: []operand{empty(n), sums(), qkv}, set: h.set}.on(t, dev)
	grad := launch{op: ops.OpAttentionGrad, d: tensor.BFloat16, outs: 1, x: []operand{empty(3 * n), qkv, want[0], gout, want[1]},
		set: h.set}.on(t, dev)[0]
	c := crossed{shape: shape{batch: h.batch, tq: h.steps, tk: h.steps, heads: h.heads, kv: h.heads, hd: h.hd, causal: true, drop: h.drop}}
	q, k, v := part(qkv, 0), part(qkv, 1), part(qkv, 2)
	got := launch{op: ops.OpCrossAttention, d: tensor.BFloat16, outs: 2, x: []operand{empty(n), sums(), q, k, v, none, none, none},
		set: c.set}.on(t, dev)
	require.Equal(t, want[:2], got[:2])
	grads := launch{op: ops.OpCrossAttentionGrad, d: tensor.BFloat16, outs: 3,
		x: []operand{empty(n), empty(n), empty(n), q, k, v, got[0], gout, got[1], none, none, none, none}, set: c.set}.on(t, dev)
	for p := range 3 {
		require.Equal(t, part(grad, p), grads[p])
	}
}

// What tensor cores cannot do of cross-attention is the plain kernel's: memory of each operand that begins at an odd place.
func TestCrossAttentionWithoutTensorCores(t *testing.T) {
	c := crossed{shape: shape{batch: 1, tq: 5, tk: 6, heads: 2, kv: 1, hd: 16}}
	const d = tensor.BFloat16
	nq, nk := c.tq*c.heads*c.hd, c.tk*c.kv*c.hd
	for _, l := range []launch{
		{op: ops.OpCrossAttention, outs: 2,
			x: []operand{blank(d, nq), blank(tensor.Float32, 10), blank(d, nq), blank(d, nk), blank(d, nk), {}, {}, {}}},
		{op: ops.OpCrossAttentionGrad, outs: 3, x: []operand{blank(d, nq), blank(d, nk), blank(d, nk), blank(d, nq), blank(d, nk),
			blank(d, nk), blank(d, nq), blank(d, nq), blank(tensor.Float32, 10), {}, {}, {}, blank(tensor.Float32, 10)}},
	} {
		l.d, l.set = d, c.set
		for i, x := range l.x {
			if x.bytes == nil {
				continue
			}
			l.x[i].offset = 1
			dev := device(t)
			l.on(t, dev)
			l.x[i].offset = 0
			compiled := cuda.Compiled(dev, "attention_mma")
			require.Equal(t, x.d == tensor.Float32, len(compiled) > 0, "%v, operand %d: %v", l.op, i, compiled)
		}
	}
}

// TestLongDeletedGuardInCrossAttention takes guards out of the kernels that only cross-attention needs.
func TestLongDeletedGuardInCrossAttention(t *testing.T) {
	reliability.SkipUnlessLong(t)
	emu.Only(t, "a GPU may be right by chance")
	host := cpu.New(1)
	defer host.Close()
	behind := crossed{shape: shape{batch: 1, tq: 70, tk: 70, heads: 2, kv: 1, hd: 32, offset: -10, causal: true}}
	ahead := crossed{shape: shape{batch: 1, tq: 200, tk: 200, heads: 2, kv: 1, hd: 32, offset: 20, causal: true}}
	padded := crossed{shape: shape{batch: 2, tq: 70, tk: 70, heads: 2, kv: 1, hd: 32}, lengths: ints(2, func(b int) int { return 50 - 50*b })}
	low := crossed{shape: shape{batch: 1, tq: 5, tk: 70, heads: 2, kv: 1, hd: 32}, apart: 5}
	docs := crossed{shape: shape{batch: 1, tq: 70, tk: 40, heads: 2, kv: 1, hd: 32}, qdocs: ints(70, func(i int) int { return i / 30 }),
		kdocs: ints(40, func(j int) int { return j / 15 })}
	dev, wants := device(t), map[string][]operand{}
	for _, x := range []struct {
		c              crossed
		file, from, to string
	}{
		{behind, "attention_mma.cu", "total == 0 ? 0 : 1 / total", "1 / total"},
		{behind, "attention_mma_q.cu", "lse[n] == -INFINITY ? INFINITY : lse[n] * LOG2E", "lse[n] * LOG2E"},
		{behind, "attention_mma_q.cu", "dlse ? sum - dlse[n] : sum", "sum"},
		{ahead, "attention_mma_kv.cu", "max(0, j0 - t.offset)", "j0"},
		{behind, "attention_mma_kv.cu", "q_dO.from_x += UNITS;", ""},
		{behind, "attention_mma_kv.cu", "q_dO.from_y += UNITS;", ""},
		{behind, "attention_mma_kv.cu", "      stats += t.steps;", ""},
		{padded, "attention_mma_kv.cu", "warp_first + 16 * M > min(t.keys, i0 + 1 + t.offset)", "false"},
		{padded, "attention_mma_kv.cu", "j0, (int)h.keys, k, dk", "j0, t.keys, k, dk"},
		{padded, "attention_mma_kv.cu", "j0, (int)h.keys, v, dv", "j0, t.keys, v, dv"},
		{low, "attention_mma_q.cu", "if (j0 + BLOCK_N > min(t.keys, warp_first + 1 + t.offset)) mask(p, i0, j0, t);", ""},
		{docs, "attention_mma_kv.cu", "docs.mask(p, j0, i0);", ""},
		{docs, "attention_mma_q.cu", "docs.mask(p, i0, j0);", ""},
		{docs, "attention_mma.cu", "docs.mask(s, i0, j0);", ""},
	} {
		name := fmt.Sprintf("%+v", x.c)
		want, known := wants[name]
		if !known {
			want = x.c.run(t, host, tensor.BFloat16, nil)
			requireNear(t, want, x.c.run(t, dev, tensor.BFloat16, want), mmaTolerance, x.file)
			wants[name] = want
		}
		require.NoError(t, cuda.Alter(dev, x.file, x.from, x.to))
		got, near := x.c.run(t, dev, tensor.BFloat16, want), true
		for i, w := range want {
			near = near && differs(w, got[i], mmaTolerance) < 0
		}
		assert.False(t, near, "nobody noticed that %s has %q in place of %q", x.file, x.to, x.from)
		require.NoError(t, cuda.Alter(dev, x.file, "", ""))
	}
}

// Models train in bfloat16 on tensor cores alone, with the losses of the CPU, and their steps in one cache of keys and values agree.
func TestModelsOnTensorCores(t *testing.T) {
	steps, tokens := 2, 8
	if long(t) {
		steps, tokens = 4, 20
	}
	configs := []gpt.Config{
		{Kind: gpt.Llama, Vocab: 31, Positions: 70, Width: 64, Layers: 1, Heads: 4, KVHeads: 2},
		{Vocab: 31, Positions: 70, Width: 32, Layers: 2, Heads: 2, Tied: true},
	}
	if !long(t) {
		configs = configs[:1]
	}
	for _, config := range configs {
		train := func(dev tensor.Device) (losses []float64) {
			m, err := gpt.New(config)
			require.NoError(t, err)
			opt := optim.NewAdamW(nn.Init(m, dev, tensor.BFloat16, 7), optim.AdamWConfig{LR: 0.01})
			ids := make([]int64, 2*config.Positions)
			for i := range ids {
				ids[i] = int64(i * i % 31)
			}
			tape := tensor.NewTape(dev)
			defer tape.Close()
			for range steps {
				x := tape.Input(tensortest.On(dev, tensor.FromSlice(ids, 2, config.Positions)))
				loss := nn.CrossEntropy(m.Forward(x.Slice(1, 0, config.Positions-1)), x.Slice(1, 1, config.Positions))
				losses = append(losses, loss.Item())
				tape.Backward(loss)
				require.NoError(t, opt.Step())
				tape.Reset()
			}
			for id := range m.Generate(dev, []int{0, 1, 4}, decode.Sampling{Tokens: tokens}) {
				losses = append(losses, float64(id))
			}
			return losses
		}
		host := cpu.New(1)
		defer host.Close()
		dev := device(t)
		require.InDeltaSlice(t, train(host), train(dev), 0.02)
		compiled := cuda.Compiled(dev, "attention")
		require.ElementsMatch(t, []string{"attention_mma", "attention_mma_q", "attention_mma_kv"}, compiled)
	}
}

func TestLongModelsOnTensorCores(t *testing.T) { reliability.AsLong(t, TestModelsOnTensorCores) }
