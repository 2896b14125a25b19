package nn_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// tied is a language model whose head uses the table of its embedding, and a table of positions.
type tied struct {
	Tokens    *nn.Embedding
	Positions *nn.Embedding
	Head      *nn.Linear
	Seen      *tensor.Buffer
}

func newTied() *tied {
	m := &tied{nn.NewEmbedding(10, 4), nn.NewEmbedding(6, 4), nn.NewLinear(4, 10), tensor.NewBuffer(tensor.Constant(0), 1)}
	m.Head.W = m.Tokens.W
	return m
}

func ExampleSummary() {
	m := newTied()
	m.Positions.W.Freeze()
	fmt.Print(nn.Summary(m))
	// Output:
	// name              shape   part  kind     elements
	// tokens.weight     [10 4]        trained  40
	// positions.weight  [6 4]         frozen   24
	// head.bias         [10]          trained  10
	// seen              [1]           buffer   1
	// 75 elements, 50 trained, 75 on this rank
	// 80 FLOP a row forward, 240 with backward, in 40 elements of matrices
}

// Where parameters are cut, the sums are the model's.
func TestSummaryOfAPart(t *testing.T) {
	l := nn.NewLinear(3, 6)
	l.W.Place(layout.Axis{Axes: 1, Rank: 2, Ranks: 3}, layout.Division{})
	got := nn.Summary(l)
	assert.Regexp(t, `weight +\[6 3\] +\[2 3\] +trained +18`, got)
	assert.Contains(t, got, "24 elements, 24 trained, 12 on this rank\n36 FLOP a row forward")
}
