package gpt

import (
	"iter"

	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// NewCache returns an empty cache for sequences of up to so many tokens, at most Config.Positions.
func (m *Model) NewCache(tokens int) *decode.Cache {
	return decode.NewCache(len(m.Blocks), min(tokens, m.Config.Positions))
}

// Next appends tokens ids [batch, time], Int64, to a cache, and returns logits [batch, vocabulary] for the token after the last one. The
// tape must be a NoGrad tape.
func (m *Model) Next(ids nn.T, c *decode.Cache) nn.T {
	x := m.whole().features(ids, c, nil)
	logits := apply(m.Drawn, m.Head.Forward(x.Slice(1, x.Dim(1)-1, x.Dim(1)).Reshape(x.Dim(0), x.Dim(2))))
	if logits.Dim(1) != m.Config.Vocab {
		m.fail("%v are the logits of a part of the %d tokens: Model.Drawn has to join them", logits.Shape(), m.Config.Vocab)
	}
	return logits
}

// Generate yields the tokens that the model writes after a prompt: see decode.Model.Generate.
func (m *Model) Generate(dev tensor.Device, prompt []int, s decode.Sampling) iter.Seq[int] {
	d := decode.Model{Vocab: m.Config.Vocab, Positions: m.Config.Positions, Layers: len(m.Blocks), Next: m.Next}
	if g, ok := m.Drawn.(interface {
		Agree(what string, lines []string) error
	}); ok {
		d.Agree = g.Agree
	}
	return d.Generate(dev, prompt, s)
}
