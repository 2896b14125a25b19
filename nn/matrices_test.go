package nn_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

type withHead struct {
	Tok  *nn.Embedding
	Attn *nn.Attention
	Norm *nn.LayerNorm
	Up   *nn.Linear
	Head *nn.Linear
}

// Matrices are the weights of linear layers, with the parts of fused ones: neither tables nor the head.
func TestMatrices(t *testing.T) {
	m := &withHead{nn.NewEmbedding(12, 4), nn.NewAttention(4, 2), nn.NewLayerNorm(4), nn.NewLinear(4, 8), nn.NewLinear(4, 12)}
	nn.ParamsOf(m)
	var names []string
	for _, x := range nn.Matrices(m, m.Head.W) {
		names = append(names, x.W.Name())
		if x.W == m.Attn.QKV.W {
			assert.Equal(t, []int{4, 4, 4}, x.Parts)
		} else {
			assert.Nil(t, x.Parts)
		}
	}
	assert.Equal(t, []string{"attn.qkv.weight", "attn.out.weight", "up.weight"}, names)
	assert.ErrorContains(t, tensor.Try(func() { nn.Matrices(m, nil) }), `"head" has as many outputs as "tok" has vectors`)
	m.Head.W = m.Tok.W
	assert.Len(t, nn.Matrices(m, nil), 3, "a tied head is the table")
}
