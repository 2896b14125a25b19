package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// attentionCase is an Attention over a batch, with guards around its memory.
type attentionCase[T Float] struct {
	Attention[T]
	bufs      [][]T
	qkv, grad []T // of self-attention
}

// newAttentionCase is self-attention.
func newAttentionCase[T Float](batch, steps, heads, hd int, causal bool, drop float64) *attentionCase[T] {
	c := newCrossCase[T](batch, steps, steps, heads, heads, hd, causal, 0, drop)
	n := 3 * batch * steps * heads * hd
	c.qkv, c.grad = c.slot(n, 1), c.slot(n, 5)
	c.Pack(c.qkv, c.grad)
	return c
}

func newCrossCase[T Float](batch, queries, keys, heads, kvHeads, hd int, causal bool, offset int, drop float64) *attentionCase[T] {
	c := &attentionCase[T]{}
	n, m, probabilities := batch*queries*heads*hd, batch*keys*kvHeads*hd, heads*queries*keys
	shape := AttentionShape{Batch: batch, Queries: queries, Keys: keys, Heads: heads, KVHeads: kvHeads, HeadDim: hd, QStep: heads * hd,
		KVStep: kvHeads * hd, Causal: causal, Offset: offset, Drop: drop, Key: 9,
		Rows: Rows{First: 3 * probabilities, Stride: 2 * probabilities, Elems: probabilities, Cols: probabilities, Line: probabilities}}
	c.AttentionOperands = AttentionOperands[T, T]{AttentionShape: shape, Scale: T(1 / math.Sqrt(float64(hd))), Q: c.slot(n, 1),
		K: c.slot(m, 6), V: c.slot(m, 7), Out: c.slot(n, 2), LSE: c.slot(batch*heads*queries, 3), GradOut: c.slot(n, 4), GradQ: c.slot(n, 5),
		GradK: c.slot(m, 8), GradV: c.slot(m, 9)}
	return c
}

func (c *attentionCase[T]) slot(n int, key uint64) []T {
	buf, rng := filled[T](n+2*guard, 7), rand.New(rand.NewPCG(key, 0))
	x := inner(buf)
	for i := range x {
		x[i] = T(rng.NormFloat64())
	}
	c.bufs = append(c.bufs, buf)
	return x
}

// run computes outputs and gradients in parts of the given size, the last one first.
func (c *attentionCase[T]) run(part int) {
	w := NewAttentionWork(make([]T, WorkspaceLen[T]()))
	parts := func(n int, f func(a *Attention[T], w *AttentionWork[T], lo, hi int)) {
		for lo := (n - 1) / part * part; lo >= 0; lo -= part {
			f(&c.Attention, w, lo, min(lo+part, n))
		}
	}
	parts(c.Blocks(), AttentionForward[T])
	parts(c.Groups(), AttentionGrad[T])
}

// sees reports whether query i of sequence b sees key j, by the definition.
func (c *attentionCase[T]) sees(b, i, j int) bool {
	at := i + c.Offset
	return !(c.Causal && j > at) && (c.Window == 0 || j > at-c.Window) && (c.KeyLengths == nil || int64(j) < c.KeyLengths[b]) &&
		(c.KeyDocs == nil || c.QueryDocs[b*c.Queries+i] == c.KeyDocs[b*c.Keys+j])
}

