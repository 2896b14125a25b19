package viz

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/algo/memnet"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Kinds are the operations that can be drawn.
var Kinds = []backend.Kind{backend.Broadcast, backend.Reduce, backend.AllReduce, backend.Gather, backend.AllGather, backend.Scatter,
	backend.ReduceScatter, backend.AllToAll, backend.Barrier, backend.AllGatherV, backend.ReduceScatterV, backend.AllToAllV,
	backend.MonitoredBarrier, backend.Send}

// Scene is the run of a collective, as a picture shows it.
type Scene struct {
	kind          backend.Kind
	algo          string
	ranks         int
	at            algo.Layout // host of each rank
	bytes         int         // S, the size of the full buffer
	sent          []int       // bytes, by rank
	arrows        []arrow     // by step, then sender
	steps         int
	chunks        int
	starts        []int    // first element of each chunk
	before, after [][]held // by rank
}

// Size returns the numbers of messages and of steps.
func (s *Scene) Size() (messages, steps int) { return len(s.arrows), s.steps }

// arrow is a message.
type arrow struct {
	from, to, step int
	holds          []held
	bytes          int
	elems          []int64
}

// held is a chunk of the buffer, and the ranks whose inputs are in it: bit r stands for rank r.
type held struct {
	chunk int
	ranks uint64
}

// Element i of the buffer of rank r is 1<<(rankBit+r) + i. So a sum shows which ranks' elements are in it, and which element.
const rankBit = 40

func element(r, i int) int64 { return 1<<(rankBit+r) + int64(i) }

// origin returns the ranks whose elements are in the sum v, and the place of these elements in the buffer.
func origin(v int64) (ranks uint64, place int, err error) {
	ranks, sum := uint64(v)>>rankBit, int(v&(1<<rankBit-1))
	n := bits.OnesCount64(ranks)
	if n == 0 || sum%n != 0 {
		return 0, 0, fmt.Errorf("%#x is no sum of elements at one place", v)
	}
	return ranks, sum / n, nil
}

// uneven reports whether rank r's part is r+1 times as long as rank 0's.
func uneven(kind backend.Kind) bool {
	return slices.Contains([]backend.Kind{backend.AllGatherV, backend.ReduceScatterV, backend.AllToAllV}, kind)
}

// elements returns the number of elements of the full buffer. An algorithm cuts them into n parts, into halves, or into a power of two
// of parts, which are equal except in the V forms. The chain gets enough elements for several chunks.
func elements(kind backend.Kind, name string, n int) int {
	switch {
	case kind == backend.Barrier || kind == backend.MonitoredBarrier:
		return 0
	case name == "chain":
		return 1 << 17 // elements for 1 MiB
	case uneven(kind):
		return 8 * n * (n + 1)
	}
	return 16 * n
}

// shares returns the lengths of the parts of n ranks.
func shares(kind backend.Kind, n, total int) []int {
	parts := layout.Shares(make([]int, n), total)
	for r := range parts {
		if uneven(kind) {
			parts[r] = 16 * (r + 1)
		}
	}
	return parts
}

// Record runs a collective in memory, with ranks on the hosts of at.
func Record(ctx context.Context, kind backend.Kind, name string, at algo.Layout) (*Scene, error) {
	n := len(at)
	s := &Scene{kind: kind, algo: name, ranks: n, at: at, sent: make([]int, n)}
	total := elements(kind, name, n)
	s.bytes = 8 * total
	arrows := make([][]arrow, n)
	net := memnet.New(n, func(m *memnet.Message) {
		s.sent[m.From] += len(m.Bytes)
		elems := slices.Clone(unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(m.Bytes))), len(m.Bytes)/8))
		arrows[m.From] = append(arrows[m.From], arrow{from: m.From, to: m.To, step: m.Step, bytes: len(m.Bytes), elems: elems})
	})
	srcs, dsts := make([][]int64, n), make([][]int64, n)
	err := net.Run(ctx, func(t *memnet.Rank) error {
		r := t.Rank()
		op := backend.Op{Kind: kind, Algo: name, Red: backend.Sum, DType: tensor.Int64, Row: 1}
		srcs[r], dsts[r] = buffers(&op, r, n, total)
		if kind == backend.Send && r > 0 {
			if r < n-1 {
				return nil // this rank does not take part
			}
			op.Kind = backend.Recv
		}
		op.Src, op.Dst = memory(slices.Clone(srcs[r])), memory(dsts[r])
		return algo.NewMessages(t, algo.NewTuner(at)).Run(&op)
	})
	if err != nil {
		return nil, fmt.Errorf("%v by %s: %w", kind, name, err)
	}
	for _, list := range arrows {
		s.arrows = append(s.arrows, list...)
	}
	slices.SortStableFunc(s.arrows, func(a, b arrow) int { return cmp.Or(cmp.Compare(a.step, b.step), cmp.Compare(a.from, b.from)) })
	s.steps = s.arrows[len(s.arrows)-1].step
	return s, s.decode(srcs, dsts)
}

