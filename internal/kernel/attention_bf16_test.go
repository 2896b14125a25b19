package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attentionCaseBF16 is an attentionCase whose operands are bfloat16 numbers, and an
// AttentionBF16 of these, with guards around its results.
type attentionCaseBF16 struct {
	*attentionCase[float32]
	half AttentionBF16
	outs [][]BF16
}

func newAttentionCaseBF16(c *attentionCase[float32]) *attentionCaseBF16 {
	h := &attentionCaseBF16{attentionCase: c}
	round := func(x []float32) []BF16 {
		y := make([]BF16, len(x))
		F32ToBF16(y, x)
		BF16ToF32(x, y)
		return y
	}
	h.half.AttentionOperands = AttentionOperands[BF16, float32]{AttentionShape: c.AttentionShape, Scale: c.Scale,
		LSE: slices.Clone(c.LSE), GradLSE: c.GradLSE, Q: round(c.Q), K: round(c.K), V: round(c.V), GradOut: round(c.GradOut),
		Out: h.result(len(c.Out)), GradQ: h.result(len(c.GradQ)), GradK: h.result(len(c.GradK)), GradV: h.result(len(c.GradV))}
	return h
}

// result returns memory that holds NaN, which shows what is read before it is written.
func (h *attentionCaseBF16) result(n int) []BF16 {
	buf := slices.Repeat([]BF16{0x7FC1}, n+2*guard)
	h.outs = append(h.outs, buf)
	return inner(buf)
}

// runHalf computes outputs and gradients in parts of the given size, the last one first.
func (h *attentionCaseBF16) runHalf(part int) {
	w := NewAttentionWorkBF16()
	parts := func(n int, f func(a *AttentionBF16, w *AttentionWorkBF16, lo, hi int)) {
		for lo := (n - 1) / part * part; lo >= 0; lo -= part {
			f(&h.half, w, lo, min(lo+part, n))
		}
	}
	parts(h.half.Blocks(), AttentionForwardBF16)
	parts(h.half.Groups(), AttentionGradBF16)
}

// onEngines runs a test for each engine that multiplies bfloat16 numbers: those of the
// CPU, and emulated ones of which the CPU has no real one.
func onEngines(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	onBF16(t, false, func(t *testing.T, e *engineBF16, _ bool) {
		if e.pair != 2 {
			t.Skip("has no products of bfloat16 numbers")
		}
		set := *active
		set.bf16 = []*engineBF16{e}
		withISA(&set, func() { f(t) })
	})
}

// hasReal reports whether the machine has the instructions that an engine emulates.
func hasReal(emulated *engineBF16) bool {
	return slices.ContainsFunc(isas, func(s *isa) bool {
		return slices.ContainsFunc(s.bf16, func(e *engineBF16) bool { return e.pair == 2 && (e.tiles == nil) == (emulated.tiles == nil) })
	})
}

// turn is 1 for engines of tiles: of two cases, those of pairs have the other one.
func turn() int { return map[bool]int{true: 1}[active.bf16[0].tiles != nil] }

// relativeError is the norm of the error of got, by the norm of want.
func relativeError[T Float](want []T, got []BF16) float64 {
	var errors, squares float64
	for i, w := range want {
		d := float64(w) - float64(got[i].Float32())
		errors, squares = errors+d*d, squares+float64(w)*float64(w)
	}
	if errors == 0 {
		return 0
	}
	return math.Sqrt(errors / squares)
}

// requireAttention compares a case with attention in float32, whole and in parts. The
// gradient is that of the rounded output, as its definition says.
func requireAttention(t *testing.T, what string, newCase func() *attentionCase[float32]) {
	t.Helper()
	h, w := newAttentionCaseBF16(newCase()), NewAttentionWork(make([]float32, WorkspaceLen[float32]()))
	h.runHalf(math.MaxInt32)
	AttentionForward(&h.Attention, w, 0, h.Blocks())
	require.LessOrEqual(t, relativeError(h.Out, h.half.Out), 0.005, what)
	requireNear(t, float64s(h.LSE), h.half.LSE, 1e-4, 0, what)
	BF16ToF32(h.Out, h.half.Out)
	AttentionGrad(&h.Attention, w, 0, h.Groups())
	require.LessOrEqual(t, relativeError(h.GradQ, h.half.GradQ), 0.008, what+" queries")
	require.LessOrEqual(t, relativeError(h.GradK, h.half.GradK), 0.008, what+" keys")
	require.LessOrEqual(t, relativeError(h.GradV, h.half.GradV), 0.008, what+" values")
	parts := newAttentionCaseBF16(newCase())
	parts.runHalf(1)
	require.Equal(t, h.outs, parts.outs, "%s in parts", what)
	requireSameBits(t, h.half.LSE, parts.half.LSE, what, "in parts")
	for _, buf := range h.outs {
		edges := append(slices.Clone(buf[:guard]), buf[len(buf)-guard:]...)
		require.Equal(t, slices.Repeat([]BF16{0x7FC1}, 2*guard), edges, what)
	}
}

