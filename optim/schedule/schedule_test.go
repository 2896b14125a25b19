package schedule_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
)

// fixture holds PyTorch's learning rates.
type fixture struct {
	Schedules map[string][]float64 `json:"schedules"`
	Plateaus  struct {
		Values  []*float64           `json:"values"`  // null: NaN
		Factors map[string][]float64 `json:"factors"` // after each of these
	} `json:"plateaus"`
}

func load(t *testing.T) (f fixture) {
	t.Helper()
	b, err := os.ReadFile("testdata/schedules.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &f))
	return f
}

func TestSchedulesMatchTorch(t *testing.T) {
	f := load(t)
	ours := map[string]schedule.Func{
		"linear":        schedule.Linear(0.25, 0.75, 12),
		"decay":         schedule.Linear(1, 0, 30),
		"cosine":        schedule.Cosine(0.1, 29),
		"step":          schedule.StepDecay(7, 0.3),
		"warmup_cosine": schedule.Warmup(10, schedule.Cosine(0, 20)),
	}
	require.Len(t, f.Schedules, len(ours))
	for name, want := range f.Schedules {
		require.Len(t, want, 30)
		for step, lr := range want {
			assert.InDelta(t, lr, 0.4*ours[name](step), 1e-15, "%s, step %d", name, step)
		}
	}
}

func TestPlateausMatchTorch(t *testing.T) {
	f := load(t).Plateaus
	ours := map[string]schedule.Plateau{
		"default":   {},
		"patience":  {Factor: 0.5, Patience: 2},
		"threshold": {Patience: 1, Threshold: 0.05},
		"max":       {Patience: 2, Max: true},
	}
	require.Len(t, f.Factors, len(ours))
	for name, p := range ours {
		require.Less(t, f.Factors[name][len(f.Values)-1], 1., name)
		var values []float64
		for i, v := range f.Values {
			x := math.NaN()
			if v != nil {
				x = *v
			}
			if p.Max {
				x = -x
			}
			values = append(values, x)
			assert.InEpsilon(t, f.Factors[name][i], p.After(values), 1e-14, "%s, value %d", name, i)
		}
	}
	assert.Equal(t, 1., schedule.Plateau{}.After(nil))
	for _, p := range []schedule.Plateau{{Factor: 1}, {Factor: -0.1}, {Patience: -1}, {Threshold: -1}, {Threshold: 2}} {
		assert.Error(t, tensor.Try(func() { p.After(nil) }), "%+v", p)
	}
}

// Warm-up, stable, decay: each part begins where the one before ends, and the last value stays.
func TestStable(t *testing.T) {
	wsd := schedule.Warmup(4, schedule.Stable(3, schedule.Linear(1, 0.5, 2)))
	var got []float64
	for step := range 11 {
		got = append(got, wsd(step))
	}
	assert.Equal(t, []float64{0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 0.75, 0.5, 0.5}, got)
	assert.Equal(t, 1.0, schedule.Stable(1, nil)(9))
}

// The errors of functions for wrong use.
func TestMisuse(t *testing.T) {
	do := func(of, want string, f func()) misuse.Case {
		return misuse.Case{Of: of, Want: want, Do: func() error { f(); return nil }}
	}
	misuse.Check(t, []misuse.Case{
		do("Linear", "schedule: Linear needs at least one step, not 0", func() { schedule.Linear(1, 0, 0) }),
		do("Cosine", "schedule: Cosine needs at least one step, not 0", func() { schedule.Cosine(0, 0) }),
		do("StepDecay", "schedule: StepDecay needs at least one step, not 0", func() { schedule.StepDecay(0, 0.1) }),
		do("Warmup", "schedule: Warmup needs at least one step, not 0", func() { schedule.Warmup(0, nil) }),
		do("Stable", "schedule: Stable needs at least one step, not 0", func() { schedule.Stable(0, nil) }),
		do("Plateau.After", "schedule: {Factor:2 Patience:0 Threshold:0 Max:false}: want a Factor and a Threshold between 0 and 1, and no "+
			"negative Patience", func() { schedule.Plateau{Factor: 2}.After(nil) }),
	}, nil)
}
