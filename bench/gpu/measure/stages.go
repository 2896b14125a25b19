package measure

import (
	"fmt"

	"github.com/ringo-ml/ringo/bench/gpu/ranks"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/pp"
)

// measureStages measures steps of a pipeline. Its bubble is the part of the time of both ranks that one rank does not need.
func measureStages(m *meter) error {
	rep, err := pp.OneF1B(2, ranks.Micros).Check(pp.Costs{F: 1, I: 1, W: 1}, pp.Limit{})
	if err != nil {
		return err
	}
	of, err := m.divided(fmt.Sprintf("1F1B of %d microbatches", ranks.Micros), ranks.Pipeline)
	if err == nil && of[1] > 0 {
		m.ours("bubble, two ranks", "%", []float64{100 * (1 - of[0]/(2*of[1]))})
		m.ours("bubble in the drawing", "%", []float64{100 * rep.Bubble})
	}
	return err
}

// measureRing measures attention, forward and backward.
func measureRing(m *meter) error {
	of, err := m.divided("attention and backward", ranks.Ring)
	if err == nil && of[1] > 0 {
		m.ours("step of two ranks by half of one rank's", "times", []float64{2 * of[1] / of[0]})
	}
	return err
}

// divided measures steps of one rank and of two over NCCL, each with a GPU of its own, and returns the medians of their seconds. With one
// GPU it says so, and without any it does nothing: both are 0 then.
func (m *meter) divided(name string, start func(r *dist.Rank, small bool) (ranks.Work, error)) (medians [2]float64, err error) {
	if _, ok := m.dev.(ranks.GPU); !ok {
		return medians, nil
	}
	gpus, err := cuda.CountGPUs()
	if gpus < 2 {
		m.ours("nothing measured: two ranks need a GPU each, and there is", "GPU", []float64{float64(gpus)})
		return medians, err
	}
	var figures [2][]float64
	for i, who := range []string{"one rank", "two ranks"} {
		var seconds []float64
		err := ranks.OverNCCL(m.device, i+1, i+1, func(r *dist.Rank) error {
			w, err := start(r, m.small)
			if err != nil {
				return err
			}
			per, err := m.timed(r, w.Step)
			if r.World.Rank() == 0 {
				figures[i], seconds = w.Figures, per
			}
			return err
		})
		if err == nil {
			err = bound{1e-3, 0}.near(figures[i], figures[0])
		}
		if err != nil {
			return medians, fmt.Errorf("%s, %s: %w", name, who, err)
		}
		medians[i] = seconds[len(seconds)/2]
		for j := range seconds {
			seconds[j] = 1 / seconds[j]
		}
		m.ours(name+", "+who, "steps/s", seconds)
	}
	return medians, nil
}
