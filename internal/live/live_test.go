package live

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor/memory"
)

func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waited time.Duration
		r := NewRecorder(func() time.Duration { return waited })
		time.Sleep(time.Second) // before the loop: not a part of a step
		r.Begin(10, 13)
		for step := 11; step <= 12; step++ {
			time.Sleep(30 * time.Millisecond)
			waited += time.Duration(step) * time.Millisecond
			r.Step(64, 640)
			require.NoError(t, r.Write(step, time.Now(), map[string]float64{"loss": 1 / float64(step), "accuracy": math.NaN()}))
		}
		var got Report
		r.Take(&got)
		text, err := got.Encode()
		require.NoError(t, err)
		assert.JSONEq(t, `{"step": 12, "total": 13, "steps": 2, "elapsed": 60000, "samples": 128, "tokens": 1280, "took": [30000, 30000], "own": [19000, 18000], "values": [
			{"name": "accuracy", "steps": [11, 12], "values": ["NaN", "NaN"]},
			{"name": "loss", "steps": [11, 12], "values": [0.09090909090909091, 0.08333333333333333]}]}`, string(text))
		back, err := Decode(text)
		require.NoError(t, err)
		assert.Equal(t, got.Own, back.Own)
		assert.True(t, math.IsNaN(float64(back.Values[0].Values[1])))

		time.Sleep(time.Millisecond)
		r.Step(0, 0)
		got = Report{}
		r.Take(&got) // only what is new
		assert.Equal(t, Report{Step: 13, Total: 13, Steps: 1, Elapsed: 1000, Took: []int{1000}, Own: []int{1000}, Values: []Values{}}, got)
		require.NoError(t, r.Close())
	})
}

// A report has a limit for which the connection has room, whatever a loop does. The newest values stay.
func TestBounds(t *testing.T) {
	r := NewRecorder(func() time.Duration { return 0 })
	r.Begin(1e9, 2e9)
	values := map[string]float64{}
	for i := range 2 * MaxNames {
		values[strings.Repeat("\x01", 2*MaxName)[i:]] = -math.MaxFloat64 / 3
	}
	for s := range 3 * MaxSteps {
		r.last = r.last.Add(-time.Hour) // the longest likely time
		r.Step(1e6, 1e9)
		require.NoError(t, r.Write(1e9+s, time.Now(), values))
	}
	report := Report{Memory: map[string]memory.Bytes{}}
	for k := memory.Uncounted; k <= memory.Other; k++ {
		report.Memory[k.String()] = memory.Bytes{Live: math.MaxInt, Peak: math.MaxInt}
	}
	for range 16 {
		report.Comm = append(report.Comm, Op{"reducescatterv", math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxInt64, math.MaxInt64})
	}
	r.Take(&report)
	require.Len(t, report.Took, MaxSteps)
	require.Equal(t, 3*MaxSteps, report.Steps)
	points := 0
	for _, v := range report.Values {
		assert.LessOrEqual(t, len(v.Name), MaxName)
		points += len(v.Steps)
		assert.Equal(t, int(1e9)+3*MaxSteps-1, v.Steps[len(v.Steps)-1])
	}
	assert.Equal(t, MaxPoints, points)
	text, err := report.Encode()
	require.NoError(t, err)
	assert.LessOrEqual(t, len(text), 64<<10)
}

func TestDecode(t *testing.T) {
	many := Report{Took: make([]int, 2*MaxSteps), Own: make([]int, MaxSteps+1), Values: make([]Values, 2*MaxNames)}
	many.Values[0] = Values{Name: strings.Repeat("x", 100), Steps: []int{1, 2}}
	text, err := json.Marshal(many)
	require.NoError(t, err)
	r, err := Decode(text)
	require.NoError(t, err)
	assert.Len(t, r.Took, MaxSteps)
	assert.Len(t, r.Own, MaxSteps)
	assert.Len(t, r.Values, MaxNames)
	assert.Len(t, r.Values[0].Name, MaxName)
	assert.Empty(t, r.Values[0].Steps)
	_, err = Decode([]byte(`{"step": "x"}`))
	assert.Error(t, err)
}

// If nobody watches, nothing happens. If somebody does, a step allocates nothing.
func TestSteadyStep(t *testing.T) {
	var none *Recorder
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		none.Begin(0, 1)
		none.Step(3, 4)
	}))
	require.NoError(t, none.Write(1, time.Now(), nil))
	r := NewRecorder(func() time.Duration { return 0 })
	r.Begin(0, 0)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { r.Step(3, 4) }))
}

func TestNumber(t *testing.T) {
	for _, x := range []float64{0, -0.1, 1e300, 5e-324, 1. / 3, math.NaN(), math.Inf(1), math.Inf(-1)} {
		text, err := json.Marshal(Number(x))
		require.NoError(t, err)
		var y Number
		require.NoError(t, json.Unmarshal(text, &y))
		require.Equal(t, math.Float64bits(x), math.Float64bits(float64(y)), "%s", text)
	}
	var y Number
	require.Error(t, json.Unmarshal([]byte(`"x"`), &y))
}