// plain computes outputs and gradients by the definition, in float64. Gradients go to gq, gk and gv, which are shaped as Q, K and V.
func (c *attentionCase[T]) plain(gq, gk, gv []float64) (out []float64) {
	hd := c.HeadDim
	out = make([]float64, len(c.Out))
	mask := make([]float64, c.Batch*c.Heads*c.Queries*c.Keys)
	Fill(mask, 1)
	Dropout(mask, mask, c.Drop, c.Key, c.Rows, 0, len(mask))
	q, k, v, gradOut := float64s(c.Q), float64s(c.K), float64s(c.V), float64s(c.GradOut)
	for head := range c.Batch * c.Heads {
		b, h := head/c.Heads, head%c.Heads
		key := func(j int) int { return (b*c.Keys+j)*c.KVStep + h*c.KVHeads/c.Heads*hd }
		for i := range c.Queries {
			query, o := (b*c.Queries+i)*c.QStep+h*hd, ((b*c.Queries+i)*c.Heads+h)*hd
			m := mask[(head*c.Queries+i)*c.Keys:][:c.Keys]
			var keys []int // seen by the query
			var p, slopes, dp []float64
			for j := range c.Keys {
				if c.sees(b, i, j) {
					dot := 0.0
					for d := range hd {
						dot += float64(c.Scale) * q[query+d] * k[key(j)+d]
					}
					slope := 1.0
					if c.SoftCap != 0 {
						tanh := math.Tanh(dot / c.SoftCap)
						dot, slope = c.SoftCap*tanh, 1-tanh*tanh
					}
					keys, p, slopes = append(keys, j), append(p, dot), append(slopes, slope)
				}
			}
			if len(p) == 0 {
				continue
			}
			Softmax(p, p, len(p), 0, 1)
			sum := 0.0
			for at, j := range keys {
				dot := 0.0
				for d := range hd {
					out[o+d] += p[at] * m[j] * v[key(j)+d]
					gv[key(j)+d] += p[at] * m[j] * gradOut[o+d]
					dot += m[j] * gradOut[o+d] * v[key(j)+d]
				}
				dp = append(dp, dot)
				sum += p[at] * dot
			}
			if c.GradLSE != nil {
				sum -= float64(c.GradLSE[head*c.Queries+i])
			}
			for at, j := range keys {
				ds := p[at] * (dp[at] - sum) * slopes[at] * float64(c.Scale)
				for d := range hd {
					gq[query+d] += ds * k[key(j)+d]
					gk[key(j)+d] += ds * q[query+d]
				}
			}
		}
	}
	return out
}

func TestAttention(t *testing.T) { bothFloats(t, testAttention[float32], testAttention[float64]) }

func TestLongAttention(t *testing.T) { reliability.AsLong(t, TestAttention) }

func testAttention[T Float](t *testing.T) {
	for at, s := range [][4]int{
		{1, 1, 1, 1}, {2, 2, 3, 2}, {1, 17, 2, 16}, {2, 63, 1, 5}, {1, 64, 1, 8}, {1, 65, 2, 7}, {1, 257, 1, 3}, {1, 330, 1, 17},
	} {
		for k, causal := range []bool{true, false} {
			drop := 0.3 * float64((at+k)%2)
			newCase := func() *attentionCase[T] { return newAttentionCase[T](s[0], s[1], s[2], s[3], causal, drop) }
			grad, width := make([]float64, 3*s[0]*s[1]*s[2]*s[3]), s[2]*s[3]
			var out []float64
			for i, isa := range isas { // in turns that go with neither causal nor drop
				if (i != (at/2+k)%len(isas) || single[T]() != ((at/4+k)%2 == 0) || s[1] > 256 && !causal) && !reliability.Long(t) {
					continue
				}
				if out == nil {
					out = newCase().plain(grad, grad[width:], grad[2*width:])
				}
				withISA(isa, func() {
					what := fmt.Sprintf("%s %v causal %v drop %v", isa.name, s, causal, drop)
					c := newCase()
					c.run(math.MaxInt32)
					requireNear(t, out, c.Out, 2e-5, 1e-12, what)
					requireNear(t, grad, c.grad, 5e-5, 1e-12, what+" gradient")
					requireInParts(t, c, newCase(), what)
				})
			}
		}
	}
}

// requireInParts runs a case part by part, and requires the bits of c, which was
// run whole, and unchanged guards.
func requireInParts[T Float](t *testing.T, c, inParts *attentionCase[T], what string) {
	t.Helper()
	inParts.run(1)
	for i, buf := range c.bufs {
		requireSameBits(t, buf, inParts.bufs[i], what, "in parts")
		require.Equal(t, filled[T](2*guard, 7), append(slices.Clone(buf[:guard]), buf[len(buf)-guard:]...), what)
	}
}

// Different numbers of queries and keys, heads that share keys, and queries that
// see no key.
func TestCrossAttention(t *testing.T) {
	bothFloats(t, testCrossAttention[float32], testCrossAttention[float64])
}

