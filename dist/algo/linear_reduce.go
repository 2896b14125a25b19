package algo

import (
	"encoding/binary"
	"math"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Other messages than inputs have their own tags. The factor of PreMulSum is sent before the input. The rank that reduces multiplies by
// it, in the precision of the accumulator.
const (
	factorTag = 1
	resultTag = 2
)

// reduce: each rank sends S to the root, which reduces chunk by chunk in rank order. As an operation of its own, it begins when all have
// agreed. Bytes: root 0, others S (and 8 for the factor of PreMulSum). Three steps, or one within allReduce.
func (l *Linear) reduce(op *backend.Op, root int, dst, src []byte) error {
	if l.t.Rank() != root {
		if op.Red == backend.PreMulSum {
			if err := l.t.Send(root, factorTag, factorBytes(op.Factor)); err != nil {
				return err
			}
		}
		return l.sendPieces(root, src)
	}
	l.red.Begin(op, l.t.Size())
	if op.Red == backend.PreMulSum {
		if err := l.factorsTo(root, op.Factor); err != nil {
			return err
		}
	}
	for k := range numChunks(len(src)) {
		mine, srcs := chunkOf(src, k), l.inputs()
		for p := range srcs {
			srcs[p] = mine
			if p == root {
				continue
			}
			srcs[p] = l.buffer(p, len(mine))
			if err := l.t.Recv(p, 0, srcs[p]); err != nil {
				return err
			}
		}
		l.red.Reduce(chunkOf(dst, k), srcs)
	}
	return nil
}

// allReduce: reduce to rank 0, then broadcast. Bytes: rank 0 S(n−1), others S. Two steps.
func (l *Linear) allReduce(op *backend.Op, dst, src []byte) error {
	if err := l.reduce(op, 0, dst, src); err != nil {
		return err
	}
	return l.broadcast(0, dst, dst)
}

// reduceScatter: each rank sends part p of its buffer to rank p, which reduces its part from all ranks in rank order. Chunk k of all
// parts is sent before chunk k+1 of any, in the steps of allGather. Bytes: all but the rank's own part, S(n−1)/n for equal parts (and
// 8(n−1) for the factors of PreMulSum). n−1 steps for each chunk. If all is not nil, the result is also gathered into it.
func (l *Linear) reduceScatter(op *backend.Op, dst, src []byte, at parts, all []byte) error {
	n, rank := l.t.Size(), l.t.Rank()
	l.red.Begin(op, n)
	if op.Red == backend.PreMulSum {
		if err := l.factorsAmong(op.Factor); err != nil {
			return err
		}
	}
	chunks := numChunks(at.longest(n))
	if chunks > 1 {
		return l.reduceChunks(chunks, dst, src, at, all)
	}
	mine, srcs := at.of(src, rank), l.inputs()
	srcs[rank] = mine
	for s := 1; s < n; s++ {
		to, from := (rank+s)%n, (rank-s+n)%n
		srcs[from] = l.buffer(from, len(mine))
		if err := l.t.SendRecv(to, at.of(src, to), from, srcs[from], 0); err != nil {
			return err
		}
	}
	l.red.Reduce(dst, srcs)
	if all == nil {
		return nil
	}
	return l.allGather(all, dst, at)
}

// factorsTo sends every rank's factor to the root.
func (l *Linear) factorsTo(root int, own float64) error {
	l.red.SetFactor(root, own)
	for p := range l.t.Size() {
		if p == root {
			continue
		}
		b := l.buffer(p, 8)
		if err := l.t.Recv(p, factorTag, b); err != nil {
			return err
		}
		l.red.SetFactor(p, factorOf(b))
	}
	return nil
}

// factorsAmong sends all factors to every rank.
func (l *Linear) factorsAmong(own float64) error {
	n, rank := l.t.Size(), l.t.Rank()
	l.red.SetFactor(rank, own)
	for s := 1; s < n; s++ {
		to, from := (rank+s)%n, (rank-s+n)%n
		b := l.buffer(from, 8)
		if err := l.t.SendRecv(to, factorBytes(own), from, b, factorTag); err != nil {
			return err
		}
		l.red.SetFactor(from, factorOf(b))
	}
	return nil
}

func factorBytes(f float64) []byte { return binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)) }

func factorOf(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) }
