package plan

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
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
// With tensor parallelism, queries, keys, values, attention and what is wide are divided, and there are 4 more: sums over ranks, and what
// has no biases yet.
//
// Integers say where rows go.
func (t Transformer) mixtureActivations(c Config, tokens int) Item {
	size, stat, d := c.Params.Size(), max(4, c.Params.Size()), t.Dim
	x, stations := tensor.StepBytes(tokens*d*size), 12
	if c.Layout.ep() > 1 {
		stations = 16
	}
	block, _, mlp := t.mixtureCosts(c, tokens)
	head, outside := 2*x+2*tensor.StepBytes(tokens*stat)+tensor.StepBytes(tokens*t.Vocab*size), 2*x
	each := fmt.Sprintf("9+%d·%d", t.Top, stations)
	if tp := c.Layout.tp(); tp > 1 {
		k := t.dividedCosts(c, tokens)
		head, outside, each = k.head, k.embedded+k.norm, fmt.Sprintf("9+4/%d+%d·(%d+8/%d)", tp, t.Top, stations-8, tp)
	}
	return Item{Kind: memory.Activations, Bytes: outside + t.Layers*block + max(head, mlp),
		Formula: fmt.Sprintf("%d·T·%d·(%d+%d·(%s)) + where rows go, and the head's or the experts' %s, about",
			size, d, outside/x, t.Layers, each, memory.Format(max(head, mlp)))}
}

// mixtureCosts is step memory in bytes: what Forward keeps of a block, what of it stays until the tape's Reset (where rows go, and the rows
// that travelled), and what Backward needs in its experts.
func (t Transformer) mixtureCosts(c Config, tokens int) (block, stays, mlp int) {
	size, stat, d, tp := c.Params.Size(), max(4, c.Params.Size()), t.Dim, c.Layout.tp()
	of := func(elems, bytes int) int { return tensor.StepBytes(elems * bytes) }
	stations, numbers := 4, 56
	if c.Layout.ep() > 1 {
		stations, numbers = 8, 120
	}
	x, slots, wide := of(tokens*d, size), of(tokens*t.Top*d, size), of(4*tokens*t.Top*d/tp, size)
	block = 5*x + 4*of(tokens*d/tp, size) + 4*of(tokens, stat) + of(tokens*t.Heads/tp, stat) + stations*slots +
		2*wide + 2*of(tokens*t.Experts, stat) + tokens*(8+(numbers+2*stat)*t.Top) + t.exchanged(c, tokens)
	if tp > 1 { // sums over ranks, and before their biases
		block += 4 * x
	}
	mlp = wide - 2*slots - x                                                         // Backward has freed what comes later
	mlp = max(mlp, t.ringBackward(c, tokens)-4*slots-2*wide+8*of(tokens*d/tp, size)) // and in a ring, more than of an MLP
	return block, (stations-4)*slots + numbers*tokens*t.Top, mlp
}
