package disttest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Soak runs mixed collectives, messages and short-lived groups on one rank for a while. It returns an error if a result is wrong,
// something leaks, or operations get slower. Rank 0 decides when it ends. Each rank compares the resources of its process after a fifth
// of the time and at the end, and the times of operations (see timings).
func Soak(r *dist.Rank, length time.Duration) error {
	p := RandomProgram(1)
	p.Ranks, p.ways, p.mesh = r.World.Size(), 2, [2]int{1, r.World.Size()}
	groups := Must(p.groups(r))
	var log soakLog
	begin, last, timed := time.Now(), time.Now(), true
	for round := 0; ; round++ {
		if err := log.round(r, groups[:], round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if timed {
			OK(log.sample(r))
			last = time.Now()
		}
		past := time.Since(begin)
		if past > length/5 && round >= len(actions) && log.early == nil { // by now each action has allocated what it keeps
			h := holdings()
			log.early = &h
		}
		say := []float64{0, 0} // from rank 0: stop; time the next round
		if r.World.Rank() == 0 {
			say = []float64{number(past > length), number(time.Since(last) > length/samples)}
		}
		OK(r.World.SumFloats(say))
		timed = say[1] > 0
		if say[0] > 0 {
			r.Logf("soak: %s", log.report())
			if length < time.Minute { // too few samples
				return log.leaks()
			}
			return errors.Join(log.leaks(), log.slower())
		}
	}
}

// samples is about how many rounds are timed. It is limited, so that the memory of the soak itself does not look like a leak.
const samples = 5000

type soakLog struct {
	timings
	early *held
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sample times two all-reduces, each after a barrier, first on a new, warmed-up group.
func (l *soakLog) sample(r *dist.Rank) error {
	fresh := r.World.With()
	OK(sum(fresh, tensor.Float32, 8))
	for _, x := range []struct {
		to    *[]float64
		g     *dist.Group
		count int
	}{{&l.newSmall, fresh, 8}, {&l.small, r.World, 8}, {&l.newLarge, fresh, 5000}, {&l.large, r.World, 5000}} {
		OK(r.World.Barrier().Wait())
		begin := time.Now()
		OK(sum(x.g, tensor.Float32, x.count))
		*x.to = append(*x.to, float64(time.Since(begin)))
	}
	return fresh.Close()
}

func (l *soakLog) report() string {
	return fmt.Sprintf("%v; %v, after a fifth %v", &l.timings, holdings(), l.early)
}

// leaks returns an error if the process has more resources than after a fifth of the time, and does not get back to that.
func (l *soakLog) leaks() error {
	if l.early == nil {
		return nil
	}
	return l.early.again()
}

// round does a few operations of each kind.
func (l *soakLog) round(r *dist.Rank, groups []*dist.Group, round int) error {
	for _, g := range groups {
		if g == nil {
			continue
		}
		s := step{what: round % len(actions), dtype: tensor.Float32, count: round % 300, root: round}
		OK(actions[s.what].issue(&s, g, g).finish())
	}
	short := r.World.With()
	OK((call{Operation: &ring, dtype: tensor.Int64, count: 20}).run(short))
	return short.Close()
}

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
