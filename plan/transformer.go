package plan

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Transformer is the model of examples/fsdp, which is GPT-2: learned positions, norms before attention and MLP, an MLP of four times the
// width with GELU, biases, and an output layer that shares the table of tokens. There is no dropout. Each block is a unit. The table, the
// positions and the last norm are one more unit, which is kept.
type Transformer struct {
	Layers, Dim, Heads, Vocab int
	Batch                     int // sequences in the global batch
	Seq                       int // tokens in a sequence

	// Experts, if not 0, is the number of experts in place of each block's MLP. Each is as large as the MLP, without biases (package moe,
	// with moe.Config.GELU). A router chooses Top of them for each token. The plan assumes that all are chosen equally often.
	Experts, Top int
}

// tooMuch limits the sizes of a Transformer, so that no product overflows.
const tooMuch = 1e12

func (t Transformer) check(l Layout) error {
	for _, x := range []struct {
		name string
		n    int
	}{{"layers", t.Layers}, {"features", t.Dim}, {"heads", t.Heads}, {"words in the vocabulary", t.Vocab}, {"sequences", t.Batch},
		{"tokens", t.Seq}} {
		if x.n < 1 {
			return fmt.Errorf("%d %s: at least 1", x.n, x.name)
		}
	}
	d, tokens, mlps := float64(t.Dim), float64(t.Batch)*float64(t.Seq), float64(max(1, t.Experts))
	switch tp := l.tp(); {
	case t.Layers > 1e5 || (4+8*mlps)*d*d*float64(t.Layers)+d*(float64(t.Vocab)+float64(t.Seq)) > tooMuch || d > 1e6 ||
		tokens*(18*d+float64(t.Heads))*float64(t.Layers) > tooMuch*1e3 || tokens*float64(t.Vocab) > tooMuch*1e3:
		return fmt.Errorf("the sizes of the model or batch are too large to compute with")
	case t.Dim%t.Heads != 0:
		return fmt.Errorf("%d features do not divide into %d heads", t.Dim, t.Heads)
	case t.Heads%tp != 0:
		return fmt.Errorf("%d heads do not divide over tp=%d ranks", t.Heads, tp)
	case t.Vocab%tp != 0:
		return fmt.Errorf("a vocabulary of %d does not divide over tp=%d ranks: make it %d", t.Vocab, tp, (t.Vocab/tp+1)*tp)
	case t.Experts == 0 && l.ep() > 1:
		return fmt.Errorf("ep=%d: the model has no experts that ranks could share", l.ep())
	case t.Experts < 0 || t.Experts > 0 && (t.Top < 1 || t.Top > t.Experts):
		return fmt.Errorf("%d experts, of which a token has %d: at least 1, and at most all", t.Experts, t.Top)
	case t.Experts%l.ep() != 0:
		return fmt.Errorf("%d experts do not divide over ep=%d ranks", t.Experts, l.ep())
	case t.Heads/tp%l.cp() != 0:
		return fmt.Errorf("%d heads of a rank do not divide over cp=%d ranks: ring=%d has no such limit", t.Heads/tp, l.cp(), l.cp())
	case t.Seq < l.positions():
		return fmt.Errorf("sequences of %d tokens do not divide over %d ranks", t.Seq, l.positions())
	case t.Batch < l.shards():
		return fmt.Errorf("%d sequences are too few for the %d ranks that share a batch", t.Batch, l.shards())
	}
	return nil
}

// Model returns the Model for New, or an error that says in one sentence what is not possible.
func (t Transformer) Model(c Config) (Model, error) {
	if err := c.check(); err != nil {
		return Model{}, err
	}
	if err := t.check(c.Layout); err != nil {
		return Model{}, err
	}
	if t.Experts > 0 && c.Sequence {
		return Model{}, fmt.Errorf("experts with sequence parallelism: this is not planned yet")
	}
	if n := c.Layout.pp(); n > 1 {
		return Model{}, fmt.Errorf("pp=%d: ranks have other layers, and need a schedule (Transformer.Pipeline)", n)
	}
	d, tp := t.Dim, c.Layout.tp()
	m := Model{Units: []Unit{{Params: []int{t.Vocab / tp * d, t.Seq * d, d, d}, Keep: true}}}
	for range t.Layers {
		m.Units = append(m.Units, t.block(c)...)
	}
	tokens := t.tokens(c, 1)
	switch {
	case t.Experts > 0:
		m.Activations = t.mixtureActivations(c, tokens)
	case tp > 1:
		m.Activations = t.dividedActivations(c, tokens)
	default:
		m.Activations = t.activations(c, tokens)
	}
	m.Legend = []string{fmt.Sprintf("T = %d tokens of a rank", tokens)}
	m.Sums = slices.Concat(t.sums(c, 1, 1), t.exchanges(c, tokens, 1), t.around(c))
	return m, nil
}

