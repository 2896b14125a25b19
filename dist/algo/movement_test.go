package algo_test

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// noise is random bytes; pattern returns parts of it.
var noise = func() []byte {
	rng, b := rand.New(rand.NewPCG(5, 6)), make([]byte, 1<<20)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}()

// pattern returns n bytes that differ by rank.
func pattern(rank, n int) []byte { return bytes.Clone(noise[rank*997:][:n]) }

// share is the number of elements of one of n ranks. In the short form all ranks together have about so many.
func share(t *testing.T, each, all, n int) int {
	if reliability.Long(t) {
		return big(each)
	}
	return big(all) / n
}

// gathered is the largest number of float32 for each rank: on few ranks, more than a chunk, and on more, enough that a sender waits.
func gathered(t *testing.T, n int) int {
	if n > 4 && !reliability.Long(t) {
		return big(17_003)
	}
	return share(t, 100_003, 200_003, n)
}

// Broadcasts move the root's bytes to all, with every root.
func TestBroadcasts(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		for _, count := range []int{0, 1, 7, n - 1, n, n + 1, 1000, big(100_003), big(700_001)} {
			for root := range n {
				if !reliability.Long(t) && count > 1000 && root != n/2 {
					continue
				}
				for _, name := range algo.Names(backend.Broadcast) {
					w.broadcast(name, count, root, (root+count)%2 == 0)
				}
			}
		}
	})
}

func TestLongBroadcasts(t *testing.T) { reliability.AsLong(t, TestBroadcasts) }

func (w *world) broadcast(name string, count, root int, inPlace bool) {
	n := len(w.ranks)
	out, want := make([][]byte, n), pattern(root, count)
	sent := w.run(func(r int) backend.Op {
		out[r] = w.lend("dst", r, count)
		op := backend.Op{Kind: backend.Broadcast, Algo: name, DType: tensor.Uint8, Count: count, Root: root, Dst: mem(out[r])}
		if r == root {
			op.Src = mem(want)
			if inPlace {
				out[r], op.Dst = want, op.Src
			}
		}
		return op
	})
	last := 0 // rank in the order of hierarchical
	for r := range n {
		if r != root && w.away(root, r) >= w.away(root, last) || last == root {
			last = r
		}
	}
	for r := range n {
		require.True(w.t, bytes.Equal(want, out[r]), "%s of %d from %d, rank %d", name, count, root, r)
		place, children := (r-root+n)%n, 0
		switch name {
		case "hierarchical":
			if r != last {
				children = 1
			}
		case "chain":
			if place < n-1 {
				children = 1
			}
		case "binomial":
			for c := place + 1; c < n; c++ {
				if c&(c-1) == place {
					children++
				}
			}
			if r == root {
				require.Equal(w.t, bits.Len(uint(n-1)), children, "the root sends ⌈lg n⌉ times")
			}
		default:
			if r == root {
				children = n - 1
			}
		}
		require.Equal(w.t, uint64(children*count), sent[r], "%s from %d, rank %d", name, root, r)
	}
}

// uneven is the part of rank i. Some are empty; with a large scale they have several chunks.
func uneven(n, scale int) []int {
	counts := make([]int, n)
	for i := range counts {
		counts[i] = (i*5 + 2) % 4 * scale
	}
	return counts
}

// Reduce-scatters and all-gathers, even and V, in place and not, equal linear. One after the other, they are an all-reduce.
func TestScatterAndGather(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		for index, x := range reductions() {
			if !reliability.Long(t) && (index+place(n))%4 > 0 {
				continue
			}
			for _, scale := range []int{0, 1, n + 1, 300} {
				w.halves(x, uneven(n, scale), true)
			}
			if reliability.Long(t) || (index+place(n))%32 == 0 {
				w.halves(x, uneven(n, big(33_001)), true)
			}
		}
		f32 := reduction{backend.Sum, tensor.Float32}
		if n == 3 || reliability.Long(t) {
			w.halves(f32, uneven(n, big(50_001)), true)
		}
		for _, count := range []int{0, 1, 7, 1000, gathered(t, n)} {
			if n == 8 && count > 1000 && !reliability.Long(t) {
				continue
			}
			parts := make([]int, n)
			for i := range parts {
				parts[i] = count
			}
			w.halves(f32, parts, false)
		}
	})
}

