package algo

import "github.com/ringo-ml/ringo/dist/backend"

// direct over a Transport: all data goes straight to the rank that needs it. Except for all-reduce, this is linear.
// reduceScatter is in linear_reduce.go, and for more than a chunk in linear_pipeline.go.
func (m *Messages) direct(op *backend.Op) error {
	if op.Kind == backend.AllReduce {
		return m.directAllReduce(op)
	}
	return m.lin.Run(op)
}

// directAllReduce: rank r gets slice r from all others, reduces it in rank order and sends the result to all. The bits are those of
// linear, and all ranks do the same amount of work. Bytes: 2S(n−1)/n: rank r sends all slices but r, then slice r n−1 times (and 8(n−1)
// for the factors of PreMulSum). 2(n−1) messages, in two steps if links do not share a wire. Large slices go in chunks: results of
// earlier chunks travel while later ones are reduced.
func (m *Messages) directAllReduce(op *backend.Op) error {
	at, dst := m.slices(op, m.t.Size()), whole(op.Dst)
	return m.lin.reduceScatter(op, at.of(dst, m.t.Rank()), whole(op.Src), at, dst)
}
