package plan

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// exchanges returns what package moe sends between the ranks that share the experts, if all experts are chosen equally often. In each
// block and microbatch this rank's tokens go to their experts and back, and so do gradients. Counts of 8 bytes say how many tokens come.
func (t Transformer) exchanges(c Config, tokens, micros int) []Traffic {
	ep, ranks := c.Layout.ep(), c.Layout.Ranks()
	if t.Experts == 0 || ep == 1 {
		return nil
	}
	size := c.Params.Size()
	a := 4*tokens*t.Top*t.Dim*size + 8*t.Experts // bytes of one rank, with those that it keeps
	x := Traffic{"alltoall", "ep", ranks * t.Layers * micros * (a / ep * (ep - 1)),
		fmt.Sprintf("%d·%d·(4·T·%d·%d·%d + 8·%d)·%d/%d", ranks, t.Layers*micros, t.Top, t.Dim, size, t.Experts, ep-1, ep)}
	return []Traffic{x}
}

// mixtureActivations is the largest step memory of a rank at any time, within a few percent. Forward keeps, in units of tokens times
// features:
//
//	embeddings             2
//	a block                9: outputs of its two norms, queries, keys, values, attention, attention plus its input, the sum of the experts,
//	                          and this sum plus its input
//	a slot (Top a token)   4: rows before and after the experts; 8 if experts are on other ranks, with the rows that were sent and received
//	                       8: inputs and outputs of GELU
//
// Integers say where rows go.
func (t Transformer) mixtureActivations(c Config, tokens int) Item {
	size, stat, d := c.Params.Size(), max(4, c.Params.Size()), t.Dim
	x, stations := tensor.StepBytes(tokens*d*size), 12
	if c.Layout.ep() > 1 {
		stations = 16
	}
	block, _, mlp := t.mixtureCosts(c, tokens)
	head := 2*x + 2*tensor.StepBytes(tokens*stat) + tensor.StepBytes(tokens*t.Vocab*size)
	return Item{Kind: tensor.Activations, Bytes: 2*x + t.Layers*block + max(head, mlp),
		Formula: fmt.Sprintf("%d·T·%d·(2+%d·(9+%d·%d)) + where rows go, and the head's or the experts' %s, about",
			size, d, t.Layers, t.Top, stations, tensor.FormatBytes(max(head, mlp)))}
}

// mixtureCosts is step memory in bytes: what Forward keeps of a block, what of it stays until the tape's Reset (where rows go, and the rows
// that travelled), and what Backward needs in its experts.
func (t Transformer) mixtureCosts(c Config, tokens int) (block, stays, mlp int) {
	size, stat, d := c.Params.Size(), max(4, c.Params.Size()), t.Dim
	of := func(elems, bytes int) int { return tensor.StepBytes(elems * bytes) }
	stations, numbers := 4, 56
	if c.Layout.ep() > 1 {
		stations, numbers = 8, 120
	}
	x, slots, wide := of(tokens*d, size), of(tokens*t.Top*d, size), of(4*tokens*t.Top*d, size)
	block = 9*x + 4*of(tokens, stat) + of(tokens*t.Heads, stat) + stations*slots + 2*wide + 2*of(tokens*t.Experts, stat) +
		tokens*(8+(numbers+2*stat)*t.Top) + t.exchanged(c, tokens)
	mlp = wide - 2*slots - x                                     // Backward has freed what comes later
	mlp = max(mlp, t.ringBackward(c, tokens)-4*slots-2*wide+8*x) // and in a ring, more than of an MLP
	return block, (stations-4)*slots + numbers*tokens*t.Top, mlp
}
