package gpt

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Cache holds the keys and values of all layers for the tokens that the model has seen, so that each further token costs as much as
// one token. A nil *Cache holds none.
type Cache struct{ layers []*tensor.KVCache }

// NewCache returns an empty cache for sequences of up to so many tokens, at most Config.Positions.
func (m *Model) NewCache(tokens int) *Cache {
	c := &Cache{}
	for range m.Blocks {
		c.layers = append(c.layers, tensor.NewKVCache(min(tokens, m.Config.Positions)))
	}
	return c
}

// Len returns how many tokens of each sequence the cache holds.
func (c *Cache) Len() int {
	if c == nil || len(c.layers) == 0 {
		return 0
	}
	return c.layers[0].Len()
}

// Truncate keeps the first n tokens.
func (c *Cache) Truncate(n int) {
	if n != c.Len() {
		for _, l := range c.layers {
			l.Truncate(n)
		}
	}
}

func (c *Cache) layer(i int) *tensor.KVCache {
	if c == nil {
		return nil
	}
	return c.layers[i]
}

// Next appends tokens ids [batch, time], which are Int64, to a cache, and returns logits [batch, vocabulary] of the token behind the
// last one. The tape is one with NoGrad.
func (m *Model) Next(ids nn.T, c *Cache) nn.T {
	x := m.features(ids, c)
	last := x.Slice(1, x.Dim(1)-1, x.Dim(1)).Reshape(x.Dim(0), x.Dim(2))
	logits := m.Head.Forward(last)
	if m.Drawn != nil {
		logits = logits.Tape().Apply(m.Drawn, logits)
	}
	if logits.Dim(1) != m.Config.Vocab {
		m.fail("%v are the logits of a part of the %d tokens: Model.Drawn has to join them", logits.Shape(), m.Config.Vocab)
	}
	return logits
}

// Sampling says how tokens are drawn. The zero Sampling takes the most likely token each time, without end.
type Sampling struct {
	Tokens      int     // how many are made; 0: until the loop breaks
	Temperature float64 // divides the logits; 0: the most likely token
	TopK        int     // only so many of the likeliest tokens are drawn from; 0: all
	TopP        float64 // only the likeliest tokens are, which together have this probability at least (Holtzman et al. 2020); 0: all
	Seed        uint64
}

func (s *Sampling) check() error {
	if s.Tokens < 0 || s.TopK < 0 || !(s.Temperature >= 0) || math.IsInf(s.Temperature, 1) || !(s.TopP >= 0 && s.TopP <= 1) {
		return fmt.Errorf("%+v: nothing may be negative, TopP is at most 1", *s)
	}
	return nil
}

// Generate yields the tokens that the model writes behind a prompt of at least one. It is a function of the parameters, the prompt
// and s alone. A text that becomes longer than Config.Positions goes on from its last half. Wrong tokens are a Failure.
//
// A device serves one goroutine: texts that are written side by side need one each.
//
// Under package fsdp all ranks call it with the same arguments, and take the same number of tokens; they get the same ones.
func (m *Model) Generate(dev tensor.Device, prompt []int, s Sampling) iter.Seq[int] {
	return func(yield func(int) bool) {
		if err := errors.Join(s.check(), m.checkTokens(prompt)); err != nil {
			panic(&tensor.Failure{Op: "gpt.Generate", Err: err})
		}
		tape := tensor.NewTape(dev, tensor.NoGrad())
		defer tape.Close()
		room := m.Config.Positions
		if s.Tokens > 0 {
			room = len(prompt) + min(s.Tokens, room-len(prompt))
		}
		w := writer{m: m, tape: tape, cache: m.NewCache(room), one: tensor.FromSlice(make([]int64, 1), 1, 1), sampler: sampler{Sampling: s}}
		text := slices.Clone(prompt)
		for n := 0; s.Tokens == 0 || n < s.Tokens; n++ {
			next := w.next(text[w.cache.Len():], n)
			if !yield(next) {
				return
			}
			if text = append(text, next); len(text) > m.Config.Positions {
				text = append(text[:0], text[len(text)/2:]...)
				w.cache.Truncate(0)
			}
		}
	}
}

func (m *Model) checkTokens(ids []int) error {
	if len(ids) == 0 || len(ids) > m.Config.Positions {
		return fmt.Errorf("a prompt of %d tokens: needs at least one, and the model has %d positions", len(ids), m.Config.Positions)
	}
	for i, id := range ids {
		if id < 0 || id >= m.Config.Vocab {
			return fmt.Errorf("token %d of the prompt is %d, and the vocabulary has %d", i, id, m.Config.Vocab)
		}
	}
	return nil
}

// writer is what Generate keeps from token to token.
type writer struct {
	m     *Model
	tape  *tensor.Tape
	cache *Cache
	one   tensor.Tensor // a token
	sampler
}

// next appends tokens to the cache, and returns the n-th one that is made, behind them.
func (w *writer) next(ids []int, n int) int {
	in := w.one
	if len(ids) > 1 {
		in = tensor.FromSlice(make([]int64, len(ids)), 1, len(ids))
	}
	for i, id := range ids {
		tensor.Data[int64](in)[i] = int64(id)
	}
	logits := tensor.ToHost(w.m.Next(w.tape.Input(in), w.cache).Cast(tensor.Float64))
	defer w.tape.Reset()
	return w.draw(tensor.Data[float64](logits), n)
}
