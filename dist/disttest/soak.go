package disttest

import (
	"errors"
	"fmt"
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
