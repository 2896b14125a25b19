package algo_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// layouts are hosts of equal and of different sizes, with ranks in order and not.
var layouts = []algo.Layout{{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 1, 2}, {0, 1, 1, 2, 2, 2}, {0, 0, 1, 1, 1, 2, 2},
	{0, 0, 0, 0, 1, 1, 1, 2, 2}, {0, 1, 2, 0, 1, 2, 0, 1}, {0, 0, 0, 0, 1, 1, 1, 1}}

// away is how many hosts after the root's host the rank's host is.
func (w *world) away(root, r int) int {
	n := w.at.Hosts()
	return (w.at[r] - w.at[root] + n) % n
}

// group returns the ranks of a host, and the place of r among them.
func (w *world) group(host, r int) (ranks []int, place int) {
	for p, h := range w.at {
		if h == host {
			ranks = append(ranks, p)
		}
	}
	return ranks, slices.Index(ranks, r)
}

// hierarchicalFormula is what rank r sends for an all-reduce. Inside its host: S without its slice, and its slice to each other rank.
// Between hosts, for each segment: the parts of others, and its own part to the others.
func (w *world) hierarchicalFormula(r, count, size int) int {
	ranks, place := w.group(w.at[r], r)
	g, n := len(ranks), w.at.Hosts()
	own := slice(count, size, g, place)
	return count*size - own + own*(g-1) + w.acrossFormula(r, count, size, n, count*place/g, count*(place+1)/g)
}

func (w *world) acrossFormula(r, count, size, n, from, to int) int {
	cuts := []int{from, to}
	for h := range n {
		ranks, _ := w.group(h, 0)
		for i := range ranks {
			if c := count * i / len(ranks); c > from && c < to {
				cuts = append(cuts, c)
			}
		}
	}
	slices.Sort(cuts)
	total := 0
	for i := range len(cuts) - 1 {
		length := cuts[i+1] - cuts[i]
		sub := slice(length, size, n, w.at[r])
		total += length*size - sub + sub*(n-1)
	}
	return total
}

// hierarchicalGather is what rank r sends for an all-gather: its part to each other host, and the parts of the ranks that it represents
// to the ranks of its own host.
func (w *world) hierarchicalGather(r int, mine [][]byte) int {
	ranks, _ := w.group(w.at[r], r)
	total := len(mine[r]) * (w.at.Hosts() - 1)
	for p := range mine {
		_, place := w.group(w.at[p], p)
		if p == r || w.at[p] != w.at[r] && ranks[place%len(ranks)] == r {
			total += len(mine[p]) * (len(ranks) - 1)
		}
	}
	return total
}

// crossed returns the bytes that were sent between hosts.
func (w *world) crossed() int {
	total := uint64(0)
	for r, wire := range w.senders {
		for p, bytes := range wire.to {
			if w.at[r] != w.at[p] {
				total += bytes
			}
		}
	}
	return int(total)
}

// atLayouts runs test on all layouts, in the short form on three of them.
func atLayouts(t *testing.T, test func(t *testing.T, w *world)) {
	for i, l := range layouts {
		if i%4 != 1 && !reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, newWorldAt(t, l)) })
		})
	}
}

// On every layout, results are those of linear and bytes those of the formula. Between hosts, all-reduce sends 2S(N−1) in total, however
// many ranks a host has.
func TestHierarchicalAllReduce(t *testing.T) {
	atLayouts(t, func(t *testing.T, w *world) {
		n := len(w.at)
		for index, x := range reductions() {
			if !reliability.Long(t) && x.dt != tensor.Float32 && (index+n)%2 == 0 {
				continue
			}
			for k, count := range counts(t, n, index) {
				in := w.inputs(x, count)
				want := w.linear(x, in)
				for _, inPlace := range places(t, x, index+k) {
					out, sent := w.reduceOn(backend.AllReduce, "hierarchical", x, in, 0, inPlace)
					for r := range n {
						require.True(t, bytes.Equal(want, out[r]), "%d of %v, rank %d, in place %v", count, x, r, inPlace)
					}
					w.allReduceBytes("hierarchical", x, count, sent)
					require.Equal(t, 2*count*x.dt.Size()*(w.at.Hosts()-1), w.crossed())
				}
			}
		}
	})
}

