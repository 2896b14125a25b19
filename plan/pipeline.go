package plan

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Pipeline is a schedule of package pp, and what its Check says of each rank.
type Pipeline struct {
	Micros             int
	Ranks              []int // of each stage
	Live, PutOff, Held []int // microbatches of stages that a rank has at most: see pp.Report
	Bubble             float64
}

// Stage is a rank of a pipeline, with all the stages that it has, and what it needs.
type Stage struct {
	Layers      int `json:"layers"`
	Parameters  int `json:"parameters"`
	Live        int `json:"live"`    // microbatches of a stage whose activations it has at most
	PutOff      int `json:"put_off"` // and those with put-off weight gradients
	Activations int `json:"activations"`
	Total       int `json:"total"`
}

// putOff is the memory of a microbatch with put-off weight gradients, at most, in that of one with activations: the inputs and the output
// gradients of its products and norms. With divided tokens, the gradients of norms are not put off, and gathered inputs are there. With
// experts, 9 are live and 11 held for each token, 12 (16 over ep) and 10 for each slot (see mixtureActivations).
func (t Transformer) putOff(c Config) float64 {
	tp, live, held := float64(c.Layout.tp()), 4.0, 8.0 // between layers; in them 12, divided by tp
	switch top := float64(t.Top); {
	case t.Experts > 0 && c.Layout.ep() > 1:
		live, held = 16*top-3, 10*top-1
	case t.Experts > 0:
		live, held = 12*top-3, 10*top-1
	case c.Sequence:
		live, held = 8/tp, 4
	case tp > 1:
		live = 10
	}
	return 1.12 * (held + 12/tp) / (live + 12/tp)
}

// Pipeline returns the plan of t in stages with equally many layers, which are on ranks of Config.Layout.PP. The table of tokens is on the
// first stage and on the last one. Memory is that of the rank that needs most, and Stages has all. It is planned with ddp and fsdp
// (OncePerStep), beside ring, cp and tp, or with experts. Activations are those of models/gpt: within a few percent, or 15 with put-off
// weight gradients.
func (t Transformer) Pipeline(c Config, s Pipeline) (*Plan, error) {
	switch {
	case c.Layout.pp() == 1 || len(s.Live) != c.Layout.pp():
		return nil, fmt.Errorf("pp=%d: a schedule of %d ranks does not fit", c.Layout.pp(), len(s.Live))
	case c.Host > 0:
		return nil, fmt.Errorf("pp=%d with hosts that have copies: stages gather values once a step, and need none", c.Layout.pp())
	case t.Layers < len(s.Ranks):
		return nil, fmt.Errorf("%d layers are too few for %d stages", t.Layers, len(s.Ranks))
	case t.Batch%s.Micros != 0 || t.Batch/s.Micros < c.Layout.shards():
		return nil, fmt.Errorf("%d microbatches of %d sequences must divide them, and have one for each of %d ranks", s.Micros, t.Batch,
			c.Layout.shards())
	}
	ranks := c.Layout.Ranks()
	name := c.Layout.String()
	c.Layout.PP = 0 // of one place in the pipeline
	if _, err := t.Model(c); err != nil {
		return nil, err
	}
	var p Plan
	var all Model
	for rank := range s.Live {
		m, st := t.stage(c, s, rank)
		mine, err := New(m, c)
		if err != nil {
			return nil, err
		}
		st.Parameters, st.Activations, st.Total = mine.Parameters, m.Activations.Bytes, mine.Total
		p.Stages, all.Units = append(p.Stages, st), append(all.Units, m.Units...)
		if mine.Total > p.Total {
			p.Total, p.Memory = mine.Total, mine.Memory
			all.Legend = []string{fmt.Sprintf("P is of all stages; memory is that of rank %d of the pipeline, where P = %d", rank, mine.Parameters)}
		}
	}
	rows := t.exchanges(c, t.tokens(c, s.Micros), s.Micros)
	all.Sums = slices.Concat(t.sums(c, s.Micros, len(s.Ranks)), rows, t.around(c), t.messages(c, s))
	sum, err := New(all, c)
	if err != nil {
		return nil, err
	}
	sum.Layout, sum.Ranks, sum.Memory, sum.Total, sum.Stages, sum.Bubble = name, ranks, p.Memory, p.Total, p.Stages, s.Bubble
	return sum, nil
}

