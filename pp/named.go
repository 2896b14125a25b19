package pp

import (
	"fmt"
	"maps"
	"slices"
)

var named = map[string]func(ranks, chunks, micros int) (*Schedule, error){
	"forward":     func(p, _, m int) (*Schedule, error) { return ForwardOnly(p, m), nil },
	"gpipe":       func(p, _, m int) (*Schedule, error) { return GPipe(p, m), nil },
	"1f1b":        func(p, _, m int) (*Schedule, error) { return OneF1B(p, m), nil },
	"interleaved": func(p, v, m int) (*Schedule, error) { return Interleaved(p, v, m), nil },
	"zb-h1":       func(p, _, m int) (*Schedule, error) { return ZBH1(p, m), nil },
	"zbv":         func(p, _, m int) (*Schedule, error) { return ZBV(p, m) },
	"v-half":      func(p, _, m int) (*Schedule, error) { return VHalf(p, m) },
	"v-min":       func(p, _, m int) (*Schedule, error) { return VMin(p, m) },
	"dualpipev":   func(p, _, m int) (*Schedule, error) { return DualPipeV(p, m) },
}

// Names are those that ByName knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(named)) }

// ByName returns the schedule that has this Name. chunks is for Interleaved alone.
func ByName(name string, ranks, chunks, micros int) (*Schedule, error) {
	if named[name] == nil || min(ranks, chunks, micros) < 1 {
		return nil, fmt.Errorf("pp: no schedule %q of %d ranks, %d chunks, %d microbatches; there are %v", name, ranks, chunks, micros, Names())
	}
	return named[name](ranks, chunks, micros)
}

// loop places stage i on rank i mod ranks.
func loop(ranks, chunks int) []int {
	place := make([]int, max(ranks, 0)*max(chunks, 0))
	for i := range place {
		place[i] = i % ranks
	}
	return place
}

// build makes the schedule in which rank r does what list returns.
func build(name string, micros int, place []int, list func(rank int) []Action) *Schedule {
	s := &Schedule{Name: name, Micros: micros, Ranks: place}
	for r := range slices.Max(append(place, -1)) + 1 {
		s.Actions = append(s.Actions, list(r))
	}
	return s
}

// all returns the actions of one kind and stage.
func all(k Kind, stage, micros int) (list []Action) {
	for m := range micros {
		list = append(list, Action{k, stage, m})
	}
	return list
}

// ForwardOnly is for evaluation.
func ForwardOnly(ranks, micros int) *Schedule {
	return build("forward", micros, loop(ranks, 1), func(r int) []Action { return all(F, r, micros) })
}

// Forward returns the forward passes of s alone, to evaluate what s trains.
func (s *Schedule) Forward() *Schedule {
	f := *s
	f.Actions = nil
	for _, list := range s.Actions {
		f.Actions = append(f.Actions, slices.DeleteFunc(slices.Clone(list), func(a Action) bool { return a.Kind != F }))
	}
	return &f
}

// GPipe does all forward passes first (Huang et al. 2019, arXiv:1811.06965): a rank holds every microbatch.
func GPipe(ranks, micros int) *Schedule {
	return build("gpipe", micros, loop(ranks, 1), func(r int) []Action { return append(all(F, r, micros), all(B, r, micros)...) })
}

// OneF1B does a forward and a backward pass in turn (PipeDream-Flush, Narayanan et al. 2021, arXiv:2006.09503): rank r holds ranks-r
// microbatches.
func OneF1B(ranks, micros int) *Schedule {
	s := Interleaved(ranks, 1, micros)
	s.Name = "1f1b"
	return s
}

// Interleaved is OneF1B with several stages on each rank, whose bubble is so many times shorter (Narayanan et al. 2021, arXiv:2104.04473).
// The number of microbatches may be any: they go through the stages of a rank in rounds of at least as many as there are ranks, or in one.
func Interleaved(ranks, chunks, micros int) *Schedule {
	return build("interleaved", micros, loop(ranks, chunks), func(r int) []Action {
		forward, backward := rounds(F, r, ranks, chunks, micros), rounds(B, r, ranks, chunks, micros)
		warm := ranks - 1 - r
		if chunks > 1 {
			warm = (chunks-1)*roundSize(0, ranks, micros) + 2*warm
		}
		return alternate(forward, backward, warm)
	})
}

// alternate puts warm forward passes first.
func alternate(forward, backward []Action, warm int) []Action {
	warm = min(warm, len(forward))
	list := slices.Clone(forward[:warm])
	for i, b := range backward {
		if warm+i < len(forward) {
			list = append(list, forward[warm+i])
		}
		list = append(list, b)
	}
	return list
}

// rounds returns the passes of rank r's stages: a round of microbatches goes through all of them.
func rounds(k Kind, r, ranks, chunks, micros int) (list []Action) {
	first := 0
	for i := 0; first < micros; i++ {
		n := roundSize(i, ranks, micros)
		for c := range chunks {
			if k == B {
				c = chunks - 1 - c
			}
			for m := range n {
				list = append(list, Action{k, c*ranks + r, first + m})
			}
		}
		first += n
	}
	return list
}

// roundSize returns the number of microbatches of round i. A round of fewer than there are ranks would end in a deadlock, unless it is the
// only one.
func roundSize(i, ranks, micros int) int {
	n := max(1, micros/ranks) // rounds
	return (micros + n - 1 - i) / n
}

// ZBH1 fills the bubble of OneF1B with weight gradients, in the same memory (ZB-H1, Qi et al. 2023, arXiv:2401.10241; ZB1P in torch).
// Rank r puts off those of r microbatches.
func ZBH1(ranks, micros int) *Schedule {
	return build("zb-h1", micros, loop(ranks, 1), func(r int) (list []Action) {
		done := 0
		for _, a := range alternate(all(F, r, micros), all(I, r, micros), ranks-1-r) {
			if list = append(list, a); a.Kind == I && a.Micro >= r {
				list = append(list, Action{W, r, done})
				done++
			}
		}
		return append(list, all(W, r, micros)[done:]...)
	})
}