func TestLongHierarchicalAllReduce(t *testing.T) { reliability.AsLong(t, TestHierarchicalAllReduce) }

// Broadcast sends S once to each other host. All-gather sends each host only what it does not have. Reduce-scatter sends one sum for each
// part.
func TestHierarchicalMoves(t *testing.T) {
	atLayouts(t, func(t *testing.T, w *world) {
		n := len(w.at)
		for _, count := range []int{0, 1, 1000, big(550_001)} {
			for root := range n {
				if count > 1000 && root != n-1 && !reliability.Long(t) {
					continue
				}
				w.broadcast("hierarchical", count, root, root%2 == 0)
				require.Equal(t, count*(w.at.Hosts()-1), w.crossed())
			}
		}
		for index, x := range []reduction{
			{backend.Sum, tensor.Float32}, {backend.Avg, tensor.BFloat16}, {backend.PreMulSum, tensor.Float16}, {backend.Max, tensor.Int64},
		} {
			scales := []int{0, 1, 300}
			if reliability.Long(t) || (index+n)%4 == 0 {
				scales = append(scales, big(90_003)/x.dt.Size()) // of some ranks, more than a chunk
			}
			for _, scale := range scales {
				w.halves(x, uneven(n, scale), true)
				w.halves(x, slices.Repeat([]int{scale}, n), false)
			}
		}
		parts := uneven(n, 300)
		in := w.inputs(reduction{backend.Sum, tensor.Float32}, total(parts))
		for _, c := range []struct {
			kind     backend.Kind
			src, dst []int
		}{{backend.ReduceScatterV, slices.Repeat([]int{total(parts)}, n), parts},
			{backend.AllGatherV, parts, slices.Repeat([]int{total(parts)}, n)}} {
			w.run(func(r int) backend.Op {
				return backend.Op{Kind: c.kind, Algo: "hierarchical", Count: parts[r], SrcCounts: parts, DstCounts: parts,
					Src: mem(in[r][:4*c.src[r]]), Dst: mem(make([]byte, 4*c.dst[r]))}
			})
			require.Equal(t, 4*total(parts)*(w.at.Hosts()-1), w.crossed(), "%v", c.kind)
		}
	})
}

func TestLongHierarchicalMoves(t *testing.T) { reliability.AsLong(t, TestHierarchicalMoves) }

// The binomial tree goes to every other host once, from every root, and has the results of linear.
func TestBinomialOnHosts(t *testing.T) {
	atLayouts(t, func(t *testing.T, w *world) {
		n, hosts := len(w.at), w.at.Hosts()
		for _, count := range []int{0, 1, 1000, big(300_001)} {
			x := reduction{backend.Avg, tensor.Float32}
			in := w.inputs(x, count)
			want := w.linear(x, in)
			for root := range n {
				if count > 1000 && root != n/2 {
					continue
				}
				out, _ := w.reduceOn(backend.Reduce, "binomial", x, in, root, root%2 == 0)
				require.True(t, bytes.Equal(want, out[root]), "%d, root %d", count, root)
				require.Equal(t, 4*count*(hosts-1), w.crossed())
				src, dst := pattern(root, count), make([][]byte, n)
				w.run(func(r int) backend.Op {
					dst[r] = make([]byte, count)
					op := backend.Op{Kind: backend.Broadcast, Algo: "binomial", DType: tensor.Uint8, Count: count, Root: root, Dst: mem(dst[r])}
					if r == root {
						op.Src = mem(src)
					}
					return op
				})
				for r := range n {
					require.True(t, bytes.Equal(src, dst[r]), "%d from %d, rank %d", count, root, r)
				}
				require.Equal(t, count*(hosts-1), w.crossed())
			}
		}
	})
}

func TestLongBinomialOnHosts(t *testing.T) { reliability.AsLong(t, TestBinomialOnHosts) }

func total(counts []int) int {
	sum := 0
	for _, c := range counts {
		sum += c
	}
	return sum
}