func TestLongScatterAndGather(t *testing.T) { reliability.AsLong(t, TestScatterAndGather) }

// halves runs reduce-scatter, then all-gather of its results: an all-reduce.
func (w *world) halves(x reduction, parts []int, v bool) {
	n, total := len(parts), 0
	for _, c := range parts {
		total += c
	}
	in := w.inputs(x, total)
	want := w.linear(x, in)
	for _, inPlace := range places(w.t, x, total) {
		for _, name := range algo.Names(backend.ReduceScatter) {
			if w.at.Hosts() > 1 && name != "hierarchical" && !reliability.Long(w.t) {
				continue // the others do not look at hosts
			}
			work, mine := make([][]byte, n), make([][]byte, n)
			sent := w.run(func(r int) backend.Op {
				work[r] = w.lendCopy("work", r, in[r])
				mine[r] = w.lend("mine", r, parts[r]*x.dt.Size())
				if inPlace {
					mine[r] = part(work[r], parts, r, x.dt.Size())
				}
				op := x.op(backend.ReduceScatter, name, parts[r], r, 0)
				if v {
					op.Kind, op.SrcCounts = backend.ReduceScatterV, parts
				}
				op.Src, op.Dst = mem(work[r]), mem(mine[r])
				return op
			})
			for r := range n {
				require.True(w.t, bytes.Equal(part(want, parts, r, x.dt.Size()), mine[r]), "%s of %v, %v, rank %d", name, parts, x, r)
				bytes := (total - parts[r]) * x.dt.Size()
				if name == "bruck" { // the same as an all-gather, from the receiver's side
					bytes = 0
					for d := 1; d < n; d *= 2 {
						for j := range min(d, n-d) {
							bytes += parts[(r+d+j)%n] * x.dt.Size()
						}
					}
				}
				if x.red == backend.PreMulSum && (name == "linear" || name == "direct") {
					bytes += 8 * (n - 1)
				}
				require.Equal(w.t, uint64(bytes), sent[r], "%s, rank %d", name, r)
			}
			w.gather(name, x.dt, parts, mine, want, v, inPlace, work)
		}
	}
}

func part(b []byte, parts []int, r, size int) []byte {
	lo := 0
	for _, c := range parts[:r] {
		lo += c * size
	}
	return b[lo : lo+parts[r]*size]
}

func (w *world) gather(name string, dt tensor.DType, parts []int, mine [][]byte, want []byte, v, inPlace bool, out [][]byte) {
	n := len(parts)
	sent := w.run(func(r int) backend.Op {
		if !inPlace {
			out[r] = w.lend("all", r, len(want))
		}
		op := backend.Op{Kind: backend.AllGather, Algo: name, DType: dt, Count: parts[r], Src: mem(mine[r]), Dst: mem(out[r])}
		if v {
			op.Kind, op.DstCounts = backend.AllGatherV, parts
		}
		return op
	})
	total := len(want)
	for r := range n {
		require.True(w.t, bytes.Equal(want, out[r]), "%s of %v, rank %d", name, parts, r)
		bytes := len(mine[r]) * (n - 1)
		switch name {
		case "ring":
			bytes = total - len(mine[(r+1)%n])
		case "bruck":
			bytes = 0
			for d := 1; d < n; d *= 2 {
				for j := range min(d, n-d) {
					bytes += len(mine[(r+j)%n])
				}
			}
		case "hierarchical":
			bytes = w.hierarchicalGather(r, mine)
		}
		require.Equal(w.t, uint64(bytes), sent[r], "%s of %v, rank %d", name, parts, r)
	}
}

