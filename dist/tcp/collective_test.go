package tcp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// inputs returns a buffer of count values for each rank, with fixed seeds.
func inputs(n, count int) [][]float32 {
	out := make([][]float32, n)
	for r := range out {
		rng := rand.New(rand.NewPCG(7, uint64(r)))
		out[r] = make([]float32, count)
		for i := range out[r] {
			out[r][i] = rng.Float32() - 0.5
		}
	}
	return out
}

// naive reduces element by element in rank order.
func naive(in [][]float32, red backend.Red, factors []float64) []float32 {
	out := make([]float32, len(in[0]))
	for i := range out {
		acc := in[0][i]
		if red == backend.PreMulSum {
			acc = float32(acc * float32(factors[0]))
		}
		for r := 1; r < len(in); r++ {
			switch x := in[r][i]; red {
			case backend.Sum, backend.Avg:
				acc += x
			case backend.Prod:
				acc *= x
			case backend.Max:
				acc = max(acc, x)
			case backend.PreMulSum:
				acc += float32(x * float32(factors[r]))
			}
		}
		if red == backend.Avg {
			acc /= float32(len(in))
		}
		out[i] = acc
	}
	return out
}

// same fails unless the slices are equal; it is much faster on long ones than require.Equal.
func same[T comparable](t testing.TB, want, got []T, msg ...any) {
	t.Helper()
	if !slices.Equal(want, got) {
		require.Equal(t, want, got, msg...)
		t.Fatal("NaN in a result")
	}
}

// world is n ranks in one group, and the number of the next operation.
type world struct {
	t   testing.TB
	be  []backend.Backend
	seq uint64
}

func newWorld(t testing.TB, n int) *world {
	return &world{t: t, be: open(t, start(t, n, nil), "world")}
}

// run does one operation on all ranks; fill makes rank r's.
func (w *world) run(fill func(r int) backend.Op) {
	w.t.Helper()
	w.seq++
	for r, err := range each(len(w.be), func(r int) error {
		op := fill(r)
		op.Seq = w.seq
		return do(w.be[r], &op)
	}) {
		require.NoError(w.t, err, "rank %d", r)
	}
}

var testCounts = []int{0, 5, 1000, 20_001, 140_003} // below and above a chunk, a frame and an eager message

// naiveSizes are numbers of ranks.
func naiveSizes(t *testing.T) []int {
	if reliability.Long(t) {
		return []int{2, 3, 4}
	}
	return []int{3}
}

// In the short form, reductions other than a sum take turns.
func TestReductionsMatchNaive(t *testing.T) {
	t.Parallel()
	for _, n := range naiveSizes(t) {
		w := newWorld(t, n)
		for i, red := range []backend.Red{backend.Sum, backend.Avg, backend.Prod, backend.Max, backend.PreMulSum} {
			for k, count := range testCounts {
				if i > 0 && (i+k)%2 == 0 && !reliability.Long(t) {
					continue
				}
				t.Run(fmt.Sprintf("%d/%v/%d", n, red, count), func(t *testing.T) {
					w.t = t
					w.reductions(red, count)
				})
			}
		}
	}
}

func TestLongReductionsMatchNaive(t *testing.T) { reliability.AsLong(t, TestReductionsMatchNaive) }

func (w *world) reductions(red backend.Red, count int) {
	n := len(w.be)
	in, factors := inputs(n, count), make([]float64, n)
	for r := range factors {
		factors[r] = 1 / float64(r+2)
	}
	want := naive(in, red, factors)
	op := func(kind backend.Kind, r int, src, dst []float32) backend.Op {
		return backend.Op{Kind: kind, Red: red, Count: count, Factor: factors[r], Src: memOf(src), Dst: memOf(dst)}
	}
	out := make([][]float32, n)
	w.run(func(r int) backend.Op {
		out[r] = make([]float32, count)
		return op(backend.AllReduce, r, in[r], out[r])
	})
	for r := range n {
		same(w.t, want, out[r], "all-reduce, rank %d", r)
	}
	w.run(func(r int) backend.Op { // in place
		copy(out[r], in[r])
		return op(backend.AllReduce, r, out[r], out[r])
	})
	for r := range n {
		same(w.t, want, out[r], "all-reduce in place, rank %d", r)
	}
	root := n - 1
	w.run(func(r int) backend.Op {
		copy(out[r], in[r])
		o := op(backend.Reduce, r, out[r], nil)
		o.Root = root
		if r == root {
			o.Dst = o.Src
		}
		return o
	})
	for r := range n {
		if r == root {
			same(w.t, want, out[r], "reduce")
		} else {
			same(w.t, in[r], out[r], "reduce changed rank %d", r)
		}
	}
	w.scatters(red, in, want, factors)
}

