package pp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/pp"
)

var unit = pp.Costs{F: 1, I: 1, W: 1}

func checked(t *testing.T, s *pp.Schedule, c pp.Costs) *pp.Report {
	t.Helper()
	rep, err := s.Check(c, pp.Limit{})
	require.NoError(t, err)
	return rep
}

// Schedules by name have this name.
func TestByName(t *testing.T) {
	for _, name := range pp.Names() {
		s := must(pp.ByName(name, 3, 2, 7))
		require.Equal(t, name, s.Name)
		require.Len(t, s.Actions, 3)
		require.Equal(t, 7, s.Micros)
	}
	require.Len(t, must(pp.ByName("interleaved", 3, 4, 7)).Ranks, 12)
	_, err := pp.ByName("2f2b", 3, 1, 7)
	require.ErrorContains(t, err, `pp: no schedule "2f2b" of 3 ranks, 1 chunks, 7 microbatches; there are [1f1b dualpipev forward gpipe `)
	_, err = pp.ByName("gpipe", 3, 1, 0)
	require.ErrorContains(t, err, `pp: no schedule "gpipe" of 3 ranks, 1 chunks, 0 microbatches; there are [1f1b `)
}

func must(s *pp.Schedule, err error) *pp.Schedule {
	if err != nil {
		panic(err)
	}
	return s
}

// Bubbles and memory are those of the papers.
func TestFormulas(t *testing.T) {
	for _, c := range []pp.Costs{unit, {F: 2, I: 3, W: 1}, {F: 1, I: 1, W: 0.5}} {
		for p := 1; p <= 9; p++ {
			for _, m := range []int{p, p + 1, 2*p + 3, 4 * p} {
				name := fmt.Sprintf("%+v, %d ranks, %d microbatches", c, p, m)
				for _, s := range []*pp.Schedule{pp.GPipe(p, m), pp.OneF1B(p, m)} {
					require.InDelta(t, float64(p-1)/float64(m+p-1), checked(t, s, c).Bubble, 1e-12, "%s: %s", s.Name, name)
				}
				for r, live := range checked(t, pp.OneF1B(p, m), c).Live {
					require.Equal(t, p-r, live, name)
				}
				for v := 2; v <= 4 && m%p == 0 && p > 1; v++ {
					rep := checked(t, pp.Interleaved(p, v, m), c)
					require.InDelta(t, float64(p-1)/float64(v*m+p-1), rep.Bubble, 1e-12, "%d stages on a rank: %s", v, name)
				}
				rep := checked(t, pp.ZBH1(p, m), c)
				require.InDelta(t, float64(p-1)*(c.F+c.I-c.W), rep.Time-float64(m)*(c.F+c.I+c.W), 1e-9, name)
				require.LessOrEqual(t, slices.Max(rep.Held), p, name)
			}
		}
	}
}

// On a V, ranks hold what the papers say, and wait at most as long.
func TestVees(t *testing.T) {
	for p := 1; p <= 12; p++ {
		if p > 5 != reliability.Long(t) {
			continue
		}
		for _, m := range []int{1, p, 2*p + 1, 5 * p} {
			for _, v := range []struct {
				make       func(ranks, micros int) (*pp.Schedule, error)
				held, wait int
			}{{pp.ZBV, 2 * p, p - 1}, {pp.VHalf, p + 2, 3 * (p - 1)}, {pp.VMin, 2 * (p + 4) / 3, 4 * (p - 1)}} {
				s := must(v.make(p, m))
				rep, err := s.Check(unit, pp.Limit{Held: v.held})
				require.NoError(t, err)
				if m >= p {
					require.LessOrEqual(t, rep.Time, float64(6*m+v.wait), "%s of %d ranks, %d microbatches", s.Name, p, m)
				}
			}
			if s, err := pp.DualPipeV(p, m); m >= 2*p {
				rep := checked(t, must(s, err), unit)
				require.LessOrEqual(t, slices.Max(rep.Held), 2*p+1)
				require.Equal(t, float64(6*m+p-1), rep.Time)
			} else {
				require.ErrorContains(t, err, fmt.Sprintf("needs at least %d microbatches on %d ranks, not %d", 2*p, p, m))
			}
		}
	}
}

func TestLongVees(t *testing.T) { reliability.AsLong(t, TestVees) }

