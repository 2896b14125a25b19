package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// mmaFiles are the kernels of attention that skip tiles.
var mmaFiles = []string{"attention_mma.cu", "attention_mma_q.cu", "attention_mma_kv.cu"}

// packs are documents of queries and of keys, by their places in a sequence.
var packs = []struct {
	name           string
	queries, keys  func(i int) int
	tq, tk, offset int
	lengths        operand
}{
	// Short ones after a long one: the last rows see no key in the first tiles, and no tile is full.
	{"in order", packed(0, 1, 2, 3, 4), packed(0, 1, 2, 3, 4), 300, 300, 0, operand{}},
	{"by turns", func(i int) int { return i % 3 }, func(j int) int { return j % 3 }, 130, 150, 20, operand{}},
	// Ranges meet though some tiles have no document in common.
	{"in any order", packed(5, -3, 1<<40, 0, -3), packed(-1<<40, 5, -3, 1<<40, 0), 300, 300, 10, operand{}},
	{"without keys", packed(7, 1, 9, 3, 8), packed(2, 1, 0, 3, 4), 300, 200, -30, ints(2, func(b int) int { return 190 - 90*b })},
	{"as lengths", packed(0, 1, 2, 3, 4), packed(0, 1, 2, 3, 4), 150, 300, 150, ints(2, func(b int) int { return 299 * b })},
}

// packed gives five documents, which end at places of all kinds, these numbers.
func packed(numbers ...int) func(i int) int {
	return func(i int) int {
		for n, end := range []int{130, 144, 200, 255} {
			if i < end {
				return numbers[n]
			}
		}
		return numbers[4]
	}
}

// TestSkippedDocuments compares with kernels that go through all tiles: the bits are the same. And with the CPU.
func TestSkippedDocuments(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		var cases []crossed
		var wants, gots [][]operand
		for i, p := range packs {
			for _, causal := range []bool{true, false} {
				if !long(t) && (i == 0 || causal == (i == 4)) {
					continue
				}
				batch, kv := 2, 2
				if !long(t) {
					batch, kv = max(1, p.lengths.n()), 1
				}
				numbers := func(n int, of func(i int) int) operand {
					return ints(batch*n, func(i int) int { return of(i%n) + i/n })
				}
				cases = append(cases, crossed{
					shape: shape{batch: batch, tq: p.tq, tk: p.tk, heads: 2 * kv, kv: kv, hd: 16, offset: p.offset, causal: causal,
						drop: 0.3 * float64(i%2)},
					lengths: p.lengths, qdocs: numbers(p.tq, p.queries), kdocs: numbers(p.tk, p.keys)})
			}
		}
		for _, c := range cases {
			want := c.run(t, host, tensor.BFloat16, nil)
			got := c.run(t, dev, tensor.BFloat16, want)
			requireNear(t, want, got, c.tolerance(), fmt.Sprintf("%+v", c.shape))
			wants, gots = append(wants, want), append(gots, got)
		}
		for _, file := range mmaFiles {
			require.NoError(t, cuda.Alter(dev, file, "low <= id && id <= high", "true"))
		}
		for i, c := range cases {
			for j, got := range c.run(t, dev, tensor.BFloat16, wants[i]) {
				require.True(t, bytes.Equal(gots[i][j].bytes, got.bytes), "%+v: operand %d", c.shape, j)
			}
		}
	})
}

func TestLongSkippedDocuments(t *testing.T) { reliability.AsLong(t, TestSkippedDocuments) }

// TestOtherDocumentsAreNotRead has two documents that fill whole tiles of every kernel. One of them is NaN, which would reach all that
// reads a tile with it: the other one has the bits that it has alone.
func TestOtherDocumentsAreNotRead(t *testing.T) {
	const each, heads, kv, hd = 384, 2, 1, 16
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		r := rng(4)
		normal := func(int) float64 { return r.NormFloat64() }
		// queries, the gradient of the output, keys, values
		var alone [4]operand
		for i, n := range []int{each * heads * hd, each * heads * hd, each * kv * hd, each * kv * hd} {
			alone[i] = values(tensor.BFloat16, n, normal)
		}
		run := func(x [4]operand, docs operand) []operand {
			s := shape{batch: 1, tq: docs.n(), tk: docs.n(), heads: heads, kv: kv, hd: hd}
			nq, nk, ns := x[0].n(), x[2].n(), heads*docs.n()
			b, f := tensor.BFloat16, tensor.Float32
			out := launch{op: ops.OpCrossAttention, d: b, outs: 2, set: crossed{shape: s}.set,
				x: []operand{stale(b, nq), stale(f, ns), x[0], x[2], x[3], {}, docs, docs}}.on(t, dev)[:2]
			grads := launch{op: ops.OpCrossAttentionGrad, d: b, outs: 3, set: crossed{shape: s}.set, x: []operand{stale(b, nq),
				stale(b, nk), stale(b, nk), x[0], x[2], x[3], out[0], x[1], out[1], {}, docs, docs, {}}}.on(t, dev)[:3]
			return append(grads, out[0])
		}
		want := run(alone, ints(each, func(int) int { return 0 }))
		for which := range 2 {
			if which == 0 && !long(t) {
				continue
			}
			var x [4]operand
			for i, a := range alone {
				x[i] = values(tensor.BFloat16, 2*a.n(), func(e int) float64 {
					if e/a.n() != which {
						return math.NaN()
					}
					return a.at(e % a.n())
				})
			}
			for i, got := range run(x, ints(2*each, func(i int) int { return i / each })) {
				n := len(want[i].bytes)
				require.True(t, bytes.Equal(want[i].bytes, got.bytes[which*n:(which+1)*n]), "document %d, operand %d", which, i)
				require.True(t, math.IsNaN(got.at((1-which)*want[i].n())), "the other one")
			}
		}
	})
}

func TestLongOtherDocumentsAreNotRead(t *testing.T) {
	reliability.AsLong(t, TestOtherDocumentsAreNotRead)
}

// A kernel that goes through all tiles reads them.
func TestOtherDocumentsWouldShow(t *testing.T) {
	emu.Only(t, "the same text")
	dev := device(t)
	c := crossed{shape: shape{batch: 1, tq: 1, tk: 256, heads: 1, kv: 1, hd: 16}, qdocs: ints(1, func(int) int { return 0 }),
		kdocs: ints(256, func(j int) int { return j / 128 })}
	x := []operand{stale(tensor.BFloat16, 16), stale(tensor.Float32, 1), values(tensor.BFloat16, 16, func(int) float64 { return 1 }),
		values(tensor.BFloat16, 256*16, func(i int) float64 { return 1 }),
		values(tensor.BFloat16, 256*16, func(i int) float64 { return []float64{2, math.NaN()}[i/(192*16)] }), {}, c.qdocs, c.kdocs}
	run := func() float64 {
		return launch{op: ops.OpCrossAttention, d: tensor.BFloat16, outs: 2, set: c.set, x: x}.on(t, dev)[0].at(0)
	}
	require.Equal(t, 2., run())
	require.NoError(t, cuda.Alter(dev, "attention_mma.cu", "low <= id && id <= high", "true"))
	require.True(t, math.IsNaN(run()))
}