// scatters runs ReduceScatter on equal parts and ReduceScatterV on uneven ones.
func (w *world) scatters(red backend.Red, in [][]float32, want []float32, factors []float64) {
	n, count := len(w.be), len(want)
	part := count / n
	cut := make([][]float32, n)
	for r := range in {
		cut[r] = in[r][:part*n]
	}
	out := make([][]float32, n)
	w.run(func(r int) backend.Op {
		out[r] = make([]float32, part)
		return backend.Op{Kind: backend.ReduceScatter, Red: red, Count: part, Factor: factors[r], Src: memOf(cut[r]), Dst: memOf(out[r])}
	})
	for r := range n {
		same(w.t, want[r*part:(r+1)*part], out[r], "reduce-scatter, rank %d", r)
	}
	counts := make([]int, n) // everything to the last rank but one element to the first
	counts[n-1] = count
	if count > 0 {
		counts[0], counts[n-1] = 1, count-1
	}
	w.run(func(r int) backend.Op {
		out[r] = make([]float32, counts[r])
		return backend.Op{Kind: backend.ReduceScatterV, Red: red, SrcCounts: counts, Factor: factors[r], Src: memOf(in[r]), Dst: memOf(out[r])}
	})
	off := 0
	for r := range n {
		same(w.t, want[off:off+counts[r]], out[r], "reduce-scatter-v, rank %d", r)
		off += counts[r]
	}
}

func TestMovesMatchNaive(t *testing.T) {
	t.Parallel()
	for _, n := range naiveSizes(t) {
		w := newWorld(t, n)
		for _, count := range testCounts {
			t.Run(fmt.Sprintf("%d/%d", n, count), func(t *testing.T) {
				w.t = t
				w.moves(count)
			})
		}
	}
}

func TestLongMovesMatchNaive(t *testing.T) { reliability.AsLong(t, TestMovesMatchNaive) }

func (w *world) moves(count int) {
	n := len(w.be)
	in, whole := inputs(n, count), inputs(n, count*n)
	var all []float32
	for _, x := range in {
		all = append(all, x...)
	}
	out := make([][]float32, n)
	for root := range n {
		w.run(func(r int) backend.Op {
			out[r] = append([]float32{}, in[r]...)
			return backend.Op{Kind: backend.Broadcast, Root: root, Count: count, Src: memOf(out[r]), Dst: memOf(out[r])}
		})
		for r := range n {
			same(w.t, in[root], out[r], "broadcast from %d, rank %d", root, r)
		}
		w.run(func(r int) backend.Op {
			op := backend.Op{Kind: backend.Gather, Root: root, Count: count, Src: memOf(in[r])}
			if r == root {
				out[r] = make([]float32, count*n)
				op.Dst = memOf(out[r])
			}
			return op
		})
		same(w.t, all, out[root], "gather")
		w.run(func(r int) backend.Op {
			out[r] = make([]float32, count)
			op := backend.Op{Kind: backend.Scatter, Root: root, Count: count, Dst: memOf(out[r])}
			if r == root {
				op.Src = memOf(whole[r])
			}
			return op
		})
		for r := range n {
			same(w.t, whole[root][r*count:(r+1)*count], out[r], "scatter from %d, rank %d", root, r)
		}
	}
	w.run(func(r int) backend.Op {
		out[r] = make([]float32, count*n)
		return backend.Op{Kind: backend.AllGather, Count: count, Src: memOf(in[r]), Dst: memOf(out[r])}
	})
	for r := range n {
		same(w.t, all, out[r], "all-gather, rank %d", r)
	}
	w.run(func(r int) backend.Op {
		out[r] = make([]float32, count*n)
		return backend.Op{Kind: backend.AllToAll, Count: count, Src: memOf(whole[r]), Dst: memOf(out[r])}
	})
	for r := range n {
		for p := range n {
			same(w.t, whole[p][r*count:(r+1)*count], out[r][p*count:(p+1)*count], "all-to-all %d to %d", p, r)
		}
	}
	w.run(func(int) backend.Op { return backend.Op{Kind: backend.Barrier} })
}

