package kernel

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// maskings set the masks of a case.
var maskings = map[string]func(m *AttentionMasks, batch, queries, keys int){
	"lengths": func(m *AttentionMasks, batch, _, keys int) {
		for b := range batch { // none, all, and lengths that end beside the end of a block
			m.KeyLengths = append(m.KeyLengths, int64([]int{min(keys, attnCols+1), 0, keys, min(keys, attnCols), keys / 2}[b%5]))
		}
	},
	"documents": func(m *AttentionMasks, batch, queries, keys int) {
		for b := range batch {
			for i := range queries { // the last ones are of a document without keys
				m.QueryDocs = append(m.QueryDocs, int64(4*i/queries+b-2)<<40)
			}
			for j := range keys {
				m.KeyDocs = append(m.KeyDocs, int64(3*j/keys+b-2)<<40)
			}
		}
	},
	"documents by turns": func(m *AttentionMasks, batch, queries, keys int) {
		for i := range batch * queries {
			m.QueryDocs = append(m.QueryDocs, int64(i%3))
		}
		for j := range batch * keys {
			m.KeyDocs = append(m.KeyDocs, int64(j*j%5))
		}
	},
}

// mask sets masks, and a gradient of the logarithmic sums. Keys and values after a
// sequence's length become NaN.
func (c *attentionCase[T]) mask(names ...string) *attentionCase[T] {
	c.GradLSE = c.slot(len(c.LSE), 11)
	for _, name := range names {
		maskings[name](&c.AttentionMasks, c.Batch, c.Queries, c.Keys)
	}
	for b, n := range c.KeyLengths {
		for _, x := range [][]T{c.K, c.V} {
			Fill(x[(b*c.Keys+int(n))*c.KVStep:(b+1)*c.Keys*c.KVStep], T(math.NaN()))
		}
	}
	return c
}

func TestAttentionMasks(t *testing.T) {
	bothFloats(t, testAttentionMasks[float32], testAttentionMasks[float64])
}

func TestLongAttentionMasks(t *testing.T) { reliability.AsLong(t, TestAttentionMasks) }

// testAttentionMasks goes through the cases; in the short form, half of them, each with one of the types, and one engine: of the cases of
// a type that are alike in causal and drop, each engine has one in turn.
func testAttentionMasks[T Float](t *testing.T) {
	turns := map[string]int{}
	for at, s := range []struct{ batch, queries, keys, heads, kvHeads, hd, offset int }{
		{1, 1, 1, 1, 1, 1, 0}, {5, 3, 5, 4, 2, 2, 2}, {5, 70, 300, 2, 1, 5, 230}, {2, 300, 70, 2, 2, 3, -100}, {1, 70, 520, 2, 1, 4, 450},
		{2, 3, 0, 2, 1, 4, 0},
	} {
		for i, masks := range [][]string{{}, {"lengths"}, {"documents"}, {"documents by turns"}, {"lengths", "documents"}} {
			if (single[T]() != ((at+i/2)%2 == 0) || (at/2+i)%2 != 0) && !reliability.Long(t) {
				continue
			}
			causal, drop := (at+i)%2 == 0, 0.3*float64((at+i)/2%2)
			kind := fmt.Sprint(causal, drop)
			turns[kind]++
			testMasked(t, turns[kind], fmt.Sprintf("%+v %v causal %v drop %v", s, masks, causal, drop), func() *attentionCase[T] {
				return newCrossCase[T](s.batch, s.queries, s.keys, s.heads, s.kvHeads, s.hd, causal, s.offset, drop).mask(masks...)
			})
		}
	}
}

// Windows and caps of scores, alone and with masks: windows of one key, around
// blocks, and of more than all keys.
var windowed = []struct {
	batch, queries, keys, heads, kvHeads, hd, offset int
	window                                           int
	softCap                                          float64
	masks                                            []string
}{
	{batch: 1, queries: 1, keys: 1, heads: 1, kvHeads: 1, hd: 1, window: 1, softCap: 0.5},
	{batch: 2, queries: 3, keys: 5, heads: 4, kvHeads: 2, hd: 2, offset: 2, window: 2},
	{batch: 1, queries: 330, keys: 330, heads: 2, kvHeads: 1, hd: 3, window: 65},
	{batch: 1, queries: 70, keys: 600, heads: 2, kvHeads: 1, hd: 5, offset: 530, window: 256, softCap: 1.5},
	{batch: 1, queries: 1, keys: 700, heads: 2, kvHeads: 1, hd: 5, offset: 699, window: 100},
	{batch: 1, queries: 70, keys: 300, heads: 2, kvHeads: 2, hd: 4, offset: 400, window: 130},
	{batch: 5, queries: 130, keys: 300, heads: 2, kvHeads: 1, hd: 4, offset: 170, window: 40, masks: []string{"lengths"}},
	{batch: 2, queries: 300, keys: 300, heads: 1, kvHeads: 1, hd: 4, window: 90, softCap: 2, masks: []string{"documents by turns"}},
	{batch: 2, queries: 66, keys: 300, heads: 1, kvHeads: 1, hd: 5, offset: 234, softCap: 1, masks: []string{"lengths", "documents"}},
}

