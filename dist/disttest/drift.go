package disttest

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// timings are the times of two operations, in ns. Each one is measured twice: first on a new group, which is the baseline, then on the
// old one. The two differ only in the group's past.
type timings struct{ small, large, newSmall, newLarge []float64 }

// quantile returns the value below which the part q of x lies.
func quantile(q float64, x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[int(q*float64(len(x)))]
}

// drift is how much longer operations took in the last and in the fourth fifth of the run than in the first, relative to the baseline of
// the same time. A real slowdown shows at every quantile. If ranks often wait for a core, only the median is slow; if they meet while
// both spin, only the first decile is fast. So the smallest ratio counts. The first samples are warm-up and are not used.
func drift(x, base []float64) (last, fourth float64) {
	warm := len(x) / 50
	x, base = x[warm:], base[warm:]
	n := max(len(x)/5, 1)
	fifth := func(q float64, from int) float64 {
		from = max(from, 0)
		return quantile(q, x[from:from+n]) / quantile(q, base[from:from+n])
	}
	last, fourth = math.Inf(1), math.Inf(1)
	for _, q := range []float64{0.1, 0.25, 0.5} {
		first, end := fifth(q, 0), len(x)
		last, fourth = min(last, fifth(q, end-n)/first), min(fourth, fifth(q, end-2*n)/first)
	}
	return last, fourth
}

// slower returns an error if operations have become slower. A real slowdown lasts: load of the machine only at the end does not count.
func (l *timings) slower() error {
	var errs []error
	for _, c := range []struct {
		name    string
		x, base []float64
	}{{"small", l.small, l.newSmall}, {"large", l.large, l.newLarge}} {
		if last, fourth := drift(c.x, c.base); last > 2 && fourth > 1.5 {
			errs = append(errs, fmt.Errorf("%s all-reduces take %.2f times as long as at the beginning", c.name, last))
		}
	}
	return errors.Join(errs...)
}

func (l *timings) String() string {
	small, _ := drift(l.small, l.newSmall)
	large, _ := drift(l.large, l.newLarge)
	return fmt.Sprintf("%d samples; 32 B all-reduce %.1f µs (%.1f on a new group), 20 kB %.1f µs (%.1f); drift ×%.2f and ×%.2f", len(l.small),
		quantile(0.5, l.small)/1e3, quantile(0.5, l.newSmall)/1e3, quantile(0.5, l.large)/1e3, quantile(0.5, l.newLarge)/1e3, small, large)
}