// Without backward passes, nothing needs a microbatch any more when its output has left.
func TestForwardHoldsOneMicrobatch(t *testing.T) {
	for _, s := range []*pp.Schedule{pp.ForwardOnly(1, 9), pp.ForwardOnly(4, 9), pp.Interleaved(2, 3, 8).Forward(),
		pp.OneF1B(3, 7).Forward()} {
		rep := checked(t, s, unit)
		for rank, n := range rep.Held {
			assert.Equal(t, 1, n, "%s, rank %d", s.Name, rank)
		}
	}
	assert.Equal(t, []int{1, 1, 2}, checked(t, must(pp.ZBV(3, 9)).Forward(), unit).Held, "the last rank has two stages in a row")
}

// schedules are of all kinds, with numbers that do not divide.
func schedules(t *testing.T) (all []*pp.Schedule) {
	ranks, micros := []int{1, 2, 3, 4}, []int{1, 2, 5, 9}
	if reliability.Long(t) {
		ranks, micros = append(ranks, 7), append(micros, 13)
	}
	for _, p := range ranks {
		for _, m := range micros {
			all = append(all, pp.ForwardOnly(p, m), pp.GPipe(p, m), pp.OneF1B(p, m), pp.Interleaved(p, 2, m), pp.Interleaved(p, 3, m), pp.ZBH1(p, m),
				must(pp.ZBV(p, m)), must(pp.VHalf(p, m)), must(pp.VMin(p, m)))
			if s, err := pp.DualPipeV(p, m); err == nil {
				all = append(all, s)
			}
		}
	}
	return all
}

// Files have the form of torchtitan's, whose empty cells are time.
// A hostile schedule takes no more memory than it has bytes to justify.
func TestReadCSVIsBounded(t *testing.T) {
	text := strings.Repeat("0F0,", 3<<20)
	reliability.Bounded(t, len(text), func() {
		_, err := pp.ReadCSV("x", strings.NewReader(text))
		require.ErrorContains(t, err, "rank 0: it would take more than")
	})
}

