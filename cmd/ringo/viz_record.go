package main

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/memnet"
	"github.com/ringo-ml/ringo/tensor"
)

// scene is what a picture shows: the run of a collective.
type scene struct {
	kind          backend.Kind
	algo          string
	ranks         int
	at            algo.Layout // host of each rank
	bytes         int         // S: the full buffer
	sent          []int       // bytes, by rank
	arrows        []arrow     // by step, then sender
	steps         int
	chunks        int
	before, after [][]held // by rank
}

// arrow is a message.
type arrow struct {
	from, to, step int
	holds          []held
	bytes          int
	elems          []int64
}

// held is a chunk of the buffer and whose inputs are in it: bit r stands for rank r.
type held struct {
	chunk int
	ranks uint64
}

// Element i of the buffer of rank r is 1<<(rankBit+r) + i. Sums keep apart whose elements they are made of, and which.
const rankBit = 40

func element(r, i int) int64 { return 1<<(rankBit+r) + int64(i) }

// origin returns the ranks whose elements v is the sum of, and their place in the buffer.
func origin(v int64) (ranks uint64, place int, err error) {
	ranks, sum := uint64(v)>>rankBit, int(v&(1<<rankBit-1))
	n := bits.OnesCount64(ranks)
	if n == 0 || sum%n != 0 {
		return 0, 0, fmt.Errorf("%#x is no sum of elements at one place", v)
	}
	return ranks, sum / n, nil
}

// elements returns the number of elements of the full buffer. They are cut into n parts, halves or a power of two, all
// equal; the chain gets enough of them for several chunks, which are its point.
func elements(name string, n int) int {
	if name == "chain" {
		return 1 << 17 // 1 MiB
	}
	return 16 * n
}

// record runs a collective in memory, among ranks that believe to lie on the hosts of at.
func record(ctx context.Context, kind backend.Kind, name string, at algo.Layout) (*scene, error) {
	n := len(at)
	s := &scene{kind: kind, algo: name, ranks: n, at: at, sent: make([]int, n)}
	total := 0
	if kind != backend.Barrier {
		total = elements(name, n)
	}
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
		op := backend.Op{Kind: kind, Algo: name, Red: backend.Sum, DType: tensor.Int64}
		srcs[r], dsts[r], op.Count = buffers(kind, r, n, total)
		op.Src, op.Dst = memory(slices.Clone(srcs[r])), memory(dsts[r])
		return algo.NewMessages(t, at).Run(&op)
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

// buffers makes input and output of rank r, with rank 0 as root, and the Count of the operation. Elements are numbered by
// their place in the full buffer of total elements.
func buffers(kind backend.Kind, r, n, total int) (src, dst []int64, count int) {
	part := total / n
	whole, mine := make([]int64, total), make([]int64, part)
	for i := range whole {
		whole[i] = element(r, i)
	}
	switch kind {
	case backend.AllReduce:
		return whole, make([]int64, total), total
	case backend.Broadcast:
		if r > 0 {
			return nil, make([]int64, total), total
		}
		return whole, make([]int64, total), total
	case backend.Reduce:
		if r > 0 {
			return whole, nil, total
		}
		return whole, make([]int64, total), total
	case backend.AllGather:
		return whole[r*part : (r+1)*part], make([]int64, total), part
	case backend.Gather:
		if r > 0 {
			return whole[r*part : (r+1)*part], nil, part
		}
		return whole[:part], make([]int64, total), part
	case backend.Scatter:
		if r > 0 {
			return nil, mine, part
		}
		return whole, mine, part
	case backend.ReduceScatter:
		return whole, mine, part
	case backend.AllToAll:
		return whole, make([]int64, total), part
	}
	return nil, nil, 0
}

// span is a run of neighboring elements of the buffer that come from the same ranks.
type span struct {
	lo, hi int
	ranks  uint64
}

// spans finds the runs in a message or buffer.
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

// decode finds out what the messages and buffers hold. A chunk is what no message cuts: chunks begin where the elements of
// any message begin or end.
func (s *scene) decode(srcs, dsts [][]int64) error {
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
