package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/live"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/train/metrics"
)

func numbers(s *series) (all []float64) {
	for _, v := range s.Values {
		all = append(all, float64(v))
	}
	return all
}

func TestSeries(t *testing.T) {
	var s series
	for step := 1; step < 2*maxPoints; step++ {
		s.add(step, float64(step))
		require.Less(t, len(s.Steps), maxPoints)
	}
	assert.Equal(t, 2, s.Every)
	assert.Equal(t, []int{2, 4, 6}, s.Steps[:3])
	assert.Equal(t, []float64{1.5, 3.5, 5.5}, numbers(&s)[:3])
	assert.Equal(t, metrics.Number(2*maxPoints-1), s.Last)

	s.add(6, 40) // a restart: values from step 6 on are removed
	s.add(7, 60)
	assert.Equal(t, []int{2, 4, 7}, s.Steps)
	assert.Equal(t, []float64{1.5, 3.5, 50}, numbers(&s))
	assert.Equal(t, metrics.Number(60), s.Last)
	s.add(8, math.NaN())
	s.add(9, 1)
	assert.True(t, math.IsNaN(float64(s.Values[3])), "no mean hides it")
}

func TestSlowest(t *testing.T) {
	s := &slowest{ranks: 3}
	assert.Equal(t,
		slowView{Steps: []int{}, Ranks: []int{}, Lead: []int{}, Times: make([]int, 3), Own: make([]int64, 3), Took: make([]int64, 3)}, s.view())
	s.add(0, 3, []int{100, 100, 100}, []int{50, 90, 50})
	s.add(2, 2, []int{100, 100}, []int{80, 30})
	s.add(1, 4, []int{100, 100, 100, 100}, []int{20, 30, 70, 10})
	assert.Equal(t, []int{1, 2}, s.view().Steps, "not those that a rank has not reported")
	s.add(2, 3, []int{103}, []int{40})
	s.add(2, 3, []int{0}, []int{1000}) // again: the first one counts
	assert.Equal(t, slowView{Steps: []int{1, 2, 3}, Ranks: []int{2, 0, 1}, Lead: []int{30, 40, 17}, Times: []int{1, 1, 1},
		Own: []int64{63, 40, 50}, Took: []int64{100, 100, 101}}, s.view())

	own := make([]int, 1)
	for step := 4; step < 3*heldSteps; step++ { // steps in order, each reported two more times
		for rank := range 3 {
			own[0] = 10 + rank
			s.add(rank, step, own, own)
		}
	}
	v := s.view()
	assert.Len(t, v.Steps, shownSteps)
	assert.Equal(t, 3*heldSteps-1, v.Steps[shownSteps-1])
	assert.Equal(t, []int{0, 0, shownSteps}, v.Times)
	s.add(0, 5, own, own) // removed long ago
	s.add(0, 1, []int{7, 7}, []int{7, 7})
	assert.Equal(t, v, s.view())
}

// report returns a rank's report as JSON.
func report(t *testing.T, r live.Report) []byte {
	text, err := r.Encode()
	require.NoError(t, err)
	return text
}