func memory(x []int64) backend.Mem {
	return backend.Mem{Ptr: unsafe.Pointer(unsafe.SliceData(x)), Bytes: 8 * len(x)}
}

// buffers makes the input and output of rank r, with rank 0 as root, and the counts of the operation. The number of an element is its
// place in the full buffer of total elements.
func buffers(op *backend.Op, r, n, total int) (src, dst []int64) {
	parts := shares(op.Kind, n, total)
	whole, all, part := make([]int64, total), make([]int64, total), make([]int64, parts[r])
	for i := range whole {
		whole[i] = element(r, i)
	}
	first := 0
	for _, n := range parts[:r] {
		first += n
	}
	mine := whole[first:][:parts[r]]
	on := func(rank int, x []int64) []int64 {
		if r == rank {
			return x
		}
		return nil
	}
	op.Count = parts[r]
	switch op.Kind {
	case backend.AllReduce:
		op.Count = total
		return whole, all
	case backend.Broadcast:
		op.Count = total
		return on(0, whole), all
	case backend.Reduce:
		op.Count = total
		return whole, on(0, all)
	case backend.Send:
		op.Count, op.Peer = total, n-1-r
		return on(0, whole), on(n-1, all)
	case backend.AllGather, backend.AllGatherV:
		op.DstCounts = parts
		return mine, all
	case backend.Gather:
		return mine, on(0, all)
	case backend.Scatter:
		return on(0, whole), part
	case backend.ReduceScatter, backend.ReduceScatterV:
		op.SrcCounts = parts
		return whole, part
	case backend.AllToAll, backend.AllToAllV:
		op.SrcCounts, op.DstCounts = parts, slices.Repeat(parts[r:r+1], n)
		return whole, make([]int64, n*parts[r])
	}
	return nil, nil
}

// span is a range of consecutive elements of the buffer that come from the same ranks.
type span struct {
	lo, hi int
	ranks  uint64
}

// spans finds the ranges in a message or buffer.
func spans(elems []int64) ([]span, error) {
	var out []span
	for _, v := range elems {
		ranks, place, err := origin(v)
		if err != nil {
			return nil, err
		}
		if last := len(out) - 1; last >= 0 && out[last].hi == place && out[last].ranks == ranks {
			out[last].hi++
			continue
		}
		out = append(out, span{place, place + 1, ranks})
	}
	return out, nil
}

// decode finds what is in the messages and buffers. A chunk is a range that no message cuts: chunks begin where a message begins or ends.
func (s *Scene) decode(srcs, dsts [][]int64) error {
	lists := slices.Concat(srcs, dsts)
	for i := range s.arrows {
		lists = append(lists, s.arrows[i].elems)
		s.arrows[i].elems = nil
	}
	var cuts []int
	runs := make([][]span, len(lists))
	for i, list := range lists {
		var err error
		if runs[i], err = spans(list); err != nil {
			return fmt.Errorf("%v by %s: %w", s.kind, s.algo, err)
		}
		for _, x := range runs[i] {
			cuts = append(cuts, x.lo, x.hi)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	s.chunks = max(0, len(cuts)-1)
	s.starts = cuts[:s.chunks]
	all := make([][]held, len(lists))
	for i := range runs {
		for _, x := range runs[i] {
			for c := 0; c < s.chunks; c++ {
				if x.lo <= cuts[c] && cuts[c] < x.hi {
					all[i] = append(all[i], held{c, x.ranks})
				}
			}
		}
	}
	s.before, s.after = all[:s.ranks], all[s.ranks:2*s.ranks]
	for i := range s.arrows {
		s.arrows[i].holds = all[2*s.ranks+i]
	}
	return nil
}