func TestLongCrossAttention(t *testing.T) { reliability.AsLong(t, TestCrossAttention) }

func testCrossAttention[T Float](t *testing.T) {
	for at, s := range []struct{ batch, queries, keys, heads, kvHeads, hd, offset int }{
		{1, 1, 1, 1, 1, 1, 0}, {2, 3, 5, 4, 2, 2, 2}, {2, 5, 3, 2, 1, 7, -2}, {1, 70, 300, 3, 1, 5, 230}, {1, 300, 70, 2, 2, 3, -100},
		{1, 1, 270, 4, 2, 16, 269}, {1, 130, 520, 2, 1, 4, 200}, {1, 66, 66, 6, 3, 8, -70}, {2, 3, 0, 2, 1, 4, 0},
	} {
		for k, causal := range []bool{true, false} {
			drop := 0.3 * float64((at+k)%2)
			newCase := func() *attentionCase[T] {
				return newCrossCase[T](s.batch, s.queries, s.keys, s.heads, s.kvHeads, s.hd, causal, s.offset, drop)
			}
			if single[T]() != ((at/2+k)%2 == 0) && !reliability.Long(t) {
				continue
			}
			testMasked(t, at/2+k, fmt.Sprintf("%+v causal %v drop %v", s, causal, drop), newCase)
		}
	}
}

// Scores that would overflow if the largest one were not subtracted, and keys with
// a score of -Inf, also in whole blocks.
func TestAttentionOfExtremeScores(t *testing.T) {
	for _, isa := range isas {
		withISA(isa, func() {
			c := newAttentionCase[float32](1, 600, 1, 2, false, 0)
			for i := range 600 {
				qkv := c.qkv[6*i:]
				qkv[0], qkv[1], qkv[2], qkv[3] = 100, 1, float32(i), 0
				if i < 300 {
					qkv[3] = float32(math.Inf(-1))
				}
			}
			AttentionForward(&c.Attention, NewAttentionWork(make([]float32, WorkspaceLen[float32]())), 0, c.Blocks())
			for i := range 600 { // each score is larger than the one before by 100/sqrt(2)
				assert.InDelta(t, c.qkv[6*599+4], c.Out[2*i], 1e-6)
			}
			c = newAttentionCase[float32](1, 300, 1, 1, true, 0)
			c.qkv[3*290] = float32(math.NaN()) // a query: it affects only its own output
			AttentionForward(&c.Attention, NewAttentionWork(make([]float32, WorkspaceLen[float32]())), 0, c.Blocks())
			for i, v := range c.Out {
				assert.Equal(t, i == 290, v != v, i)
			}
		})
	}
}

func TestAttentionAllocatesNothing(t *testing.T) {
	c, w := newAttentionCase[float32](1, 300, 2, 8, true, 0.1), NewAttentionWork(make([]float32, WorkspaceLen[float32]()))
	assert.Zero(t, testing.AllocsPerRun(2, func() {
		AttentionForward(&c.Attention, w, 0, c.Blocks())
		AttentionGrad(&c.Attention, w, 0, 2)
	}))
}

// BenchmarkAttention counts the products of the pairs that are computed: for each
// pair and feature 4 operations forward and 10 backward.
func BenchmarkAttention(b *testing.B) {
	for _, steps := range []int{128, 1024} {
		for _, causal := range []bool{true, false} {
			c, w := newAttentionCase[float32](1, steps, 4, 64, causal, 0), NewAttentionWork(make([]float32, WorkspaceLen[float32]()))
			flops := 2 * float64(steps) * float64(steps) * 64 * 4
			if causal {
				flops /= 2
			}
			b.Run(fmt.Sprintf("forward/%d/causal=%v", steps, causal), func(b *testing.B) {
				for b.Loop() {
					AttentionForward(&c.Attention, w, 0, c.Blocks())
				}
				b.ReportMetric(2*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
			b.Run(fmt.Sprintf("backward/%d/causal=%v", steps, causal), func(b *testing.B) {
				for b.Loop() {
					AttentionGrad(&c.Attention, w, 0, 4)
				}
				b.ReportMetric(5*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
