package gpt

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// sampler draws tokens, in memory that it keeps.
type sampler struct {
	Sampling
	wide []float64
	list []choice
}

// choice is a token that may be drawn, with its probability, not normalized.
type choice struct {
	id int
	p  float64
}

// likelier puts likely tokens first, and of equals the one with the smaller number.
func likelier(a, b choice) int {
	if c := cmp.Compare(b.p, a.p); c != 0 {
		return c
	}
	return a.id - b.id
}

// draw returns the n-th token, for these logits: a number that depends on the seed and n decides.
func (s *sampler) draw(logits []float64, n int) int {
	top := slices.Max(logits)
	if math.IsNaN(top) || math.IsInf(top, 0) {
		panic(&tensor.Failure{Op: "gpt.Generate", Err: fmt.Errorf("the largest of the logits is %v", top)})
	}
	if s.Temperature == 0 {
		return slices.Index(logits, top)
	}
	all := s.weigh(logits, top)
	if s.TopK > 0 && s.TopK < len(all) {
		all = s.keepTopK(all)
	}
	if s.TopP > 0 && s.TopP < 1 {
		all = s.keepTopP(all)
	}
	at := float64(tensor.RandomBits(s.Seed, uint64(n))>>11) * 0x1p-53 * sum(all)
	for _, c := range all {
		if at -= c.p; at < 0 {
			return c.id
		}
	}
	return all[len(all)-1].id // rounding
}

// weigh returns all tokens with exp((logit − top)/Temperature).
func (s *sampler) weigh(logits []float64, top float64) []choice {
	s.list = s.list[:0]
	for id, v := range logits {
		if p := math.Exp((v - top) / s.Temperature); p > 0 {
			s.list = append(s.list, choice{id, p})
		}
	}
	return s.list
}

// keepTopK returns the TopK likeliest ones, in a heap whose root is the least likely.
func (s *sampler) keepTopK(all []choice) []choice {
	heap, rest := all[:s.TopK], all[s.TopK:]
	sink := func(i int) {
		for {
			worst := i
			for c := 2*i + 1; c <= 2*i+2 && c < len(heap); c++ {
				if likelier(heap[c], heap[worst]) > 0 {
					worst = c
				}
			}
			if worst == i {
				return
			}
			heap[i], heap[worst] = heap[worst], heap[i]
			i = worst
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(i)
	}
	for _, c := range rest {
		if likelier(c, heap[0]) < 0 {
			heap[0] = c
			sink(0)
		}
	}
	return heap
}

// keepTopP returns the likeliest tokens whose probabilities sum up to TopP. Those below (1−TopP)/tokens are not among them, all
// together, and need not be sorted.
func (s *sampler) keepTopP(all []choice) []choice {
	total := sum(all)
	least := (1 - s.TopP) * total / float64(len(all))
	kept := all[:0]
	for _, c := range all {
		if c.p >= least {
			kept = append(kept, c)
		}
	}
	slices.SortFunc(kept, likelier)
	so := 0.0
	for i, c := range kept {
		if so += c.p; so >= s.TopP*total {
			return kept[:i+1]
		}
	}
	return kept
}

func sum(all []choice) (p float64) {
	for _, c := range all {
		p += c.p
	}
	return p
}
