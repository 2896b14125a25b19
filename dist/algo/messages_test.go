package algo_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/algo/memnet"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// big is a number of elements that takes several chunks. With the race detector it is smaller: copies are slow then, and
// TestLargeReductions has such sizes.
func big(count int) int {
	if reliability.Racing {
		return 5_003
	}
	return count
}

// reduction is a way to combine and a type that it exists for.
type reduction struct {
	red backend.Red
	dt  tensor.DType
}

func reductions() []reduction {
	var all []reduction
	for red := backend.Red(0); red < backend.NumReds; red++ {
		for dt := tensor.DType(0); dt < tensor.NumDTypes; dt++ {
			if algo.CheckReduction(red, dt) == nil {
				all = append(all, reduction{red, dt})
			}
		}
	}
	return all
}

// exact is element i of rank's input: whole numbers so small that every partial result is exact in 16 bits.
func (x reduction) exact(n, rank, i int) float64 {
	switch {
	case x.dt == tensor.Bool:
		return float64((rank + i/2) % (1 + i%3) % 2)
	case x.red == backend.Prod:
		return float64(1 + (rank+i)%2)
	case x.red == backend.Avg:
		return float64(n * ((rank + i) % 3))
	}
	return float64((3*rank+7*i)%12 - 5)
}

func (x reduction) op(kind backend.Kind, name string, count, rank, root int) backend.Op {
	return backend.Op{Kind: kind, Algo: name, Red: x.red, DType: x.dt, Count: count, Root: root, Factor: float64(3 - rank%3)}
}

// bubbles runs test for powers of two and what is next to them, each in a synctest bubble, in which a deadlock ends the test at once.
func bubbles(t *testing.T, test func(t *testing.T, w *world, n int)) {
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8} {
		if (n == 4 || n == 7) && !reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, n), n) })
		})
	}
}

// place is that of n among the numbers of ranks in the short form. A quarter of the reductions has places 0 and 4, one 1, one 2 and one 3:
// each runs on several ranks.
func place(n int) int { return slices.Index([]int{1, 2, 3, 5, 8}, n) }

// counts are the numbers of elements. The last one is long; in the short form not all types have it.
func counts(t *testing.T, n, index int) []int {
	all := []int{0, 1, 7, n - 1, n, n + 1, 1000}
	if reliability.Long(t) || (index+n)%13 == 0 {
		all = append(all, big(100_003))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// places are in place and not in place. In the short form, types other than float32 have one of them.
func places(t testing.TB, x reduction, i int) []bool {
	if reliability.Long(t) || x.dt == tensor.Float32 {
		return []bool{false, true}
	}
	return []bool{i%2 == 0}
}

// linear returns what an all-reduce of the definition gives on rank 0.
func (w *world) linear(x reduction, in [][]byte) []byte {
	out, _ := w.reduceOn(backend.AllReduce, "linear", x, in, 0, false)
	return bytes.Clone(out[0])
}

// reduceOn runs one all-reduce or reduce and returns the outputs of all ranks, which are valid until the next call with the same inPlace,
// and what they sent.
func (w *world) reduceOn(kind backend.Kind, name string, x reduction, in [][]byte, root int, inPlace bool) (out [][]byte, sent []uint64) {
	n := len(w.ranks)
	out = make([][]byte, n)
	srcs := make([][]byte, n)
	sent = w.run(func(r int) backend.Op {
		op := x.op(kind, name, len(in[r])/x.dt.Size(), r, root)
		srcs[r] = w.lendCopy("src", r, in[r])
		switch {
		case kind == backend.Reduce && r != root:
		case inPlace:
			out[r] = srcs[r]
		default:
			out[r] = w.lend("dst", r, len(in[r]))
		}
		op.Src, op.Dst = mem(srcs[r]), mem(out[r])
		return op
	})
	for r := range n {
		if !inPlace || out[r] == nil {
			require.True(w.t, bytes.Equal(in[r], srcs[r]), "%s %v changed the input of rank %d", name, kind, r)
		}
	}
	return out, sent
}

func others(k backend.Kind) []string { return algo.Names(k)[1:] }

// sumOfFloats is what short tests have on all numbers of ranks.
var sumOfFloats = reduction{backend.Sum, tensor.Float32}

// Every all-reduce and reduce has the bits of linear on exact inputs, in place and not, with every root.
func TestReductionsEqualLinear(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		for index, x := range reductions() {
			if !reliability.Long(t) && x != sumOfFloats && (index+place(n))%4 > 0 {
				continue
			}
			for _, count := range counts(t, n, index) {
				in := w.inputs(x, count)
				want := w.linear(x, in)
				for k, name := range others(backend.AllReduce) {
					for _, inPlace := range places(t, x, index+k+count) {
						out, sent := w.reduceOn(backend.AllReduce, name, x, in, 0, inPlace)
						for r := range n {
							require.True(t, bytes.Equal(want, out[r]), "%s of %d %v, %v, rank %d, in place %v", name, count, x.dt, x.red, r, inPlace)
						}
						w.allReduceBytes(name, x, count, sent)
					}
				}
				w.reduceToRoots(x, in, want, index)
			}
		}
	})
}