// The errors against float64 are those of bfloat16 attention elsewhere: rounding an exact
// result alone gives 0.0017.
func TestAttentionBF16IsAccurate(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		for i, causal := range []bool{true, false} {
			if later(t, i, 2) {
				continue
			}
			h := newAttentionCaseBF16(newCrossCase[float32](1, 130, 300, 2, 1, 24, causal, 170, 0))
			gq, gk, gv := make([]float64, len(h.Q)), make([]float64, len(h.K)), make([]float64, len(h.V))
			out := h.plain(gq, gk, gv)
			h.runHalf(1)
			for i, e := range []float64{
				relativeError(out, h.half.Out), relativeError(gq, h.half.GradQ), relativeError(gk, h.half.GradK), relativeError(gv, h.half.GradV),
			} {
				t.Logf("causal %v, result %d: %.5f", causal, i, e)
				require.LessOrEqual(t, e, 0.003, i)
			}
		}
	})
}

func TestAttentionBF16(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		for at, s := range []struct{ batch, queries, keys, heads, kvHeads, hd, offset int }{
			{1, 1, 1, 1, 1, 1, 0}, {1, 70, 300, 2, 1, 5, 230}, {2, 3, 5, 4, 2, 2, 2}, {1, 67, 520, 1, 1, 4, 453}, {2, 5, 3, 2, 1, 7, -2},
			{1, 17, 33, 2, 1, 67, 16}, {1, 130, 70, 1, 1, 3, -40}, {1, 1, 270, 4, 2, 16, 269}, {1, 66, 66, 2, 1, 8, -70}, {2, 3, 0, 2, 1, 4, 0},
		} {
			causal, drop := at%2 == 0, 0.3*float64(at/2%2)
			if later(t, at+at/2+turn(), 2) { // causal and not
				continue
			}
			requireAttention(t, fmt.Sprintf("%+v causal %v drop %v", s, causal, drop), func() *attentionCase[float32] {
				return newCrossCase[float32](s.batch, s.queries, s.keys, s.heads, s.kvHeads, s.hd, causal, s.offset, drop)
			})
		}
	})
}

func TestAttentionMasksBF16(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		for at, s := range []struct{ batch, queries, keys, heads, kvHeads, hd, offset int }{
			{5, 3, 5, 4, 2, 2, 2}, {2, 66, 300, 1, 1, 5, 234}, {2, 3, 0, 2, 1, 4, 0},
		} {
			for i, masks := range [][]string{{}, {"lengths", "documents"}, {"documents by turns"}} {
				if later(t, at+i/2+turn(), 2) {
					continue
				}
				causal, drop := (at+i)%2 == 0, 0.3*float64((at+i)/2%2)
				requireAttention(t, fmt.Sprintf("%+v %v causal %v drop %v", s, masks, causal, drop), func() *attentionCase[float32] {
					return newCrossCase[float32](s.batch, s.queries, s.keys, s.heads, s.kvHeads, s.hd, causal, s.offset, drop).mask(masks...)
				})
			}
		}
	})
}

