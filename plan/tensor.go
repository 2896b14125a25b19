package plan

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// The plan of a transformer (models/gpt) whose layers are divided over tp ranks (package tp). With Config.Sequence, each rank has a part
// of the tokens between these layers.

// dividedActivations is the largest step memory of a rank at any time, within a few percent. Forward keeps, in units of tokens times
// features:
//
//	embeddings                4: the looked-up rows, those that count, the sum, the positions
//	last norm                 1, and with divided tokens also the input of the logits
//	a block, in its layers   12, divided by tp: queries, keys, values, attention, inputs and outputs of GELU
//	a block, between layers  10: outputs of norms and of the last two layers, their sums over ranks, with biases, with the residual;
//	                          with divided tokens 8, divided by tp, because sums over ranks come by rows
func (t Transformer) dividedActivations(c Config, tokens int) Item {
	k := t.dividedCosts(c, tokens)
	legend := "10"
	if c.Sequence {
		legend = fmt.Sprintf("8/%d", c.Layout.tp())
	}
	return Item{Kind: memory.Activations, Bytes: k.embedded + k.norm + t.Layers*k.block + max(k.head, k.mlp),
		Formula: fmt.Sprintf("%d·T·%d·(5+%d·(%s+12/%d)) + the head's or an MLP's %s, about",
			c.Params.Size(), t.Dim, t.Layers, legend, c.Layout.tp(), memory.Format(max(k.head, k.mlp)))}
}

// dividedCosts is step memory in bytes: what is between layers, what Forward keeps of embeddings, of a block, and of the last norm; the
// logits, and what Backward needs for them (with them) and in an MLP or a ring.
type dividedCosts struct{ outside, embedded, block, norm, logits, head, mlp int }

func (t Transformer) dividedCosts(c Config, tokens int) (k dividedCosts) {
	size, stat, tp := c.Params.Size(), max(4, c.Params.Size()), c.Layout.tp()
	of := func(elems, bytes int) int { return tensor.StepBytes(elems * bytes) }
	x, parts, between := of(tokens*t.Dim, size), 1, 10
	if c.Sequence {
		parts, between = tp, 8
	}
	mine := (tokens + parts - 1) / parts
	k.outside = of(mine*t.Dim, size)
	k.embedded = 4*x + 31*tokens
	k.block = between*k.outside + 4*of(tokens*t.Dim/tp, size) + 2*of(4*tokens*t.Dim/tp, size) + 4*of(mine, stat) +
		of(tokens*t.Heads/tp, stat) + t.exchanged(c, tokens)
	if k.norm = k.outside + 2*of(mine, stat); c.Sequence {
		k.norm += x
	}
	wide := of(tokens*t.Vocab/tp, stat)
	k.logits = of(tokens*t.Vocab/tp, size)
	k.head = k.logits + 4*wide + (8+3*stat)*tokens // the softmax, which is kept, its gradient, and temporaries
	if stat != size {
		k.head += wide
	}
	k.mlp = max(2*x+of(4*tokens*t.Dim/tp, size), t.ringBackward(c, tokens)-3*k.outside) // more is freed then than without tp
	return k
}

// sums returns what tensor parallelism sends. In each block there are two all-reduces of the activations forward and two backward; one
// more forward after the embedding, and one backward before the head. For each token, the largest logit, the sum of exponentials and the
// label's logit are reduced. With divided tokens, most all-reduces become a reduce-scatter and an all-gather. Then backward gathers the
// inputs of attention and of the MLP again (not that of the logits, nor what a stage receives), and gradients of norms and of late
// biases are summed, for each microbatch.
func (t Transformer) sums(c Config, micros, stages int) []Traffic {
	tp, tokens := c.Layout.tp(), t.Batch*t.Seq
	if tp == 1 {
		return nil
	}
	size, stat, all := c.Params.Size(), max(4, c.Params.Size()), tokens*t.Dim*c.Params.Size()
	words := 2 * (tp - 1) * tokens * (3*stat + t.Layers*t.Top*size) // with experts, gradients of their weights
	if !c.Sequence {
		return []Traffic{{"allreduce", "tp", 2*(tp-1)*all*(4*t.Layers+2) + words,
			fmt.Sprintf("2·%d·%d·(%d·(%d·(4·%d+2) + %d·%d) + 3·%d)", tp-1, tokens, size, t.Dim, t.Layers, t.Layers, t.Top, stat)}}
	}
	copies, gathers := c.Layout.shards()*c.Layout.positions()*micros, 6*t.Layers+3-stages
	small := (6*t.Layers + 2) * t.Dim * size * copies
	list := []Traffic{
		{"allgather", "tp", (tp - 1) * all * gathers, fmt.Sprintf("%d·%d·%d·%d·%d", tp-1, tokens, size, t.Dim, gathers)},
		{"reducescatter", "tp", (tp - 1) * all * (4*t.Layers + 1), fmt.Sprintf("%d·%d·%d·%d·(4·%d+1)", tp-1, tokens, size, t.Dim, t.Layers)},
		{"allreduce", "tp", 2*(tp-1)*(all+small) + words, fmt.Sprintf("2·%d·(%d·(%d·%d + 3·%d) + %d·%d·(6·%d+2)·%d)",
			tp-1, tokens, size, t.Dim, stat, size, t.Dim, t.Layers, copies)},
	}
	return list
}
