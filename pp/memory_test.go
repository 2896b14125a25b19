package pp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/pp"
)

// peaks returns the most step memory of each rank, in bytes.
func peaks(t *testing.T, ranks, micros int, l layout) []float64 {
	l.mesh = fmt.Sprintf("pp=%d", ranks)
	return program{layers: 8}.peaks(t, ranks, micros, l)
}

func (p program) peaks(t *testing.T, ranks, micros int, l layout) []float64 {
	most := make([]float64, ranks)
	l.after = func(j *job) error {
		_, peak := j.tape.Memory()
		most[j.rank.World.Rank()] = float64(peak)
		return nil
	}
	p.rows = slices.Repeat([]int{4}, micros)
	c := p.training(l)
	c.Steps = 3
	c.Run(t)
	return most
}

// So it is where ranks divide experts, if equally many tokens choose each in all microbatches.
func TestStepMemoryOfExperts(t *testing.T) {
	p, micros := program{kind: gpt.Mixtral, same: true, layers: 2}, []int{4, 8}
	if reliability.Long(t) {
		p.layers, micros = 4, []int{8, 24}
	}
	for _, name := range []string{"1f1b", "zb-h1"} {
		if name == "1f1b" && !reliability.Long(t) {
			continue
		}
		l := layout{mesh: "pp=2,ep=2", schedule: name}
		few, many := p.peaks(t, 4, micros[0], l), p.peaks(t, 4, micros[1], l)
		require.Equal(t, few, many, name)
	}
}

func TestLongStepMemoryOfExperts(t *testing.T) { reliability.AsLong(t, TestStepMemoryOfExperts) }

// The memory of a step does not depend on the number of microbatches, and is what those take that are live at a time.
func TestStepMemory(t *testing.T) {
	const ranks = 4
	four, eight := peaks(t, ranks, 4, layout{schedule: "gpipe"}), peaks(t, ranks, 8, layout{schedule: "gpipe"}) // which are all live
	names, most := []string{"1f1b"}, 12
	if reliability.Long(t) {
		names, most = append(names, "zb-h1", "interleaved", "zbv", "v-half", "v-min"), 24
	}
	for _, name := range names {
		few, many := peaks(t, ranks, 8, layout{schedule: name}), peaks(t, ranks, most, layout{schedule: name})
		require.Equal(t, few, many, name)
		if name != "1f1b" {
			continue
		}
		for r, live := range []float64{4, 3, 2} { // logits are apart
			each := (eight[r] - four[r]) / 4
			more := (few[r] - four[r]) / each // microbatches than four
			require.InDelta(t, live, 4+more, 0.05*live, "rank %d", r)
			t.Logf("rank %d: %.0f bytes, %.3f microbatches of %.0f bytes, of which %v are live", r, few[r], 4+more, each, live)
		}
	}
}

func TestLongStepMemory(t *testing.T) { reliability.AsLong(t, TestStepMemory) }

// Stages that are computed again have their weight gradients with those of activations. They do not keep them until W: then ZB-H1 takes
// about as much memory as 1F1B.
func TestRecomputedMemory(t *testing.T) {
	one, zb := peaks(t, 4, 8, layout{schedule: "1f1b", again: true}), peaks(t, 4, 8, layout{schedule: "zb-h1", again: true})
	for r := range one {
		t.Logf("rank %d: %.0f bytes with ZB-H1, %.0f with 1F1B: %.3f", r, zb[r], one[r], zb[r]/one[r])
		require.LessOrEqual(t, zb[r], 1.5*one[r], "rank %d", r)
	}
}

// A microbatch whose weight gradients are put off takes at most 1.4 times the memory of a live one: it has the inputs and the output
// gradients of all products.
func TestPutOffMemory(t *testing.T) {
	each := func(first, then string) float64 {
		var most [2]float64
		for i, micros := range []int{4, 8} {
			var list []string
			for _, pass := range []string{first, then} {
				for m := range micros {
					list = append(list, strings.Split(strings.ReplaceAll(pass, "m", fmt.Sprint(m)), " ")...)
				}
			}
			s := must(pp.ReadCSV("x", strings.NewReader(strings.Join(list, ","))))
			most[i] = peaks(t, 1, micros, layout{config: func(c *pp.Config) { c.Schedule = s }})[0]
		}
		return (most[1] - most[0]) / 4
	}
	live, putOff := each("0Fm", "0Bm"), each("0Fm 0Im", "0Wm")
	t.Logf("a live microbatch takes %.0f bytes, one that is put off %.0f: %.3f", live, putOff, putOff/live)
	require.LessOrEqual(t, putOff, 1.4*live)
	require.Greater(t, putOff, live)
}
