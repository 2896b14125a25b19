package decode

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// Sampling says how tokens are drawn. The zero Sampling takes the most likely token each time, without end.
type Sampling struct {
	Tokens      int     // number of tokens to write; 0: until the loop breaks
	Temperature float64 // divides the logits; 0: the most likely token
	TopK        int     // draw only from so many of the likeliest tokens; 0: from all
	TopP        float64 // draw only from the fewest likeliest tokens that together have this probability (Holtzman et al. 2020); 0: from all
	Seed        uint64
	End         []int // tokens that end the text, such as the one behind an answer; they are not yielded
}

func (s *Sampling) check() error {
	if s.Tokens < 0 || s.TopK < 0 || !(s.Temperature >= 0) || math.IsInf(s.Temperature, 1) || !(s.TopP >= 0 && s.TopP <= 1) {
		return fmt.Errorf("%+v: nothing may be negative, TopP is at most 1", *s)
	}
	return nil
}

// sampler draws tokens. It keeps its memory between tokens.
type sampler struct {
	Sampling
	list []choice
}

// choice is a token that may be drawn, with its unnormalized probability.
type choice struct {
	id int
	p  float64
}

// likelier orders tokens by falling probability; of equal ones, the one with the smaller number is first.
func likelier(a, b choice) int {
	if c := cmp.Compare(b.p, a.p); c != 0 {
		return c
	}
	return a.id - b.id
}

// draw returns the n-th token for these logits. The random number depends only on the seed and n.
func (s *sampler) draw(logits []float64, n int) int {
	top := largest(logits)
	if math.IsNaN(top) || math.IsInf(top, 0) {
		panic(&tensor.Failure{Op: "decode.Generate", Err: fmt.Errorf("the largest of the logits is %v", top)})
	}
	if s.Temperature == 0 {
		return slices.Index(logits, top)
	}
	s.list = s.list[:0]
	for id, v := range logits {
		if p := math.Exp((v - top) / s.Temperature); p > 0 {
			s.list = append(s.list, choice{id, p})
		}
	}
	kept := s.filter(s.list)
	at := float64(tensor.RandomBits(s.Seed, uint64(n))>>11) * 0x1p-53 * sum(kept)
	for _, c := range kept {
		if at -= c.p; at < 0 {
			return c.id
		}
	}
	return kept[len(kept)-1].id // only if rounding makes the sum too small
}

// largest returns the largest number, or NaN if one is.
func largest(logits []float64) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, v := range logits {
		sum += v - v // NaN if v is NaN or infinite
		if v > top {
			top = v
		}
	}
	if sum != 0 && slices.ContainsFunc(logits, math.IsNaN) {
		return math.NaN()
	}
	return top
}

// filter returns the tokens that TopK and TopP allow.
func (s *sampler) filter(all []choice) []choice {
	few := s.TopK > 0 && s.TopK < len(all)
	likely := s.TopP > 0 && s.TopP < 1
	if few || likely {
		slices.SortFunc(all, likelier)
	}
	if few {
		all = all[:s.TopK]
	}
	if !likely {
		return all
	}
	so, enough := 0.0, s.TopP*sum(all)
	for i, c := range all {
		if so += c.p; so >= enough {
			return all[:i+1]
		}
	}
	return all
}

func sum(all []choice) (p float64) {
	for _, c := range all {
		p += c.p
	}
	return p
}
