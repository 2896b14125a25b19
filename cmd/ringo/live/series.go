package live

import "github.com/ringo-ml/ringo/train/metrics"

// maxPoints is how many points of a series are kept. If there are more, two neighbours become one point.
const maxPoints = 512

// series has values by step. Each point is the mean of Every values, but the last one may have fewer.
type series struct {
	Name   string           `json:"name"`
	Every  int              `json:"every"`
	Steps  []int            `json:"steps"` // the last step of each mean
	Values []metrics.Number `json:"values"`
	Last   metrics.Number   `json:"last"` // value

	sum   float64 // sum of values that are not in a point yet
	count int
	at    int // the last step
}

// add appends a value. If the step is not after the last one, there was a restart: values from this step on are removed.
func (s *series) add(step int, value float64) {
	if s.Every == 0 {
		s.Every = 1
	}
	if step <= s.at {
		n := len(s.Steps)
		for n > 0 && s.Steps[n-1] >= step {
			n--
		}
		s.Steps, s.Values = s.Steps[:n], s.Values[:n]
		s.sum, s.count = 0, 0
	}
	s.at, s.Last = step, metrics.Number(value)
	s.sum += value
	s.count++
	if s.count < s.Every {
		return
	}
	s.Steps, s.Values = append(s.Steps, step), append(s.Values, metrics.Number(s.sum/float64(s.count)))
	s.sum, s.count = 0, 0
	if len(s.Steps) == maxPoints {
		s.halve()
	}
}

// halve joins each two points into one.
func (s *series) halve() {
	half := len(s.Steps) / 2
	for i := range half {
		s.Steps[i], s.Values[i] = s.Steps[2*i+1], (s.Values[2*i]+s.Values[2*i+1])/2
	}
	s.Steps, s.Values = s.Steps[:half], s.Values[:half]
	s.Every *= 2
}
