package nn

import "github.com/ringo-ml/ringo/tensor"

// Together lays the parameters of layers of one input beside each other, so that QKV and GatedMLP can compute one product: see
// tensor.Param.Together. Call it where the layers are made.
func Together(ls ...*Linear) {
	var ps []*tensor.Param
	for _, l := range ls {
		if ps = append(ps, l.W); l.B != nil {
			ps = append(ps, l.B)
		}
	}
	if len(ps) > 0 {
		ps[0].Together(ps[1:]...)
	}
}

// QKV returns q.Forward(x), k.Forward(x) and v.Forward(x). On a GPU they are one product, or those of keys and values are, if there are
// fewer of them: where layers are plain, of one shape, and their parameters lie in one memory (see Together).
func QKV(x T, q, k, v *Linear) (queries, keys, values T) {
	var y [3]T
	if forwardAll(y[:], x, q, k, v) {
		return y[0], y[1], y[2]
	}
	queries = q.Forward(x)
	if forwardAll(y[1:], x, k, v) {
		return queries, y[1], y[2]
	}
	return queries, k.Forward(x), v.Forward(x)
}

// forwardAll sets y to what the layers return, if that can be one product.
func forwardAll(y []T, x T, ls ...*Linear) bool {
	var w, b [3]*tensor.Param
	for i, l := range ls {
		if !l.fuses() || l.Pre != nil {
			return false
		}
		w[i], b[i] = l.W, l.B
	}
	return tapeOf(x).Linears(y, x, w[:len(ls)], b[:len(ls)])
}
