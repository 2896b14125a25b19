package decode

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Model is a model that predicts the next token, for Generate.
type Model struct {
	Vocab     int // number of tokens
	Positions int // longest sequence
	Layers    int // that have keys and values
	// Next appends tokens ids [batch, time], Int64, to a cache, and returns logits [batch, Vocab] for the token after the last one.
	Next func(ids nn.T, c *Cache) nn.T
	// Agree, if not nil, returns an error unless the ranks that compute one text together give the same lines. See dist.Group.Agree.
	Agree func(what string, lines []string) error
}

// Generate yields the tokens that the model writes after a prompt of at least one token. The tokens depend only on the parameters, the
// prompt and s. When a text becomes longer than Positions, the model continues from its last half. Wrong tokens are a Failure.
//
// A device serves one goroutine: to write several texts at the same time, use a device for each.
//
// If ranks share the model, as under package fsdp, all ranks call it with the same arguments, and take the same number of tokens. They get
// the same tokens. Under tensor parallelism, another prompt or Sampling on a rank is a Failure.
func (m Model) Generate(dev tensor.Device, prompt []int, s Sampling) iter.Seq[int] {
	return func(yield func(int) bool) {
		if err := cmp.Or(errors.Join(s.check(), m.check(prompt)), m.agree(prompt, s)); err != nil {
			panic(&tensor.Failure{Op: "decode.Generate", Err: err})
		}
		tape := tensor.NewTape(dev, tensor.NoGrad())
		defer tape.Close()
		room := m.Positions
		if s.Tokens > 0 {
			room = len(prompt) + min(s.Tokens, room-len(prompt))
		}
		w := writer{Model: m, tape: tape, cache: NewCache(m.Layers, room), one: tensor.FromSlice(make([]int64, 1), 1, 1),
			sampler: sampler{Sampling: s}}
		text := slices.Clone(prompt)
		for n := 0; s.Tokens == 0 || n < s.Tokens; n++ {
			next := w.next(text[w.cache.Len():], n)
			if slices.Contains(s.End, next) || !yield(next) {
				return
			}
			if text = append(text, next); len(text) > m.Positions {
				text = append(text[:0], text[len(text)/2:]...)
				w.cache.Truncate(0)
			}
		}
	}
}

func (m *Model) check(prompt []int) error {
	if len(prompt) == 0 || len(prompt) > m.Positions {
		return fmt.Errorf("a prompt of %d tokens: needs at least one, and the model has %d positions", len(prompt), m.Positions)
	}
	for i, id := range prompt {
		if id < 0 || id >= m.Vocab {
			return fmt.Errorf("token %d of the prompt is %d, and the vocabulary has %d", i, id, m.Vocab)
		}
	}
	return nil
}

// agree returns an error if ranks that compute a text together were given other ones.
func (m *Model) agree(prompt []int, s Sampling) error {
	if m.Agree == nil {
		return nil
	}
	sum, how := uint64(0), fmt.Sprintf("Tokens %d, End %v", s.Tokens, s.End)
	for _, id := range prompt {
		sum = tensor.RandomKey(sum, uint64(id))
	}
	if s.Temperature > 0 { // else nothing is drawn
		how += fmt.Sprintf(", Temperature %v, TopK %d, TopP %v, Seed %d", s.Temperature, s.TopK, s.TopP, s.Seed)
	}
	return m.Agree("these ranks compute one text together: give all the same prompt and Sampling",
		[]string{fmt.Sprintf("a prompt of %d tokens of checksum %016x", len(prompt), sum), how})
}

// writer is the state of Generate between tokens.
type writer struct {
	Model
	tape  *tensor.Tape
	cache *Cache
	one   tensor.Tensor // a token
	sampler
}

// next appends tokens to the cache, and returns the n-th new token.
func (w *writer) next(ids []int, n int) int {
	in := w.one
	if len(ids) > 1 {
		in = tensor.FromSlice(make([]int64, len(ids)), 1, len(ids))
	}
	for i, id := range ids {
		tensor.Data[int64](in)[i] = int64(id)
	}
	logits := tensor.ToHost(w.Next(w.tape.Input(in), w.cache).Cast(tensor.Float64))
	defer w.tape.Reset()
	return w.draw(tensor.Data[float64](logits), n)
}