// messages returns what stages send to each other: activations and their gradients, and the gradients of a table that two of them have.
func (t Transformer) messages(c Config, s Pipeline) (list []Traffic) {
	n, last, size := 0, len(s.Ranks)-1, c.Params.Size()
	for i := range last {
		if s.Ranks[i] != s.Ranks[i+1] {
			n++
		}
	}
	if !c.Sequence {
		n *= c.Layout.tp() // all of these ranks have the same
	}
	if n > 0 {
		list = append(list, Traffic{"send", "pp", 2 * n * t.Batch * t.Seq * t.Dim * size,
			fmt.Sprintf("2·%d·%d·%d·%d", n, t.Batch*t.Seq, t.Dim, size)})
	}
	copies, size := c.Layout.shards()*c.Layout.positions(), c.grads().Size()
	if c.Layout.FSDP > 0 { // each rank has a part
		copies = c.Layout.dp()
	}
	if s.Ranks[0] != s.Ranks[last] {
		list = append(list, Traffic{"allreduce", "pp", 2 * copies * t.Vocab * t.Dim * size,
			fmt.Sprintf("2·%d·%d·%d·%d", copies, t.Vocab, t.Dim, size)})
	}
	return list
}

// stageCosts is step memory of a stage in bytes: what Forward keeps of its input, of embeddings, of a block (and what of it stays until
// Reset), and of the norm and logits at the end; and what Backward needs at the logits, elsewhere, and in a ring with experts before it
// that have freed nothing.
type stageCosts struct{ input, embedded, block, stays, loss, head, most, ring int }

func (t Transformer) stageCosts(c Config, tokens int) stageCosts {
	x := tensor.StepBytes(tokens * t.Dim * c.Params.Size())
	if c.Layout.tp() > 1 {
		k, stays, ring := t.dividedCosts(c, tokens), 0, 0
		if t.Experts > 0 {
			k.block, stays, k.mlp = t.mixtureCosts(c, tokens)
			ring = t.ringBackward(c, tokens)
		}
		loss := k.norm + k.logits
		return stageCosts{k.outside, k.embedded, k.block, stays, loss, k.head - k.logits, k.mlp, ring}
	}
	k, stays, ring := t.costs(c, tokens, 4), 0, 0
	if t.Experts > 0 {
		ring, k.ring = k.ring, 0
		k.block, stays, k.mlp = t.mixtureCosts(c, tokens)
	}
	// Embeddings are what was looked up, and its sum with positions.
	return stageCosts{x, 2 * x, k.block, stays, x + k.logits, k.head - x - k.logits, max(k.mlp, k.ring), ring}
}

// stage returns what a rank has of the model. As in models/gpt/parallel, the table is a unit of its own, and all units stay until a step
// ends. Activations are those of its largest stage, for each microbatch that it holds. The last backward pass of a rank is cut in two in
// any schedule, so that its gradient leaves early.
func (t Transformer) stage(c Config, s Pipeline, rank int) (m Model, st Stage) {
	d, words, last, tokens := t.Dim, t.Vocab/c.Layout.tp()*t.Dim, len(s.Ranks)-1, t.tokens(c, s.Micros)
	k, put := t.stageCosts(c, tokens), t.putOff(c)
	var table, others []int
	kept, stays, loss, most := 0, 0, 0, k.most
	for i, on := range s.Ranks {
		if on != rank {
			continue
		}
		lo, hi := layout.Share(t.Layers, i, len(s.Ranks))
		bytes := k.input + (hi-lo)*k.block
		if i == 0 {
			bytes += k.embedded - k.input
			table, others = []int{words}, append(others, t.Seq*d)
		}
		if i == last {
			loss, most = k.loss, max(most, k.head)
			table, others = []int{words}, append(others, d, d)
		}
		kept, stays, st.Layers = max(kept, bytes), max(stays, (hi-lo)*k.stays), st.Layers+hi-lo
	}
	m.Units = []Unit{{Params: table}, {Params: others}}
	for range st.Layers {
		m.Units = append(m.Units, t.block(c)...)
	}
	for i := range m.Units {
		m.Units[i].Keep = true
	}
	off := min(s.PutOff[rank], s.Held[rank])
	live := s.Held[rank] - off
	st.Live, st.PutOff = s.Live[rank], s.PutOff[rank]
	if s.Held[rank] == 1 { // each backward pass may be the last one
		most = max(most, k.ring)
	}
	if live == 1 && off == 0 && put*float64(kept) > float64(kept+loss) {
		live, off = 0, 1
	}
	if s.Micros > s.Held[rank] { // there is a tape more, whose gradient leaves
		most += stays
	}
	m.Activations = Item{Kind: memory.Activations, Bytes: live*(kept+loss) + int(put*float64(off*kept)) + most,
		Formula: fmt.Sprintf("%d·%s + %.3g·%d·%s + Backward's %s, about", live, memory.Format(kept+loss), put, off,
			memory.Format(kept), memory.Format(most))}
	return m, st
}