func TestLongReductionsEqualLinear(t *testing.T) { reliability.AsLong(t, TestReductionsEqualLinear) }

func (w *world) inputs(x reduction, count int) [][]byte {
	in := make([][]byte, len(w.ranks))
	const tile = 4099 // a prime, so that no two slices or chunks begin with the same values
	for r := range in {
		some := values(x.dt, min(count, tile), func(i int) float64 { return x.exact(len(in), r, i+i/12) })
		in[r] = make([]byte, 0, count*x.dt.Size())
		for len(in[r]) < count*x.dt.Size() {
			in[r] = append(in[r], some[:min(len(some), count*x.dt.Size()-len(in[r]))]...)
		}
	}
	return in
}

// reduceToRoots reduces to every root (of some reductions; to one root of the others).
func (w *world) reduceToRoots(x reduction, in [][]byte, want []byte, index int) {
	n := len(w.ranks)
	for root := range n {
		if !reliability.Long(w.t) && x.dt != tensor.Float32 && root != index%n {
			continue
		}
		for k, name := range algo.Names(backend.Reduce) {
			for _, inPlace := range places(w.t, x, index+k+root) {
				out, sent := w.reduceOn(backend.Reduce, name, x, in, root, inPlace)
				require.True(w.t, bytes.Equal(want, out[root]), "%s of %d bytes, %v, root %d", name, len(want), x, root)
				for r := range n {
					bytes := uint64(len(want))
					if r == root {
						bytes = 0
					} else if x.red == backend.PreMulSum && name != "binomial" {
						bytes += 8
					}
					require.Equal(w.t, bytes, sent[r], "%s to %d, rank %d", name, root, r)
				}
			}
		}
	}
}

// Large buffers take several chunks, and those of float32 two rounds of them on a ring.
func TestLargeReductions(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		if n != 3 && !reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, n)
				for _, x := range []reduction{{backend.Sum, tensor.Float32}, {backend.PreMulSum, tensor.BFloat16}, {backend.Avg, tensor.Float64}} {
					slice := 800_000 // bytes
					if x.dt == tensor.Float32 {
						slice = 1_200_000
					}
					count := n*slice/x.dt.Size() + 5
					in := w.inputs(x, count)
					want := w.linear(x, in)
					for _, name := range others(backend.AllReduce) {
						out, sent := w.reduceOn(backend.AllReduce, name, x, in, 0, n != 3)
						for r := range n {
							require.True(t, bytes.Equal(want, out[r]), "%s, %v, rank %d", name, x, r)
						}
						w.allReduceBytes(name, x, count, sent)
					}
					out, _ := w.reduceOn(backend.Reduce, "binomial", x, in, 1, n == 3)
					require.True(t, bytes.Equal(want, out[1]))
				}
			})
		})
	}
}

func TestLongLargeReductions(t *testing.T) { reliability.AsLong(t, TestLargeReductions) }

// The two trees of double-tree fit together for every number of ranks: no rank waits forever, also where senders wait for receivers.
func TestDoubleTrees(t *testing.T) {
	x := reduction{backend.Sum, tensor.Int32}
	for _, n := range []int{6, 9, 10, 11, 12, 13, 15, 16, 17, 31, 34, 64} {
		if n > 17 && !reliability.Long(t) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, n)
			for _, count := range []int{0, 3, 40_001} { // of the last one senders send nothing ahead
				in := w.inputs(x, count)
				want := w.linear(x, in)
				out, sent := w.reduceOn(backend.AllReduce, "double-tree", x, in, 0, true)
				for r := range n {
					require.True(t, bytes.Equal(want, out[r]), "%d elements on %d ranks, rank %d", count, n, r)
				}
				w.allReduceBytes("double-tree", x, count, sent)
			}
		})
	}
}