func TestCSV(t *testing.T) {
	for _, s := range schedules(t) {
		checked(t, s, unit)
		var text strings.Builder
		require.NoError(t, s.WriteCSV(&text))
		require.Equal(t, s, must(pp.ReadCSV(s.Name, strings.NewReader(text.String()))))
	}
	s := must(pp.ReadCSV("torch", strings.NewReader("0F0,0F1,,,,0I0,0W0,0B1\n\n,1F0,1F1,1B0,1B1,\n")))
	require.Equal(t, &pp.Schedule{Name: "torch", Micros: 2, Ranks: []int{0, 1}, Actions: [][]pp.Action{
		{{pp.F, 0, 0}, {pp.F, 0, 1}, {pp.I, 0, 0}, {pp.W, 0, 0}, {pp.B, 0, 1}},
		{{pp.F, 1, 0}, {pp.F, 1, 1}, {pp.B, 1, 0}, {pp.B, 1, 1}}}}, s)
	for text, want := range map[string]string{
		"0F0,x":         `rank 0: pp: "x" is not an action such as 3F7`,
		"0F0\n1F0,-1F2": `rank 1: pp: "-1F2" is not an action`,
		"0F0\nF0":       `rank 1: pp: "F0" is not`,
		"0F99999999":    `"0F99999999" is not`,
		"0F0\n1F0\n0F1": "stage 0 is on ranks 0 and 2",
		"0F0\n2F0":      "no rank has stage 1",
	} {
		_, err := pp.ReadCSV("x", strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

func TestLongCSV(t *testing.T) { reliability.AsLong(t, TestCSV) }

// broken are schedules, and what is wrong with them.
var broken = map[string]string{
	"":                                 "0 stages and 0 microbatches: it needs one or more of each",
	"0F0,0F9999999":                    "2 actions are too few for 1 stages and 10000000 microbatches",
	"0F0,0B0,0B0":                      "stage 0 has 2 backward passes of microbatch 0, not one",
	"0F0,0F0,0B0":                      "0F0 is there 2 times, not once",
	"0F0,0F1,0B0":                      "stage 0 has 0 backward passes of microbatch 1, not one",
	"0F0,0I0":                          "0I0 is there 1 times, and 0W0 0 times",
	"0F0,0B0,0W0":                      "0I0 is there 0 times, and 0W0 1 times",
	"0F0,0I0,0B0,0W0":                  "stage 0 has 2 backward passes",
	"0B0,0F0":                          "rank 0 waits for ever at 0B0 for 0F0, which comes later on this rank",
	"0F0,0W0,0I0":                      "rank 0 waits for ever at 0W0 for 0I0, which comes later on this rank",
	"0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0": "rank 0 waits for ever at 0B0 for 1I0, of rank 1, which waits at 1F1 before it",
	"0F0,0F1,0B1,0B0\n1F1,1B1,1B0,1F0": "rank 1 waits for ever at 1B0 for 1F0, which comes later on this rank",
}

// What is wrong with a schedule is said, with the ranks and actions that wait for each other.
func TestBroken(t *testing.T) {
	for text, want := range broken {
		s := must(pp.ReadCSV("x", strings.NewReader(text)))
		_, err := s.Check(unit, pp.Limit{})
		require.ErrorContains(t, err, "pp: schedule x: ", text)
		require.ErrorContains(t, err, want, text)
	}
	for _, s := range []*pp.Schedule{pp.GPipe(0, 3), pp.OneF1B(-1, 3), pp.Interleaved(2, 0, 3), pp.ZBH1(2, 0), pp.ForwardOnly(2, -1)} {
		_, err := s.Check(unit, pp.Limit{})
		require.ErrorContains(t, err, "it needs one or more of each", s.Name)
	}
	for _, v := range []func(ranks, micros int) (*pp.Schedule, error){pp.ZBV, pp.VHalf, pp.VMin} {
		_, err := v(0, 3)
		require.ErrorContains(t, err, "of 0 ranks and 3 microbatches: it needs one or more of each")
	}
	s := pp.OneF1B(2, 2)
	s.Actions[0], s.Actions[1] = s.Actions[1], append(s.Actions[0], pp.Action{Kind: pp.W + 1, Stage: 1})
	_, err := s.Check(unit, pp.Limit{})
	assert.ErrorContains(t, err, "rank 0: 1F0: stage 1 is on rank 1")
	assert.ErrorContains(t, err, "there are stages 0 to 1 and microbatches 0 to 1")
	_, err = (&pp.Schedule{Name: "x", Micros: 20, Ranks: []int{1}, Actions: [][]pp.Action{pp.GPipe(1, 20).Actions[0]}}).Check(unit, pp.Limit{})
	assert.ErrorContains(t, err, "and 28 more")
}

// Ranks hold no more than the limit, however many microbatches there are.
func TestLimits(t *testing.T) {
	for _, m := range []int{8, 24} {
		_, err := pp.OneF1B(4, m).Check(unit, pp.Limit{Live: 4})
		require.NoError(t, err)
		_, err = pp.ZBH1(4, m).Check(unit, pp.Limit{Live: 4, PutOff: 4, Held: 4})
		require.NoError(t, err)
	}
	_, err := pp.GPipe(2, 5).Check(unit, pp.Limit{Live: 4})
	require.EqualError(t, err, "pp: schedule gpipe: rank 0 holds activations of 5 microbatches, and the limit is 4; "+
		"rank 1 holds activations of 5 microbatches, and the limit is 4")
	_, err = pp.ZBH1(4, 8).Check(unit, pp.Limit{PutOff: 2, Held: 3})
	require.ErrorContains(t, err, "rank 3 holds put-off weight gradients of 4 microbatches, and the limit is 2")
	require.ErrorContains(t, err, "rank 0 holds activations or put-off weight gradients of 4 microbatches, and the limit is 3")
}

// Messages between two ranks need no buffers in the schedules of a loop. Of these, those that alternate hang if sends wait.
func TestMessages(t *testing.T) {
	for _, s := range schedules(t) {
		rep := checked(t, s, unit)
		switch s.Name {
		case "gpipe", "forward":
			assert.True(t, rep.Sync && rep.Ordered, s.Name)
		case "1f1b", "zb-h1":
			assert.True(t, rep.Ordered, s.Name)
			assert.Equal(t, len(s.Actions) == 1 || s.Micros == 1, rep.Sync, "%s of %d ranks and %d microbatches", s.Name, len(s.Actions), s.Micros)
		}
	}
	s := must(pp.ReadCSV("x", strings.NewReader("0F0,0F1,0F2\n1F2,1F1,1F0")))
	rep := checked(t, s, unit)
	assert.Equal(t, []any{false, false, []int{0, 2}}, []any{rep.Ordered, rep.Sync, rep.Waiting})
	s = must(pp.ReadCSV("x", strings.NewReader("0F0,0F1\n1F1,1F0")))
	rep = checked(t, s, pp.Costs{F: 1, Send: 0.5})
	assert.Equal(t, [][]float64{{0, 1}, {2.5, 3.5}}, rep.Start)
	assert.Equal(t, 4.5, rep.Time)
	assert.InDelta(t, 1-4/9.0, rep.Bubble, 1e-12)
}

func TestLongMessages(t *testing.T) { reliability.AsLong(t, TestMessages) }