// All-to-alls transpose parts over ranks.
func TestAllToAlls(t *testing.T) {
	bubbles(t, func(t *testing.T, w *world, n int) {
		for _, count := range []int{0, 1, 7, n - 1, n, n + 1, 1000, share(t, 100_003, 200_003, n)} {
			equal := func(int, int) int { return count }
			for _, name := range algo.Names(backend.AllToAll) {
				w.allToAll(backend.AllToAll, name, equal)
			}
			for _, name := range algo.Names(backend.AllToAllV) {
				w.allToAll(backend.AllToAllV, name, func(from, to int) int { return (from + 2*to) % 4 * count / 2 })
			}
		}
	})
}

func TestLongAllToAlls(t *testing.T) { reliability.AsLong(t, TestAllToAlls) }

func (w *world) allToAll(kind backend.Kind, name string, rows func(from, to int) int) {
	n := len(w.ranks)
	out, want := make([][]byte, n), make([][]byte, n)
	away := make([]int, n)
	sent := w.run(func(r int) backend.Op {
		op := backend.Op{Kind: kind, Algo: name, DType: tensor.Uint8, Count: rows(r, r)}
		var src []byte
		for p := range n {
			src = append(src, pattern(r*n+p, rows(r, p))...)
			want[r] = append(want[r], pattern(p*n+r, rows(p, r))...)
			if p != r {
				away[r] += rows(r, p)
			}
			if kind == backend.AllToAllV {
				op.SrcCounts, op.DstCounts = append(op.SrcCounts, rows(r, p)), append(op.DstCounts, rows(p, r))
			}
		}
		out[r] = make([]byte, len(want[r]))
		op.Src, op.Dst = mem(src), mem(out[r])
		return op
	})
	digits := 0
	for j := range n {
		digits += bits.OnesCount(uint(j))
	}
	for r := range n {
		require.True(w.t, bytes.Equal(want[r], out[r]), "%v by %s, rank %d", kind, name, r)
		bytes := away[r]
		if name == "bruck" {
			bytes = digits * rows(0, 0)
		}
		require.Equal(w.t, uint64(bytes), sent[r], "%v by %s, rank %d", kind, name, r)
	}
}

// Each message of any algorithm matters: without its payload, the bytes and a result differ.
func TestEveryMessageMatters(t *testing.T) {
	for _, n := range []int{2, 3, 4, 6} {
		if (n == 2 || n == 6) && !reliability.Long(t) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			for _, kind := range []backend.Kind{
				backend.Broadcast, backend.Reduce, backend.AllReduce, backend.AllGather, backend.ReduceScatter, backend.AllToAll,
			} {
				for _, name := range algo.Names(kind) {
					full, results := lossy(t, kind, name, n, -1, 0)
					lost := 0
					for r := range n {
						for k := 1; ; k++ {
							sent, out := lossy(t, kind, name, n, r, k)
							if sent == full {
								break // rank r sends fewer than k messages with a payload
							}
							lost++
							assert.False(t, results == out, "%v by %s among %d: message %d of rank %d does not matter", kind, name, n, k, r)
						}
					}
					assert.GreaterOrEqual(t, lost, n-1, "%v by %s", kind, name)
				}
			}
		})
	}
}

func TestLongEveryMessageMatters(t *testing.T) { reliability.AsLong(t, TestEveryMessageMatters) }

// lossy runs an operation in which rank r's k-th message with a payload is lost. It returns the bytes sent and all outputs.
func lossy(t *testing.T, kind backend.Kind, name string, n, r, k int) (sent uint64, outputs string) {
	w := newWorld(t, n)
	const count = 60
	in, out := count, count
	switch kind {
	case backend.AllGather:
		out = n * count
	case backend.ReduceScatter:
		in = n * count
	case backend.AllToAll:
		in, out = n*count, n*count
	}
	dst := make([][]byte, n)
	if r >= 0 {
		w.senders[r].lose = k
	}
	for _, b := range w.run(func(r int) backend.Op {
		src := values(tensor.Int32, in, func(i int) float64 { return float64(1 + r*1000 + i) })
		dst[r] = make([]byte, 4*out)
		return backend.Op{Kind: kind, Algo: name, DType: tensor.Int32, Count: count, Src: mem(src), Dst: mem(dst[r])}
	}) {
		sent += b
	}
	return sent, string(bytes.Join(dst, nil))
}
