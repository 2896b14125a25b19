package plan

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// exchanges returns what package moe sends between the ranks that share the experts, if each expert is chosen as often: in each
// block this rank's tokens go to their experts and back, and so do gradients; and counts, of 8 bytes, of how many come.
func (t Transformer) exchanges(c Config, tokens int) []Traffic {
	ep, ranks := c.Layout.ep(), c.Layout.Ranks()
	if t.Experts == 0 || ep == 1 {
		return nil
	}
	size := c.Params.Size()
	a := 4*tokens*t.Top*t.Dim*size + 8*t.Experts // a rank's, also for itself
	return []Traffic{{"alltoall", "ep", ranks * t.Layers * (a / ep * (ep - 1)), fmt.Sprintf("%d·%d·(4·T·%d·%d·%d + 8·%d)·%d/%d", ranks, t.Layers, t.Top, t.Dim, size, t.Experts, ep-1, ep)}}
}

// mixtureActivations is the most step memory that a rank has at a time, within a few percent. Forward keeps, in units of tokens times features: two for
// the embeddings, and for each block 9: the outputs of its two norms, queries, keys and values, attention and the sum with what it read, and what
// the experts add up to, alone and with what they read. To these come for each of the Top slots of a token 8 where experts are on other ranks, for
// the stations of the way there and back, and 4 otherwise; and 8 for the inputs and outputs of GELU. Integers say where rows go.
func (t Transformer) mixtureActivations(c Config, tokens int) Item {
	size, stat, d := c.Params.Size(), max(4, c.Params.Size()), t.Dim
	of := func(elems, bytes int) int { return tensor.StepBytes(elems * bytes) }
	stations, numbers := 4, 56
	if c.Layout.ep() > 1 {
		stations, numbers = 8, 120
	}
	x, slots, wide := of(tokens*d, size), of(tokens*t.Top*d, size), of(4*tokens*t.Top*d, size)
	block := 9*x + 4*of(tokens, stat) + of(tokens*t.Heads, stat) + stations*slots + 2*wide + 2*of(tokens*t.Experts, stat) + tokens*(8+(numbers+2*stat)*t.Top)
	logits := of(tokens*t.Vocab, size)
	head, mlp := x+3*of(tokens, stat)+2*logits, wide-2*slots-x // backward has freed what is behind
	return Item{Kind: tensor.Activations, Bytes: 2*x + t.Layers*block + max(head, mlp), Formula: fmt.Sprintf("%d·T·%d·(2+%d·(9+%d·%d)) + where rows go, and the head's or the experts' %s, about",
		size, d, t.Layers, t.Top, stations+8, tensor.FormatBytes(max(head, mlp)))}
}
