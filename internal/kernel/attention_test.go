package kernel

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// attentionCase is an Attention over a batch, its memory between guards.
type attentionCase[T Float] struct {
	Attention[T]
	batch int
	bufs  [][]T
}

func newAttentionCase[T Float](batch, steps, heads, hd int, causal bool, drop float64) *attentionCase[T] {
	c := &attentionCase[T]{batch: batch}
	slot := func(n int, key uint64) []T {
		buf := filled[T](n+2*guard, 7)
		x := inner(buf)
		FillNormal(x, key, 0, 0, 1)
		c.bufs = append(c.bufs, buf)
		return x
	}
	n, probabilities := batch*steps*heads*hd, heads*steps*steps
	c.Attention = Attention[T]{Steps: steps, Heads: heads, HeadDim: hd, Causal: causal, Scale: T(1 / math.Sqrt(float64(hd))),
		QKV: slot(3*n, 1), Out: slot(n, 2), LSE: slot(batch*heads*steps, 3), GradOut: slot(n, 4), GradQKV: slot(3*n, 5),
		Drop: drop, Key: 9, Rows: Rows{First: 3, Stride: 2, Elems: probabilities, Cols: probabilities, FullCols: probabilities}}
	return c
}

// run computes outputs and gradients in parts of the given size, the last one first.
func (c *attentionCase[T]) run(part int) {
	w := NewAttentionWork[T]()
	parts := func(n int, f func(a *Attention[T], w *AttentionWork[T], lo, hi int)) {
		for lo := (n - 1) / part * part; lo >= 0; lo -= part {
			f(&c.Attention, w, lo, min(lo+part, n))
		}
	}
	parts(c.Blocks(), AttentionForward[T])
	parts(c.batch*c.Heads, AttentionGrad[T])
}

// plain computes outputs and gradients by the definition, in float64.
func (c *attentionCase[T]) plain() (out, grad []float64) {
	n, hd := c.Steps, c.HeadDim
	out, grad = make([]float64, len(c.Out)), make([]float64, len(c.GradQKV))
	mask := make([]float64, c.batch*c.Heads*n*n)
	Fill(mask, 1)
	Dropout(mask, mask, c.Drop, c.Key, c.Rows, 0, len(mask))
	qkv, gradOut := float64s(c.QKV), float64s(c.GradOut)
	for head := range c.batch * c.Heads {
		at := func(part, i, d int) int {
			return ((head/c.Heads*n+i)*3+part)*c.Heads*hd + head%c.Heads*hd + d
		}
		for i := range n {
			o := (head/c.Heads*n+i)*c.Heads*hd + head%c.Heads*hd
			m := mask[(head*n+i)*n:][:n]
			p := c.probabilities(qkv, at, i)
			var dp []float64
			sum := 0.0
			for j := range p {
				dot := 0.0
				for d := range hd {
					out[o+d] += p[j] * m[j] * qkv[at(2, j, d)]
					grad[at(2, j, d)] += p[j] * m[j] * gradOut[o+d]
					dot += m[j] * gradOut[o+d] * qkv[at(2, j, d)]
				}
				dp = append(dp, dot)
				sum += p[j] * dot
			}
			for j := range p {
				ds := p[j] * (dp[j] - sum) * float64(c.Scale)
				for d := range hd {
					grad[at(0, i, d)] += ds * qkv[at(1, j, d)]
					grad[at(1, j, d)] += ds * qkv[at(0, i, d)]
				}
			}
		}
	}
	return out, grad
}

// probabilities returns those that query i gives to the keys that it sees.
func (c *attentionCase[T]) probabilities(qkv []float64, at func(part, i, d int) int, i int) []float64 {
	p := make([]float64, c.seen(i, 0, c.Steps))
	for j := range p {
		for d := range c.HeadDim {
			p[j] += float64(c.Scale) * qkv[at(0, i, d)] * qkv[at(1, j, d)]
		}
	}
	Softmax(p, p, len(p), 0, 1)
	return p
}

func TestAttention(t *testing.T) { bothFloats(t, testAttention[float32], testAttention[float64]) }

func testAttention[T Float](t *testing.T) {
	for _, s := range [][4]int{{1, 1, 1, 1}, {2, 2, 3, 2}, {1, 17, 2, 16}, {2, 63, 1, 5}, {1, 64, 1, 8}, {1, 65, 2, 7}, {1, 257, 1, 3}, {1, 330, 1, 17}} {
		for _, causal := range []bool{true, false} {
			for _, drop := range []float64{0, 0.3} {
				newCase := func() *attentionCase[T] { return newAttentionCase[T](s[0], s[1], s[2], s[3], causal, drop) }
				out, grad := newCase().plain()
				for _, isa := range isas {
					withISA(isa, func() {
						what := fmt.Sprintf("%s %v causal %v drop %v", isa.name, s, causal, drop)
						c := newCase()
						c.run(math.MaxInt32)
						requireNear(t, out, c.Out, 2e-5, 1e-12, what)
						requireNear(t, grad, c.GradQKV, 5e-5, 1e-12, what+" gradient")
						inParts := newCase()
						inParts.run(1)
						for i, buf := range c.bufs {
							requireSameBits(t, buf, inParts.bufs[i], what, "in parts")
							require.Equal(t, filled[T](2*guard, 7), append(slices.Clone(buf[:guard]), buf[len(buf)-guard:]...), what)
						}
					})
				}
			}
		}
	}
}

// Scores that would overflow without the subtraction of the largest, and keys with a score of -Inf, whole blocks of them too.
func TestAttentionOfExtremeScores(t *testing.T) {
	for _, isa := range isas {
		withISA(isa, func() {
			c := newAttentionCase[float32](1, 600, 1, 2, false, 0)
			for i := range 600 {
				qkv := c.QKV[6*i:]
				qkv[0], qkv[1], qkv[2], qkv[3] = 100, 1, float32(i), 0
				if i < 300 {
					qkv[3] = float32(math.Inf(-1))
				}
			}
			AttentionForward(&c.Attention, NewAttentionWork[float32](), 0, c.Blocks())
			for i := range 600 { // each key beats the one before it by 100/sqrt(2) units
				assert.InDelta(t, c.QKV[6*599+4], c.Out[2*i], 1e-6)
			}
			c = newAttentionCase[float32](1, 300, 1, 1, true, 0)
			c.QKV[3*290] = float32(math.NaN()) // a query: its own output alone
			AttentionForward(&c.Attention, NewAttentionWork[float32](), 0, c.Blocks())
			for i, v := range c.Out {
				assert.Equal(t, i == 290, v != v, i)
			}
		})
	}
}

func TestAttentionAllocatesNothing(t *testing.T) {
	c, w := newAttentionCase[float32](1, 300, 2, 8, true, 0.1), NewAttentionWork[float32]()
	assert.Zero(t, testing.AllocsPerRun(2, func() {
		AttentionForward(&c.Attention, w, 0, c.Blocks())
		AttentionGrad(&c.Attention, w, 0, 2)
	}))
}

// BenchmarkAttention counts the products of the pairs that are computed: 4 elements of two for each and feature forward,
// and 10 backward.
func BenchmarkAttention(b *testing.B) {
	for _, steps := range []int{128, 1024} {
		for _, causal := range []bool{true, false} {
			c, w := newAttentionCase[float32](1, steps, 4, 64, causal, 0), NewAttentionWork[float32]()
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
