package gpt

import (
	"fmt"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Stage is a part of a model: a stage of a pipeline, or all of it.
type Stage struct {
	model      *Model
	first, end int // of the blocks
}

// Stages divides m into stages of a pipeline, with layers[i] blocks in stage i, and leaves m those of this rank: mine. The first stage also
// has the tables of tokens and positions, and the last one the norm and the head. Parameters keep the names that they have in the whole
// model, in files, too. If the model is tied, both the first and the last stage have the table of tokens: add up its gradients. Call Stages
// before values are made. The result has this rank's stages by their numbers.
func (m *Model) Stages(layers []int, mine ...int) (map[int]*Stage, error) {
	total := 0
	var all []*Stage
	for i, n := range layers {
		if n < 1 {
			return nil, fmt.Errorf("gpt: stage %d has %d layers: each stage needs one", i, n)
		}
		all = append(all, &Stage{m, total, total + n})
		total += n
	}
	if total != m.Config.Layers {
		return nil, fmt.Errorf("gpt: stages of %v layers have %d of them, and the model has %d", layers, total, m.Config.Layers)
	}
	stages, blocks := map[int]*Stage{}, make([]*Block, len(m.Blocks))
	tok, pos, norm, head := m.Tok, m.Pos, m.Norm, m.Head
	m.Tok, m.Pos, m.Norm, m.Head = nil, nil, nil, nil
	for _, i := range mine {
		if i < 0 || i >= len(all) || stages[i] != nil {
			return nil, fmt.Errorf("gpt: this rank has stages %v, and there are stages 0 to %d, each once", mine, len(all)-1)
		}
		s := all[i]
		stages[i] = s
		copy(blocks[s.first:s.end], m.Blocks[s.first:s.end])
		if s.first == 0 {
			m.Tok, m.Pos = tok, pos
		}
		if s.last() {
			m.Norm, m.Head = norm, head
			if m.Config.Tied { // its name is that of the table
				m.Tok = tok
			}
		}
	}
	m.Blocks = blocks
	return stages, nil
}

func (m *Model) whole() *Stage { return &Stage{m, 0, len(m.Blocks)} }

func (s *Stage) last() bool { return s.end == len(s.model.Blocks) }

// Forward returns Features, of which the last stage makes logits [batch, time, vocabulary].
func (s *Stage) Forward(x nn.T, batch, time int) nn.T {
	x = s.Features(x, batch, time)
	if !s.last() {
		return x
	}
	return s.model.Head.Forward(x)
}

// Features returns [tokens, width], of which tensor parallelism may leave this rank a part; the last stage returns what Model.Features
// does. x is what the stage before returned, of batch sequences of so many tokens; in the first stage it is tokens [batch, time], Int64.
// Each stage is given the docs of Model.Features.
func (s *Stage) Features(x nn.T, batch, time int, docs ...nn.T) nn.T {
	if s.first == 0 && (x.NDim() != 2 || x.Dim(0) != batch || x.Dim(1) != time) {
		s.model.fail("%v are not %d sequences of %d tokens: stages take documents apart (gpt.Documents)", x.Shape(), batch, time)
	}
	x = s.blocks(x, batch, time, nil, docs)
	if !s.last() {
		return x
	}
	return x.Reshape(batch, time, x.Dim(1))
}

// features returns the input of the head, [batch, time, width]. With a cache, ids follow the tokens in it, and are added to it.
func (s *Stage) features(ids nn.T, c *decode.Cache, docs []nn.T) nn.T {
	if docs == nil {
		ids, docs = Documents(ids)
	}
	if ids.NDim() != 2 {
		s.model.fail("%v: needs [batch, time], or [batch, 2, time] with the numbers of documents", ids.Shape())
	}
	x := s.blocks(ids, ids.Dim(0), ids.Dim(1), c, docs)
	return x.Reshape(ids.Dim(0), ids.Dim(1), x.Dim(1))
}

// blocks applies the stage's layers, without the head.
func (s *Stage) blocks(x nn.T, batch, time int, c *decode.Cache, documents []nn.T) nn.T {
	m, before := s.model, c.Len()
	if before+time > m.Config.Positions {
		m.fail("%d tokens behind %d: the model has %d positions", time, before, m.Config.Positions)
	}
	for i, b := range m.Blocks[s.first:s.end] {
		if b == nil {
			m.fail("this rank does not have layer %d of the model: it is a part of a pipeline (Stages)", s.first+i)
		}
	}
	if s.first == 0 {
		x = m.embeddings(x)
		if m.Pos != nil {
			if len(documents) > 0 {
				m.fail("%v are the documents of tokens, and learned positions count from the beginning of a sequence", documents[0].Shape())
			}
			x = m.Pos.Forward(x, before)
		}
		x = apply(m.Embedded, x.Reshape(batch*time, x.Dim(2)))
	}
	var docs nn.T
	if len(documents) > 0 {
		if docs = documents[0]; docs.Tape() == nil { // the step's rows are those of the tokens
			docs = x.Tape().Input(docs.WithRows(tensor.Rows{}))
		}
	}
	for i, b := range m.Blocks[s.first:s.end] {
		switch {
		case !m.Recompute || c != nil:
			x = b.forward(x, batch, time, c.Layer(s.first+i), docs)
		case docs.IsZero():
			x = x.Tape().Checkpoint(func(in ...nn.T) nn.T { return b.Forward(in[0], batch, time) }, x)
		default:
			x = x.Tape().Checkpoint(func(in ...nn.T) nn.T { return b.forward(in[0], batch, time, nil, in[1]) }, x, docs)
		}
	}
	if s.last() {
		x = m.Norm.Forward(x)
	}
	return x
}
