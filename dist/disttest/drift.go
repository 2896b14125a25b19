package disttest

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// timings are how long two operations took, in ns, and each time right before them the same ones on a group that was just made:
// the baseline, which has everything in common with them but the past.
type timings struct{ small, large, newSmall, newLarge []float64 }

// quantile returns the value below which the part q of x lies.
func quantile(q float64, x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[int(q*float64(len(x)))]
}

// drift is how much longer operations took in the last and in the fourth fifth than in the first, in units of the baseline
// of the same time. What has become slower is so at every quantile: ranks that must wait for a core often are slow in the
// median, and ranks that meet while both spin are fast in the first decile. So the smallest ratio counts. The very first
// samples warm up.
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

// slower returns an error when operations have become slower. What piles up goes on to slow them down: a burst of load at the
// end is no drift.
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
