package tensortest

import (
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// masks says which masks a case of attention has, and whether they are Int32.
type masks struct{ lengths, docs, small bool }

// of returns o with masks for batch sequences of tq queries and tk keys, in host memory.
func (m masks) of(o ops.AttentionOptions, batch, tq, tk int) ops.AttentionOptions {
	if m.lengths {
		o.KeyLengths = m.ints(1, func(b, _ int) int { return (2*b + tk - 1) % (tk + 1) }, batch)
	}
	if m.docs {
		o.QueryDocs = m.ints(tq, func(b, i int) int { return 4*i/tq + b }, batch, tq) // the last ones have no keys
		o.KeyDocs = m.ints(tk, func(b, j int) int { return 3*j/tk + b }, batch, tk)
	}
	return o
}

func (m masks) ints(n int, f func(b, i int) int, dims ...int) tensor.Tensor {
	v := make([]float64, count(dims))
	for k := range v {
		v[k] = float64(f(k/n, k%n))
	}
	if m.small {
		return Of(tensor.Int32, v, dims...)
	}
	return Of(tensor.Int64, v, dims...)
}

// sees reports whether query i of sequence b sees key j.
func sees(o ops.AttentionOptions, b, i, j int) bool {
	at := func(x tensor.Tensor, i int) float64 { return tensor.Floats(x)[i] }
	switch {
	case o.Causal && j > i+o.Offset, o.Window > 0 && j <= i+o.Offset-o.Window, !o.KeyLengths.IsZero() && float64(j) >= at(o.KeyLengths, b):
		return false
	case o.KeyDocs.IsZero():
		return true
	}
	return at(o.QueryDocs, b*o.QueryDocs.Dim(1)+i) == at(o.KeyDocs, b*o.KeyDocs.Dim(1)+j)
}