func newWindowedCase[T Float](at int) *attentionCase[T] {
	s := windowed[at]
	c := newCrossCase[T](s.batch, s.queries, s.keys, s.heads, s.kvHeads, s.hd, true, s.offset, 0.3*float64(at/2%2)).mask(s.masks...)
	c.Window, c.SoftCap = s.window, s.softCap
	return c
}

func TestAttentionWindows(t *testing.T) {
	bothFloats(t, testAttentionWindows[float32], testAttentionWindows[float64])
}

func TestLongAttentionWindows(t *testing.T) { reliability.AsLong(t, TestAttentionWindows) }

func testAttentionWindows[T Float](t *testing.T) {
	for at, s := range windowed {
		if single[T]() != (at%2 == 0) && !reliability.Long(t) {
			continue
		}
		testMasked(t, at, fmt.Sprintf("%+v", s), func() *attentionCase[T] { return newWindowedCase[T](at) })
	}
}

func TestAttentionWindowsBF16(t *testing.T) {
	onEngines(t, func(t *testing.T) {
		for at, s := range windowed {
			if later(t, at+turn(), 2) {
				continue
			}
			requireAttention(t, fmt.Sprintf("%+v", s), func() *attentionCase[float32] { return newWindowedCase[float32](at) })
		}
	})
}

// Blocks of keys before every window are not computed: NaN stays there.
func TestAttentionSkipsKeysBeforeWindows(t *testing.T) {
	c := newCrossCase[float32](1, 64, 640, 1, 1, 8, true, 576, 0)
	c.Window = 128
	for _, x := range [][]float32{c.K, c.V} {
		Fill(x[:256*8], float32(math.NaN()))
	}
	c.run(1)
	for _, x := range [][]float32{c.Out, c.GradQ, c.GradK, c.GradV} {
		for i, v := range x {
			require.False(t, v != v, i/8)
		}
	}
}

// testMasked compares a case with the definition, whole and in parts: in the short
// form with one of the instruction sets.
func testMasked[T Float](t *testing.T, number int, what string, newCase func() *attentionCase[T]) {
	c := newCase()
	gq, gk, gv := make([]float64, len(c.Q)), make([]float64, len(c.K)), make([]float64, len(c.V))
	out := c.plain(gq, gk, gv)
	for i, isa := range isas {
		if i != number%len(isas) && !reliability.Long(t) {
			continue
		}
		withISA(isa, func() {
			what := isa.name + " " + what
			c := newCase()
			c.run(math.MaxInt32)
			requireNear(t, out, c.Out, 2e-5, 1e-12, what)
			requireNear(t, gq, c.GradQ, 5e-5, 1e-12, what+" queries")
			requireNear(t, gk, c.GradK, 5e-5, 1e-12, what+" keys")
			requireNear(t, gv, c.GradV, 5e-5, 1e-12, what+" values")
			for at, lse := range c.LSE {
				b, i, seen := at/(c.Heads*c.Queries), at%c.Queries, false
				for j := range c.Keys {
					seen = seen || c.sees(b, i, j)
				}
				require.Equal(t, !seen, math.IsInf(float64(lse), -1), what)
			}
			requireInParts(t, c, newCase(), what)
		})
	}
}

// A length that is out of range, and that the host has not checked, affects no
// other sequence.
func TestAttentionOfWrongLengths(t *testing.T) {
	c := newCrossCase[float64](3, 2, 3, 1, 1, 2, false, 0, 0)
	c.KeyLengths = []int64{99, -1, 3}
	c.run(1)
	want := newCrossCase[float64](3, 2, 3, 1, 1, 2, false, 0, 0)
	want.KeyLengths = []int64{3, 0, 3}
	want.run(1)
	assert.Equal(t, want.bufs, c.bufs)
}

// Blocks of queries and keys without a common document are not computed: NaN in one
// document stays there.
func TestAttentionSkipsOtherDocuments(t *testing.T) {
	const each, bad = 256, 2
	c := newCrossCase[float32](1, 5*each, 5*each, 1, 1, 8, false, 0, 0)
	for i := range c.Queries {
		c.QueryDocs, c.KeyDocs = append(c.QueryDocs, int64(i/each)), append(c.KeyDocs, int64(i/each))
	}
	for _, x := range [][]float32{c.K, c.V} {
		Fill(x[bad*each*8:(bad+1)*each*8], float32(math.NaN()))
	}
	c.run(1)
	for _, x := range [][]float32{c.Out, c.GradQ, c.GradK, c.GradV} {
		for i, v := range x {
			if i/8/each != bad {
				require.False(t, v != v, i/8)
			}
		}
	}
}

func TestMaskedAttentionAllocatesNothing(t *testing.T) {
	c := newCrossCase[float32](2, 70, 300, 2, 1, 8, true, 230, 0.1).mask("lengths", "documents")
	w := NewAttentionWork(make([]float32, WorkspaceLen[float32]()))
	assert.Zero(t, testing.AllocsPerRun(2, func() {
		AttentionForward(&c.Attention, w, 0, c.Blocks())
		AttentionGrad(&c.Attention, w, 0, c.Groups())
	}))
}
