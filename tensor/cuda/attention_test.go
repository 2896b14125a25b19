package cuda_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// heads is a case of attention.
type heads struct {
	batch, steps, heads, hd int
	causal                  bool
	drop                    float64
}

func (h heads) set(a *tensor.Args) {
	a.Dim = [6]int{h.batch, h.steps, 3 * h.heads * h.hd}
	elems := h.heads * h.steps * h.steps
	a.I = [8]int{h.hd, truth(h.causal), 3*elems + 40 + h.steps%4, 2*elems + 24, elems} // Hopper's kernels begin at multiples of four
	a.F[0], a.F[1], a.Key = 1/math.Sqrt(float64(h.hd)), h.drop, 99
}

func (h heads) agree(t *testing.T, dev tensor.Device, d tensor.DType) {
	t.Helper()
	r := rng(6)
	n, stats := h.batch*h.steps*h.heads*h.hd, h.batch*h.heads*h.steps
	stat := d
	if d.IsHalf() {
		stat = tensor.Float32
	}
	qkv := values(d, 3*n, func(int) float64 { return r.NormFloat64() })
	host := cpu.New(1)
	defer host.Close()
	tol := tolerance{f32: 2e-5, f64: 1e-12, half: 0x1p-6, floor: 0.5}
	forward := launch{op: ops.OpAttention, d: d, outs: 2, x: []operand{blank(d, n), blank(stat, stats), qkv}, set: h.set}
	forward.agree(t, dev, tol)
	out := forward.on(t, host)
	launch{op: ops.OpAttentionGrad, d: d, outs: 1, x: []operand{blank(d, 3*n), qkv, out[0],
		values(d, n, func(int) float64 { return r.NormFloat64() }), out[1]}, set: h.set}.agree(t, dev, tol)
}

// TestAttention is of the plain kernel.
func TestAttention(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		cuda.Plain(dev, true)
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, s := range [][4]int{{1, 1, 1, 1}, {2, 2, 3, 2}, {2, 17, 2, 16}, {1, 32, 1, 8}, {1, 33, 2, 7}, {1, 70, 1, 64}, {1, 40, 1, 130}} {
				for k := range 4 {
					if turn(t, d/2, i+k, 4) {
						heads{s[0], s[1], s[2], s[3], k%2 == 0, 0.3 * float64(k/2)}.agree(t, dev, d)
					}
				}
			}
		})
	})
}

// A key of NaN reaches the queries that see it and no others.
func TestAttentionOfNaN(t *testing.T) {
	dev := device(t)
	const steps, bad = 50, 40
	qkv := values(tensor.Float32, 3*steps, func(i int) float64 {
		if i == 3*bad+2 {
			return math.NaN()
		}
		return float64(i % 7)
	})
	h := heads{1, steps, 1, 1, true, 0}
	l := launch{op: ops.OpAttention, d: tensor.Float32, outs: 2,
		x: []operand{blank(tensor.Float32, steps), blank(tensor.Float32, steps), qkv}, set: h.set}
	out := l.on(t, dev)[0]
	for i := range steps {
		require.Equal(t, i >= bad, math.IsNaN(out.at(i)), i)
	}
}

func TestHeadsThatDoNotFit(t *testing.T) {
	dev := device(t)
	tape := tensor.NewTape(dev)
	x := tape.Input(tensor.FromSlice(make([]float32, 3*4096), 1, 1, 3*4096))
	require.PanicsWithError(t, "attention: cuda:0: heads of 4096 features do not fit: too many for float32", func() {
		ops.Attention(x, 4096, ops.AttentionOptions{})
	})
}

// shape is a case of cross-attention without masks.
type shape struct {
	batch, tq, tk, heads, kv, hd, offset int
	causal                               bool
	drop                                 float64
}

// crossed is a case of cross-attention.
type crossed struct {
	shape
	lengths, qdocs, kdocs operand // none: absent
	scores                ops.AttentionScores
	apart                 float64 // the mean of queries, and less that of keys: scores are far below 0
}