func TestLongDoubleTrees(t *testing.T) { reliability.AsLong(t, TestDoubleTrees) }

// On inputs whose sum depends on the order, direct has the bits of linear. Every other algorithm has the same bits on all ranks and in
// every run.
func TestRoundedSums(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		for _, x := range []reduction{
			{backend.Sum, tensor.Float32}, {backend.Avg, tensor.BFloat16}, {backend.PreMulSum, tensor.Float16}, {backend.Avg, tensor.Float64},
		} {
			in, rng := make([][]byte, n), rand.New(rand.NewPCG(3, 4))
			for r := range in {
				in[r] = values(x.dt, 5003, func(int) float64 { return rng.NormFloat64() })
			}
			want := w.linear(x, in)
			for _, name := range others(backend.AllReduce) {
				first, _ := w.reduceOn(backend.AllReduce, name, x, in, 0, false)
				again, _ := w.reduceOn(backend.AllReduce, name, x, in, 0, true)
				for r := range n {
					require.True(t, bytes.Equal(first[0], first[r]) && bytes.Equal(first[0], again[r]), "%s, rank %d", name, r)
				}
				same := bytes.Equal(want, first[0])
				if name == "direct" || n == 1 && x.red != backend.PreMulSum {
					assert.True(t, same, "%s of %v", name, x)
				} else if n > 4 && x.dt != tensor.Float64 {
					assert.False(t, same, "%s adds in rank order by accident: the test is too weak", name)
				}
			}
		}
	})
}

func TestLongRoundedSums(t *testing.T) { reliability.AsLong(t, TestRoundedSums) }

// A barrier ends on no rank before the last rank has begun it.
func TestDissemination(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		var mu sync.Mutex
		came := 0
		for late := range n {
			var wg sync.WaitGroup
			for r := range n {
				wg.Go(func() {
					if r == late {
						time.Sleep(time.Second) // on the bubble's clock, so that all others wait by then
					}
					mu.Lock()
					came++
					mu.Unlock()
					assert.NoError(t, w.ranks[r].Run(&backend.Op{Kind: backend.Barrier, Algo: "dissemination"}))
					mu.Lock()
					assert.GreaterOrEqual(t, came, n*(late+1), "rank %d went on without rank %d", r, late)
					mu.Unlock()
				})
			}
			wg.Wait()
		}
		rounds := 0
		for d := 1; d < n; d *= 2 {
			rounds++
		}
		for r := range n {
			assert.Equal(t, n*rounds, w.senders[r].count)
			assert.Zero(t, w.senders[r].bytes)
		}
	})
}

func TestLongDissemination(t *testing.T) { reliability.AsLong(t, TestDissemination) }

func TestChoice(t *testing.T) {
	all := algo.Names()
	assert.Equal(t, []string{"linear", "direct"}, all[:2])
	for _, name := range []string{"ring", "halving-doubling", "double-tree", "chain", "binomial", "pairwise", "bruck", "dissemination"} {
		assert.True(t, slices.Contains(all, name), name)
	}
	tuner := algo.NewTuner(algo.OneHost(2))
	for _, c := range []struct {
		op   backend.Op
		want string
	}{
		{backend.Op{Kind: backend.AllReduce, Count: 1 << 20}, "direct"},
		{backend.Op{Kind: backend.AllReduce, Count: 7, Algo: "ring"}, "ring"},
		{backend.Op{Kind: backend.ReduceScatter, Count: 1}, "linear"},
		{backend.Op{Kind: backend.Broadcast, Count: 1 << 20}, "linear"},
		{backend.Op{Kind: backend.Send, Count: 1 << 20}, "linear"},
	} {
		assert.Equal(t, c.want, tuner.Choose(&c.op), "%v of %d", c.op.Kind, c.op.Count)
		assert.NoError(t, tuner.Check(&c.op))
	}
	op := backend.Op{Kind: backend.Broadcast, Algo: "ring"}
	const text = `algorithm "ring" cannot do broadcast, which has: linear, direct, chain, binomial, hierarchical`
	assert.EqualError(t, algo.NewTuner(algo.OneHost(1)).Check(&op), text)
	assert.EqualError(t, algo.NewMessages(memnet.New(1, nil).Rank(0), algo.NewTuner(algo.OneHost(1))).Run(&op), text)
}
