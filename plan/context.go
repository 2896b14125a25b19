package plan

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// around returns what ranks with other positions send (package cp). In each block, the ring sends keys and values once to all but one rank,
// forward and backward, and the sum of their gradients to all ranks. Ranks of cp exchange queries, keys, values and the output for heads,
// forward and backward.
func (t Transformer) around(c Config) (list []Traffic) {
	size, stat, elems := c.Params.Size(), max(4, c.Params.Size()), t.Batch*t.Seq*t.Dim
	if n := c.Layout.ring(); n > 1 {
		list = append(list, Traffic{"send", "ring", 2 * elems * t.Layers * (2*(n-1)*size + n*stat),
			fmt.Sprintf("2·%d·%d·%d·(2·%d·%d + %d·%d)", t.Batch*t.Seq, t.Dim, t.Layers, n-1, size, n, stat)})
	}
	if n := c.Layout.cp(); n > 1 {
		list = append(list, Traffic{"alltoall", "cp", 8 * elems * t.Layers * size / n * (n - 1),
			fmt.Sprintf("8·%d·%d·%d·%d·%d/%d", size, t.Batch*t.Seq, t.Dim, t.Layers, n-1, n)})
	}
	return list
}

// exchanged is what Forward keeps in a block of an exchange for heads: queries, keys, values and the output before it or after it.
func (t Transformer) exchanged(c Config, tokens int) int {
	if c.Layout.cp() == 1 {
		return 0
	}
	return 4 * tensor.StepBytes(tokens*t.Dim/c.Layout.tp()*c.Params.Size())
}

// ringBackward is what the ring needs in the last block's Backward, beyond what Forward keeps and is not freed yet: copies of queries, keys
// and values, and of gradients, of which sums have the wider type.
func (t Transformer) ringBackward(c Config, tokens int) int {
	if c.Layout.ring() == 1 {
		return 0
	}
	elems := tokens * t.Dim / c.Layout.tp()
	return tensor.StepBytes(elems*8*c.Params.Size()) + tensor.StepBytes(elems*11*max(4, c.Params.Size()))
}
