package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNilRecorderDoesNothing(t *testing.T) {
	var r *Recorder
	r.Add(Span{Name: "x"})
	r.Step(1)
	r.Phase("x")
	r.During("x")
	r.EndStep()
	require.Zero(t, r.Now())
	require.Zero(t, r.Lane(Lane{}))
	require.Nil(t, r.Spans())
	require.Nil(t, r.Lanes())
	require.Zero(t, r.Dropped())
}

func TestRecorderKeepsTheFirstSpans(t *testing.T) {
	r := New(2)
	start := r.Now()
	for i := range 3 {
		r.Add(Span{Name: "allreduce", Track: Comm, Start: start, End: r.Now(), Arg: int64(i)})
	}
	require.Len(t, r.Spans(), 2)
	require.Equal(t, 1, r.Dropped())
	require.Equal(t, int64(1), r.Spans()[1].Arg)
	require.LessOrEqual(t, start, r.Spans()[0].End)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		r.Add(Span{Name: "x"})
		r.Step(1)
		r.During("forward")
		r.Phase("backward")
		r.EndStep()
	}))
}

// If a step is begun again, it goes on. Phases follow each other, and are inside their step.
func TestStepsAndPhases(t *testing.T) {
	r := New(100)
	r.Step(3)
	r.Phase("loader")
	r.Step(3)
	r.Phase("")
	r.During("forward")
	r.During("backward") // it does nothing, because forward is open
	r.Phase("backward")
	r.Step(4) // ends everything
	r.EndStep()
	r.EndStep()
	var names []string
	spans := r.Spans()
	for _, s := range spans {
		names = append(names, s.Name)
		require.Equal(t, Steps, s.Track)
	}
	require.Equal(t, []string{"loader", "forward", "backward", StepName, StepName}, names)
	step := spans[3]
	require.Equal(t, []int64{3, 4}, []int64{step.Arg, spans[4].Arg})
	require.LessOrEqual(t, step.End, spans[4].Start)
	for i, phase := range spans[:3] {
		require.LessOrEqual(t, step.Start, phase.Start)
		require.LessOrEqual(t, phase.End, step.End)
		require.True(t, i == 0 || spans[i-1].End <= phase.Start)
	}
}

func TestLanes(t *testing.T) {
	r := New(1)
	require.Equal(t, int32(1), r.Lane(Lane{Group: "world", Ranks: []int{0, 1}}))
	require.Equal(t, int32(2), r.Lane(Lane{Group: "dp"}))
	require.Equal(t, "dp", r.Lanes()[1].Group)
}
