package progress

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/train/metrics"
)

// start starts a Progress that stands at a step, without a terminal. Its lines go to lines.
func start(t *testing.T, done int, lines *[]string) *Progress {
	p := Start(t.Context(), done, func(format string, a ...any) { *lines = append(*lines, fmt.Sprintf(format, a...)) })
	p.bar = nil
	return p
}

// A step that takes long is not silent: it says so, again and again, until it is over.
func TestSlowStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		p := start(t, 0, &lines)
		defer p.Close()
		for step := range 100 {
			p.Run(step + 1)
			time.Sleep(4 * time.Second)
		}
		p.Run(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, lines)
		p.Run(107)
		time.Sleep(5*patience + time.Millisecond)
		synctest.Wait()
		require.Equal(t,
			[]string{"step 107 has run for more than 5s", "step 107 has run for more than 10s", "step 107 has run for more than 20s"}, lines)
		p.Run(108)
		time.Sleep(2*patience + time.Millisecond)
		synctest.Wait()
		require.Equal(t, "step 108 has run for more than 5s", lines[3])
	})
}

// Every few seconds a line says how many steps there were, their speed, and the mean of the first series since the last line.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		p := start(t, 10, &lines)
		defer p.Close()
		loss := &metrics.Series{Name: "loss", Values: []float64{9, 9}}
		series := []*metrics.Series{loss, {Name: "other", Values: []float64{5}}}
		p.Show(10, series)
		p.Until(100)
		time.Sleep(4 * time.Second)
		p.Show(10, series) // nothing is done
		require.Empty(t, lines)
		p.Show(18, nil)
		time.Sleep(time.Second)
		p.Show(19, series) // too soon
		time.Sleep(3 * time.Second)
		loss.Values = append(loss.Values, 1, 2)
		p.Show(26, series)
		time.Sleep(4 * time.Second)
		p.Show(28, series) // no new value: the last one
		loss.Values = append(loss.Values, 4, 6)
		time.Sleep(4 * time.Second)
		p.Show(100, series)
		require.Equal(t, []string{
			"step 18 of 100  training  2 steps/s, 41s left",
			"step 26 of 100  loss 5.2500  2 steps/s, 37s left",
			"step 28 of 100  loss 2.0000  1.5 steps/s, 48s left",
			"step 100 of 100  loss 5.0000  5.625 steps/s, 0s left",
		}, lines)
	})
}

// A nil Progress is one of another rank.
func TestNil(t *testing.T) {
	var p *Progress
	p.Until(3)
	p.Run(1)
	p.Show(2, nil)
	p.Clear()
	p.Close()
}
