package disttest

import (
	"errors"
	"fmt"
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
// of the same time. What has become slower is never fast, and ranks that must wait for a core often are: so the fast
// samples count, not the median. The very first samples warm up.
func drift(x, base []float64) (last, fourth float64) {
	warm := len(x) / 50
	x, base = x[warm:], base[warm:]
	n := max(len(x)/5, 1)
	fifth := func(from int) float64 {
		from = max(from, 0)
		return quantile(0.1, x[from:from+n]) / quantile(0.1, base[from:from+n])
	}
	first, end := fifth(0), len(x)
	return fifth(end-n) / first, fifth(end-2*n) / first
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