// look returns what the page gets.
func look(t *testing.T, s *state) (v view) {
	text, _, err := s.encode()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

func TestState(t *testing.T) {
	s := newState("train")
	v := look(t, s)
	assert.Equal(t, "starting", v.Job.State)
	s.Started(1, 2, 2)
	for rank := range 2 {
		s.Shown(1, rank, report(t, live.Report{Step: 4, Total: 9, Steps: 4, Elapsed: 2e6, Samples: 100, Took: []int{5, 5},
			Own:    []int{1 + rank, 1},
			Values: []live.Values{{Name: "loss", Steps: []int{3, 4}, Values: []metrics.Number{2, metrics.Number(rank + 1)}}},
			Memory: map[string]memory.Bytes{"gradients": {Live: 10 + rank, Peak: 12 + rank}, "total": {Live: 10, Peak: 20 + rank}},
			Comm:   []live.Op{{Name: "allreduce", Calls: 1, Payload: 2, Wire: 3, Flight: 4, Waited: 5}, {Name: fmt.Sprint("own", rank)}}}))
	}
	s.Ended(1, 1, 0)
	v = look(t, s)
	assert.Equal(t, "running", v.Job.State)
	assert.Equal(t, []int{2, 4, 9}, []int{v.Job.Ranks, v.Job.Step, v.Job.Total})
	assert.Equal(t, []string{"running", "ended"}, v.Status)
	require.Len(t, v.Values, 1, "rank 0 speaks for all")
	assert.Equal(t, []float64{2, 1}, numbers(v.Values[0]))
	assert.Equal(t, []float64{2}, numbers(v.Rates[0]))
	assert.Equal(t, []float64{50}, numbers(v.Rates[1]))
	assert.Equal(t, []string{"parameters", "gradients", "optimizer", "activations", "gathered", "communication", "other"}, v.Kinds)
	assert.Equal(t, [][]int{{0, 10, 0, 0, 0, 0, 0, 20}, {0, 11, 0, 0, 0, 0, 0, 21}}, v.Memory)
	assert.Equal(t, []int{0, 13, 0, 0, 0, 0, 0}, v.Peaks)
	assert.Equal(t, []live.Op{{Name: "allreduce", Calls: 2, Payload: 4, Wire: 6, Flight: 8, Waited: 10}, {Name: "own0"}, {Name: "own1"}},
		v.Comm)
	assert.Equal(t, []int{1, 0}, v.Slow.Ranks)

	_, before, _ := s.encode()
	s.Shown(1, 2, report(t, live.Report{})) // no such rank
	s.Shown(0, 0, report(t, live.Report{})) // from an earlier generation
	s.Shown(1, 0, []byte("nonsense"))
	s.Ended(0, 0, 1)
	_, after, _ := s.encode()
	assert.Equal(t, before, after)
}

// A restart continues from a checkpoint, maybe with other ranks.
func TestRestart(t *testing.T) {
	s := newState("train")
	s.Started(1, 2, 2)
	values := func(gen, step int, loss metrics.Number) {
		s.Shown(gen, 0, report(t, live.Report{Step: step, Steps: 1, Elapsed: 1e6, Took: []int{1}, Own: []int{1},
			Comm: []live.Op{{Name: "x", Calls: 7}}, Values: []live.Values{{Name: "loss", Steps: []int{step}, Values: []metrics.Number{loss}}}}))
	}
	for step := 1; step <= 5; step++ {
		values(1, step, metrics.Number(step))
	}
	s.Printed(1, 0, []byte("before\n"))
	s.Ended(1, 1, 137)
	assert.Equal(t, []string{"running", "failed: status 137"}, look(t, s).Status)
	s.Started(2, 1, 1)
	v := look(t, s)
	assert.Equal(t, 2, v.Job.Gen)
	assert.Equal(t, []string{"running"}, v.Status)
	assert.Empty(t, v.Comm)
	assert.Empty(t, v.Slow.Steps)
	assert.Equal(t, []float64{1, 2, 3, 4, 5}, numbers(v.Values[0]), "until it is known where it goes on")
	values(1, 6, 60) // late
	values(2, 4, 40)
	v = look(t, s)
	assert.Equal(t, []float64{1, 2, 3, 40}, numbers(v.Values[0]))
	assert.Equal(t, []int{1, 2, 3, 4}, v.Rates[0].Steps)
	assert.Equal(t, []int{4}, v.Slow.Steps)
	s.Printed(2, 0, []byte("after\n"))
	assert.Equal(t, []string{"before", "— generation 2 —", "after"}, s.tail(0))
	s.finish(errors.New("rank 0 failed"))
	v = look(t, s)
	assert.Equal(t, "failed", v.Job.State)
	assert.Equal(t, "rank 0 failed", v.Job.Text)
}

func TestTail(t *testing.T) {
	s := newState("train")
	s.Printed(1, 3, []byte("10 %\r20 %\r\n\x1b[31mred\x1b[0m \xff\tend\n<b>\n"))
	assert.Equal(t, []string{"20 %", "[31mred[0m �\tend", "<b>"}, s.tail(3))
	assert.Equal(t, []string{}, s.tail(0))
	for i := range 10 * tailLines {
		s.Printed(1, 3, fmt.Appendln(nil, i))
		require.LessOrEqual(t, len(s.tails[3]), 2*tailLines)
	}
	assert.Len(t, s.tail(3), tailLines)
	assert.Equal(t, fmt.Sprint(10*tailLines-1), s.tail(3)[tailLines-1])
	s.Printed(1, 3, []byte(strings.Repeat("x\n", 10*tailLines)+strings.Repeat("é", lineBytes)+"\nlast\n")) // all at once
	require.LessOrEqual(t, len(s.tails[3]), 2*tailLines)
	lines := s.tail(3)
	assert.Equal(t, "last", lines[tailLines-1])
	assert.Equal(t, strings.Repeat("é", lineBytes/2)+" …", lines[tailLines-2])
	assert.Equal(t, "x", lines[0])
}

// With any number of names in a program, the page has a limit.
func TestManyNames(t *testing.T) {
	s := newState("train")
	s.Started(1, 1, 1)
	for i := range 3 * maxSeries {
		s.Shown(1, 0, report(t, live.Report{Values: []live.Values{{Name: fmt.Sprint(i), Steps: []int{1}, Values: []metrics.Number{1}}}}))
	}
	assert.Len(t, look(t, s).Values, maxSeries)
}

// The first cause of a failure is marked, and each restart stays on the page.
func TestFailures(t *testing.T) {
	s := newState("train")
	s.Started(1, 4, 4)
	s.Shown(1, 0, report(t, live.Report{Step: 7}))
	for rank, status := range []int{1, 0, 137} {
		s.Ended(1, rank, status)
	}
	s.Failed(1, 2, 3, "node 1 was lost")
	s.Failed(2, 0, 0, "of another generation")
	v := look(t, s)
	assert.Equal(t, []string{"failed: status 1", "ended", "failed first: status 137", "failed first"}, v.Status)
	assert.Equal(t, []failure{{1, 7, "node 1 was lost"}}, v.Job.Failures)
	s.Started(2, 4, 4)
	v = look(t, s)
	assert.Equal(t, []string{"running", "running", "running", "running"}, v.Status)
	assert.Equal(t, []failure{{1, 7, "node 1 was lost"}}, v.Job.Failures)
	for gen := 2; gen < 2+maxFailures; gen++ {
		s.Failed(gen, 0, 9, "again")
		s.Started(gen+1, 4, 4)
	}
	v = look(t, s)
	assert.Len(t, v.Job.Failures, maxFailures)
	assert.Equal(t, failure{1 + maxFailures, 7, "again"}, v.Job.Failures[maxFailures-1])
}
