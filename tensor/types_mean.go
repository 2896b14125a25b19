package tensor

import "github.com/ringo-ml/ringo/tensor/typing"

// mustMeanWhole panics with a *Failure if a mean is over a part of the features. It would be divided by the number of elements in this
// part, and the sum of the ranks' means is not the mean. Tensors with one element for each row, or for each token, are allowed: they may be
// a sum over a part of the features.
func mustMeanWhole(x *header) {
	if x.ndim > 2 || x.ndim == 2 && (x.tape.rows.Positions == 0 || x.dims[1] != x.tape.rows.Positions) {
		mustBeWhole("GlobalMean", x)
	}
}

// mustBeWhole panics with a *Failure if x is a part of the features.
func mustBeWhole(op string, x *header) {
	if bad := x.ty.On(Cut); bad != 0 && x.tape != nil && x.tape.records() {
		clash(op, these(x), typing.Misfit{Axes: bad, Clash: typing.ClashWhole, Have: Cut, Want: Invariant})
	}
}