// block returns the units of a block.
func (t Transformer) block(c Config) []Unit {
	d, tp := t.Dim, c.Layout.tp()
	attention := []int{d, d, 3 * d * d / tp, 3 * d / tp, d * d / tp, d, d, d}
	if t.Experts > 0 {
		matrix := t.Experts / c.Layout.ep() * 4 * d * d / tp
		return []Unit{{Params: append(attention, t.Experts*d)}, {Params: []int{matrix, matrix}, Experts: true}}
	}
	return []Unit{{Params: append(attention, 4*d*d/tp, 4*d/tp, 4*d*d/tp, d)}}
}

// tokens is how many of a microbatch a rank has at most.
func (t Transformer) tokens(c Config, micros int) int {
	return share(t.Batch/micros, c.Layout.shards()) * share(share(t.Seq, c.Layout.ring()), c.Layout.cp())
}

// costs is step memory in bytes: what Forward keeps of a block, and what Backward needs at the logits, in an MLP, and in a ring.
type costs struct{ block, head, logits, mlp, ring int }

// costs returns those of so many tokens. Forward keeps of a block, in units of tokens times features, the outputs of its norms, of
// attention's and the MLP's last product, and, in examples/fsdp, two sums (together: between); queries, keys and values (3); attention (1);
// the inputs and outputs of GELU (8). Two norms have two statistics for each token, and attention has one for each head.
func (t Transformer) costs(c Config, tokens, between int) (k costs) {
	size, stat, grad, d := c.Params.Size(), max(4, c.Params.Size()), c.grads(), t.Dim
	of := func(elems, bytes int) int { return tensor.StepBytes(elems * bytes) }
	x, stats, one := of(tokens*d, size), of(tokens, stat), of(1, size)
	k.block = between*x + of(3*tokens*d, size) + x + 2*of(4*tokens*d, size) + 4*stats + of(tokens*t.Heads, stat) + t.exchanged(c, tokens)
	k.logits = of(tokens*t.Vocab, size)
	// The last norm, and the logits, over which their gradient is written; then sums of exponentials, the loss and its gradient, or the
	// gradient of the norm.
	k.head = x + k.logits + max(3*stats+3*one, x+2*stats+one)
	k.mlp = of(4*tokens*d, size) + of(4*d, size) + one
	if grad != c.Params { // the gradient of a matrix is computed in one type and added in the other
		both := func(elems int) int { return of(elems, size) + of(elems, grad.Size()) }
		k.head = 2*x + 2*stats + k.logits + one + both(t.Vocab*d)
		k.mlp += both(4 * d * d)
	}
	k.ring = t.ringBackward(c, tokens)
	return k
}

// activations is the largest step memory of a rank at any time, without tensor parallelism: 2 for the embeddings, all blocks, and the
// largest one of what Backward needs at the logits, in the last block's MLP, and in its ring.
func (t Transformer) activations(c Config, tokens int) Item {
	size, stat, between := c.Params.Size(), max(4, c.Params.Size()), 6
	if c.Layout.positions() > 1 {
		between = 4 // models/gpt adds in its products
	}
	k, each := t.costs(c, tokens, between), between+12
	if c.Layout.cp() > 1 {
		each += 4
	}
	forward := fmt.Sprintf("%d·T·%d·(2+%d·%d) + %d·T·%d·(4+%d)", size, t.Dim, t.Layers, each, stat, t.Layers, t.Heads)
	most, last := k.head, "the head's %s"
	if k.mlp > most {
		most, last = k.mlp, "an MLP's %s"
	}
	if k.ring > most {
		most, last = k.ring, "the ring's %s, about"
	}
	return Item{Kind: memory.Activations, Bytes: 2*tensor.StepBytes(tokens*t.Dim*size) + t.Layers*k.block + most,
		Formula: forward + " + " + fmt.Sprintf(last, memory.Format(most))}
}
