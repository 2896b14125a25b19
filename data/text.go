package data

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Text is a dataset of windows of a text, for models that predict the next token. x is length adjacent tokens; y is the token after each of
// them. Both are Int64.
type Text struct {
	tokens         []int32
	length, stride int
}

// NewText returns the windows that begin at every stride-th token. With stride 1 there are all windows, for training. With a stride of
// length, each token is predicted once, for testing.
func NewText(tokens []int, length, stride int) (*Text, error) {
	switch {
	case length < 1 || stride < 1:
		return nil, fmt.Errorf("data: windows of %d tokens, every %d: both must be positive", length, stride)
	case len(tokens) <= length:
		return nil, fmt.Errorf("data: a text of %d tokens is too short: a window of %d needs one more token as target", len(tokens), length)
	}
	t := &Text{make([]int32, len(tokens)), length, stride}
	for i, id := range tokens {
		if t.tokens[i] = int32(id); int(t.tokens[i]) != id || id < 0 {
			return nil, fmt.Errorf("data: token %d is %d, not in [0,2^31)", i, id)
		}
	}
	return t, nil
}

// Len returns the number of windows.
func (t *Text) Len() int { return (len(t.tokens)-t.length-1)/t.stride + 1 }

// Shapes returns the shapes of a window and of its next tokens.
func (t *Text) Shapes() (x, y tensor.Shape) {
	s := tensor.Shape{DType: tensor.Int64, Dims: []int{t.length}}
	return s, s
}

// Batch writes windows idx.
func (t *Text) Batch(idx []int, x, y tensor.Tensor) error {
	xs, ys := tensor.Data[int64](x), tensor.Data[int64](y)
	for i, k := range idx {
		if k < 0 || k >= t.Len() {
			return fmt.Errorf("window %d, of %d", k, t.Len())
		}
		for j, id := range t.tokens[k*t.stride:][:t.length+1] {
			if j < t.length {
				xs[i*t.length+j] = int64(id)
			}
			if j > 0 {
				ys[i*t.length+j-1] = int64(id)
			}
		}
	}
	return nil
}