func (c crossed) set(a *tensor.Args) {
	a.Dim = [6]int{c.batch, c.tq, c.heads * c.hd, c.tk, c.kv * c.hd}
	elems := c.heads * c.tq * c.tk
	a.I = [8]int{c.hd, truth(c.causal), 3*elems + 40 + c.tk%4, 2*elems + 24, elems, c.scores.Window, 0, c.offset}
	a.F[0], a.F[1], a.F[2], a.Key = 1/math.Sqrt(float64(c.hd)), c.drop, c.scores.SoftCap, 99
}

// run returns output, logarithmic sums and the gradients of queries, keys and values. The gradients are those of given outputs, or of its
// own. Keys and values behind a length are NaN.
func (c crossed) run(t *testing.T, dev tensor.Device, d tensor.DType, of []operand) []operand {
	t.Helper()
	r, stat := rng(8), d
	if d.IsHalf() {
		stat = tensor.Float32
	}
	around := func(mean float64, n int) operand {
		return values(d, n, func(int) float64 { return mean + r.NormFloat64() })
	}
	nq, nk, ns := c.batch*c.tq*c.heads*c.hd, c.batch*c.tk*c.kv*c.hd, c.batch*c.heads*c.tq
	q, k, v := around(c.apart, nq), around(-c.apart, nk), around(0, nk)
	for b := range c.lengths.n() {
		for i := (b*c.tk + int(c.lengths.at(b))) * c.kv * c.hd; i < (b+1)*c.tk*c.kv*c.hd; i++ {
			k.set(i, math.NaN())
			v.set(i, math.NaN())
		}
	}
	out := launch{op: ops.OpCrossAttention, d: d, outs: 2,
		x: []operand{stale(d, nq), stale(stat, ns), q, k, v, c.lengths, c.qdocs, c.kdocs}, set: c.set}.exactly(t, dev)[:2]
	if of == nil {
		of = out
	}
	grads := launch{op: ops.OpCrossAttentionGrad, d: d, outs: 3, x: []operand{stale(d, nq), stale(d, nk), stale(d, nk), q, k, v, of[0],
		around(0, nq), of[1], c.lengths, c.qdocs, c.kdocs, values(stat, ns, func(int) float64 { return r.NormFloat64() })},
		set: c.set}.exactly(t, dev)
	return append(out, grads[:3]...)
}

// agree compares with the CPU.
func (c crossed) agree(t *testing.T, dev tensor.Device, d tensor.DType, tol tolerance) {
	t.Helper()
	host := cpu.New(1)
	defer host.Close()
	want := c.run(t, host, d, nil)
	requireNear(t, want, c.run(t, dev, d, want), tol, fmt.Sprintf("%v %+v", d, c.shape))
}

var plainTolerance = tolerance{f32: 2e-5, f64: 1e-12, half: 0x1p-6, floor: 0.5}

// TestCrossAttention has more tiles of queries than of keys, and the reverse, heads that share keys, and queries that see none.
func TestCrossAttention(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		cuda.Plain(dev, true)
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, s := range []shape{
				{batch: 2, tq: 3, tk: 70, heads: 2, kv: 1, hd: 5, offset: 67}, {batch: 1, tq: 70, tk: 33, heads: 4, kv: 2, hd: 8, offset: -20},
				{batch: 1, tq: 40, tk: 40, heads: 3, kv: 3, hd: 16, offset: 10}, {batch: 1, tq: 1, tk: 65, heads: 2, kv: 2, hd: 70, offset: 64},
			} {
				s.causal, s.drop = i != 3, 0.3*float64(i%2)
				crossed{shape: s}.agree(t, dev, d, plainTolerance)
			}
		})
	})
}

func ints(n int, f func(i int) int) operand {
	return values(tensor.Int64, n, func(i int) float64 { return float64(f(i)) })
}

// TestCrossAttentionMasks has lengths inside and at the end of tiles, all keys and none, and documents that end inside tiles.
func TestCrossAttentionMasks(t *testing.T) {
	lengths := ints(4, func(b int) int { return []int{33, 0, 70, 64}[b] })
	qdocs, kdocs := ints(4*40, func(i int) int { return i%40/11 + i/40 }), ints(4*70, func(j int) int { return j%70/30 + j/70 })
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, c := range []crossed{{lengths: lengths}, {qdocs: qdocs, kdocs: kdocs}, {lengths: lengths, qdocs: qdocs, kdocs: kdocs}} {
				c.batch, c.tq, c.tk, c.heads, c.kv, c.hd, c.offset = 4, 40, 70, 2, 1, 5, 20
				for _, c.causal = range []bool{true, false} {
					if c.drop = 0.3 * float64(i%2); turn(t, d/2, i+truth(c.causal), 2) {
						c.agree(t, dev, d, plainTolerance)
					}
				}
			}
		})
	})
}