// Queries, keys and values that are parts of one matrix have the bits of those that
// are apart.
func TestPackedAttentionBF16(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		const batch, steps, heads, hd = 2, 67, 2, 6
		apart := newAttentionCaseBF16(newCrossCase[float32](batch, steps, steps, heads, heads, hd, true, 0, 0.3))
		apart.runHalf(1)
		packed := newAttentionCaseBF16(newCrossCase[float32](batch, steps, steps, heads, heads, hd, true, 0, 0.3))
		qkv, grad := make([]BF16, 3*len(apart.half.Q)), make([]BF16, 3*len(apart.half.Q))
		width := heads * hd
		for i := range apart.half.Q {
			at := i/width*3*width + i%width
			qkv[at], qkv[at+width], qkv[at+2*width] = apart.half.Q[i], apart.half.K[i], apart.half.V[i]
		}
		packed.half.Pack(qkv, grad)
		packed.runHalf(1)
		require.Equal(t, apart.half.Out, packed.half.Out)
		for i := range apart.half.Q {
			at := i/width*3*width + i%width
			require.Equal(t, [3]BF16{apart.half.GradQ[i], apart.half.GradK[i], apart.half.GradV[i]},
				[3]BF16{grad[at], grad[at+width], grad[at+2*width]}, i)
		}
	})
}

// The output of a query does not depend on the other queries, nor on their number.
func TestAttentionBF16OfOneQuery(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		const queries, keys, heads, hd = 70, 90, 2, 72
		all := newAttentionCaseBF16(newCrossCase[float32](1, queries, keys, heads, 1, hd, true, 20, 0))
		AttentionForwardBF16(&all.half, NewAttentionWorkBF16(), 0, all.half.Blocks())
		for _, i := range []int{0, 5, 69} {
			one := newAttentionCaseBF16(newCrossCase[float32](1, 1, keys, heads, 1, hd, true, 20+i, 0))
			copy(one.half.Q, all.half.Q[i*heads*hd:])
			copy(one.half.K, all.half.K)
			copy(one.half.V, all.half.V)
			AttentionForwardBF16(&one.half, NewAttentionWorkBF16(), 0, one.half.Blocks())
			require.Equal(t, all.half.Out[i*heads*hd:][:heads*hd], one.half.Out, i)
			for h, lse := range one.half.LSE {
				require.Equal(t, all.half.LSE[h*queries+i], lse, i)
			}
		}
	})
}

// Scores that would overflow if the largest one were not subtracted, keys with a score
// of -Inf, also in whole blocks, and a query that is NaN.
func TestAttentionBF16OfExtremeScores(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		c := newAttentionCaseBF16(newCrossCase[float32](1, 5, 600, 1, 1, 2, false, 0, 0))
		for i := range c.half.Queries {
			c.half.Q[2*i], c.half.Q[2*i+1] = ToBF16(100), ToBF16(1)
		}
		for j := range c.half.Keys {
			k, v := c.half.K[2*j:], c.half.V[2*j:]
			k[0], k[1] = ToBF16(float32(j/4*4)), 0
			if j < 300 {
				k[1] = ToBF16(float32(math.Inf(-1)))
			}
			if j >= 512 {
				v[0] = ToBF16(3)
			}
		}
		AttentionForwardBF16(&c.half, NewAttentionWorkBF16(), 0, c.half.Blocks())
		for i := range c.half.Queries { // the last keys beat those before by 100*4/sqrt(2)
			assert.InDelta(t, 3, c.half.Out[2*i].Float32(), 1e-6)
		}
		c = newAttentionCaseBF16(newCrossCase[float32](1, 70, 70, 1, 1, 1, true, 0, 0))
		c.half.Q[60] = ToBF16(float32(math.NaN()))
		c.runHalf(1)
		for i, v := range c.half.Out { // it affects only its own output
			assert.Equal(t, i == 60, v.Float32() != v.Float32(), i)
		}
		for j := 61; j < 70; j++ { // values that it does not see
			assert.False(t, c.half.GradV[j].Float32() != c.half.GradV[j].Float32(), j)
		}
	})
}

// NaN in one document stays there, if documents fill whole blocks.
func TestAttentionBF16SkipsOtherDocuments(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		const each = 256
		c := newAttentionCaseBF16(newCrossCase[float32](1, 65, 2*each, 1, 1, 2, false, 0, 0))
		c.half.QueryDocs = make([]int64, c.half.Queries)
		c.half.QueryDocs[64] = 1
		for j := range c.half.Keys {
			c.half.KeyDocs = append(c.half.KeyDocs, int64(j/each))
		}
		c.half.V[2*each] = ToBF16(float32(math.NaN()))
		c.half.K[2*each] = ToBF16(float32(math.NaN()))
		c.runHalf(1)
		for _, x := range [][]BF16{c.half.Out[:2*64], c.half.GradQ[:2*64], c.half.GradK[:2*each], c.half.GradV[:2*each]} {
			for i, v := range x {
				require.False(t, v.Float32() != v.Float32(), i)
			}
		}
	})
}