// sends is how much rank p sends to rank q in the V forms: uneven, with empty parts.
func sends(p, q int) int { return (p*5 + q*3) % 4 * 20_000 }

func TestVFormsMatchNaive(t *testing.T) {
	t.Parallel()
	const n = 3
	w := newWorld(t, n)
	counts := []int{sends(0, 1), 0, sends(2, 1)}
	in, out := make([][]int32, n), make([][]int32, n)
	fill := func(r, to, k int) []int32 {
		x := make([]int32, k)
		for i := range x {
			x[i] = int32(r<<24 | to<<20 | i)
		}
		return x
	}
	w.run(func(r int) backend.Op {
		in[r], out[r] = fill(r, 0, counts[r]), make([]int32, counts[0]+counts[1]+counts[2])
		return backend.Op{Kind: backend.AllGatherV, DType: tensor.Int32, DstCounts: counts, Src: memOf(in[r]), Dst: memOf(out[r])}
	})
	for r := range n {
		off := 0
		for p := range n {
			same(t, in[p], out[r][off:off+counts[p]])
			off += counts[p]
		}
	}
	w.run(func(r int) backend.Op {
		op := backend.Op{Kind: backend.AllToAllV, DType: tensor.Int32}
		var src []int32
		total := 0
		for p := range n {
			op.SrcCounts, op.DstCounts = append(op.SrcCounts, sends(r, p)), append(op.DstCounts, sends(p, r))
			src = append(src, fill(r, p, sends(r, p))...)
			total += sends(p, r)
		}
		out[r] = make([]int32, total)
		op.Src, op.Dst = memOf(src), memOf(out[r])
		return op
	})
	for r := range n {
		off := 0
		for p := range n {
			same(t, fill(p, r, sends(p, r)), out[r][off:off+sends(p, r)])
			off += sends(p, r)
		}
	}
}

// The bytes on the wire are those of the formulas, per rank: direct by default, linear when it is asked for.
func TestWireBytes(t *testing.T) {
	t.Parallel()
	const n, count = 3, 100_001
	w := newWorld(t, n)
	in := inputs(n, count)
	var before [n]uint64
	for _, name := range []string{"", "linear"} {
		w.run(func(r int) backend.Op {
			return backend.Op{Kind: backend.AllReduce, Algo: name, Count: count, Src: memOf(in[r]), Dst: memOf(in[r])}
		})
		for r := range n {
			own := count*(r+1)/n - count*r/n
			want := 4 * (count - own + own*(n-1))
			if name == "linear" {
				want = 4 * count
				if r == 0 {
					want *= n - 1
				}
			}
			now := w.be[r].Counters().Wire[backend.AllReduce].Load()
			assert.Equal(t, uint64(want), now-before[r], "%s, rank %d", name, r)
			before[r] = now
			assert.NotZero(t, w.be[r].Counters().Headers.Load())
		}
	}
	const size = 4 * count
	out := make([][]float32, n)
	w.run(func(r int) backend.Op {
		out[r] = make([]float32, count*n)
		return backend.Op{Kind: backend.AllGather, Count: count, Src: memOf(in[r]), Dst: memOf(out[r])}
	})
	for r := range n {
		assert.Equal(t, uint64(size*(n-1)), w.be[r].Counters().Wire[backend.AllGather].Load(), "rank %d", r)
	}
}