// Windows of one key, of a tile, and that end before the keys; caps of scores; and both with masks. Tensor cores leave them to this kernel.
func TestAttentionWindows(t *testing.T) {
	lengths := ints(4, func(b int) int { return []int{33, 0, 70, 64}[b] })
	qdocs, kdocs := ints(4*40, func(i int) int { return i % 40 / 11 }), ints(4*70, func(j int) int { return j % 70 / 30 })
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for i, c := range []crossed{
				{shape: shape{batch: 1, tq: 70, tk: 70, heads: 2, kv: 1, hd: 16}, scores: ops.AttentionScores{Window: 1}},
				{shape: shape{batch: 1, tq: 130, tk: 130, heads: 1, kv: 1, hd: 5}, scores: ops.AttentionScores{Window: 33, SoftCap: 1.5}},
				{shape: shape{batch: 1, tq: 9, tk: 70, heads: 2, kv: 2, hd: 16, offset: 99}, scores: ops.AttentionScores{Window: 35}},
				{shape: shape{batch: 4, tq: 40, tk: 70, heads: 2, kv: 1, hd: 5, offset: 20}, lengths: lengths, qdocs: qdocs, kdocs: kdocs,
					scores: ops.AttentionScores{Window: 20, SoftCap: 2}},
			} {
				c.causal, c.drop = true, 0.3*float64(i%2)
				c.agree(t, dev, d, plainTolerance)
			}
		})
	})
}

// A length that is out of range is found by the kernel.
func TestWrongKeyLengths(t *testing.T) {
	dev := device(t)
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for _, hd := range []int{16, 64} {
			x := tensor.New(dev, d, 2, 3, hd)
			for _, n := range []int64{4, -1} {
				tape := tensor.NewTape(dev)
				in := tape.Input(x)
				y := ops.CrossAttention(in, in, in, hd, ops.AttentionOptions{KeyLengths: tensor.FromSlice([]int64{3, n}, 2)})
				assert.ErrorContains(t, tensor.Try(func() { tensor.Floats(y) }),
					fmt.Sprintf("cross_attention: cuda:0: index %d is out of range", n), "%v %d", d, hd)
				tape.Close()
			}
		}
	}
	require.NoError(t, dev.Queue(0).Sync())
	wide := "attention_mma"
	if cuda.Hopper(dev, true) {
		wide = "attention_wgmma"
	}
	require.ElementsMatch(t, []string{"attention", "attention_mma", wide}, cuda.Compiled(dev, "attention"))
}

// A score that is hidden, however large, does not make those that count vanish.
func TestHiddenScoresDoNotCount(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	k := tensor.FromSlice([]float32{1, 1e4, 1, 1e4, 1e4}, 1, 5, 1)
	v := tensor.FromSlice([]float32{2, 50, 4, 60, 70}, 1, 5, 1)
	q := tensor.FromSlice([]float32{1, 1}, 1, 2, 1)
	o := ops.AttentionOptions{QueryDocs: tensor.FromSlice([]int64{0, 2}, 1, 2), KeyDocs: tensor.FromSlice([]int64{0, 1, 0, 1, 1}, 1, 5)}
	for _, dev := range []tensor.Device{host, device(t)} {
		tape := tensor.NewTape(dev, tensor.NoGrad())
		out, lse := ops.CrossAttentionLSE(tape.Input(q), k, v, 1, o)
		assert.InDeltaSlice(t, []float64{3, 0}, tensor.Floats(out), 1e-6)
		assert.InDelta(t, 1+math.Log(2), tensor.Floats(lse)[0], 1e-6)
		assert.Equal(t, math.Inf(-1), tensor.Floats(lse)[1])
		tape.Close()
	}
}