// Memory that has grown is enough for the first part, too.
func TestAttentionBF16AllocatesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		c := newAttentionCaseBF16(newCrossCase[float32](2, 70, 90, 2, 1, 8, true, 20, 0.1).mask("lengths", "documents"))
		var grown []*AttentionWorkBF16
		for range 3 {
			w := NewAttentionWorkBF16()
			w.Grow(&c.half)
			grown = append(grown, w)
		}
		assert.Zero(t, testing.AllocsPerRun(len(grown)-1, func() {
			w := grown[0]
			grown = grown[1:]
			AttentionForwardBF16(&c.half, w, 0, c.half.Blocks())
			AttentionGradBF16(&c.half, w, 0, c.half.Groups())
		}))
	})
}

// BenchmarkAttentionBF16 counts as BenchmarkAttention does.
func BenchmarkAttentionBF16(b *testing.B) {
	for _, steps := range []int{128, 1024} {
		for _, causal := range []bool{true, false} {
			c, w := newAttentionCaseBF16(newCrossCase[float32](1, steps, steps, 4, 1, 64, causal, 0, 0)), NewAttentionWorkBF16()
			flops := 2 * float64(steps) * float64(steps) * 64 * 4
			if causal {
				flops /= 2
			}
			b.Run(fmt.Sprintf("forward/%d/causal=%v", steps, causal), func(b *testing.B) {
				for b.Loop() {
					AttentionForwardBF16(&c.half, w, 0, c.half.Blocks())
				}
				b.ReportMetric(2*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
			b.Run(fmt.Sprintf("backward/%d/causal=%v", steps, causal), func(b *testing.B) {
				for b.Loop() {
					AttentionGradBF16(&c.half, w, 0, c.half.Groups())
				}
				b.ReportMetric(5*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// Keys and values that are widened block by block give the bits of those that were
// widened as a whole.
func TestAttentionOfHalves(t *testing.T) {
	const batch, heads, kvHeads, dim = 2, 6, 2, 24
	const step = kvHeads*dim + 5
	for _, queries := range []int{1, 7, 70} {
		for _, keys := range []int{1, 255, 257, 600} {
			r := rand.New(rand.NewPCG(uint64(queries), uint64(keys)))
			a := Attention[float32]{AttentionOperands: AttentionOperands[float32, float32]{AttentionShape: AttentionShape{
				Batch: batch, Queries: queries, Keys: keys, Heads: heads, KVHeads: kvHeads, HeadDim: dim, QStep: heads * dim,
				KVStep: step, Causal: true, Offset: keys - queries}, Scale: 0.2,
				Q: make([]float32, batch*queries*heads*dim), K: make([]float32, batch*keys*step), V: make([]float32, batch*keys*step)}}
			for i := range a.Q {
				a.Q[i] = r.Float32() - 0.5
			}
			k, v := make([]BF16, len(a.K)), make([]BF16, len(a.V))
			for i := range k {
				k[i], v[i] = ToBF16(r.Float32()-0.5), ToBF16(r.Float32()-0.5)
				a.K[i], a.V[i] = k[i].Float32(), v[i].Float32()
			}
			a.KeyLengths = []int64{int64(keys), int64(keys+1) / 2}
			run := func(a Attention[float32]) (out, lse []float32) {
				a.Out, a.LSE = make([]float32, len(a.Q)), make([]float32, batch*heads*queries)
				AttentionForward(&a, NewAttentionWork(make([]float32, WorkspaceLen[float32]())), 0, a.Blocks())
				return a.Out, a.LSE
			}
			out, lse := run(a)
			a.K, a.V = nil, nil
			a.K16, a.V16 = halfBits(k), halfBits(v)
			a.Widen = func(dst []float32, src []uint16) {
				for i, x := range src {
					dst[i] = BF16(x).Float32()
				}
			}
			gotOut, gotLSE := run(a)
			require.Equal(t, out, gotOut, "%d queries, %d keys", queries, keys)
			require.Equal(t, lse, gotLSE)
		}
	}
}

func halfBits(x []BF16) []uint16 { return unsafe.Slice((*uint16)(unsafe.Pointer(&x[0])), len(x)) }
