package disttest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Soak runs mixed collectives, messages and short-lived groups on one rank for a while, and returns an error when a result
// is wrong, something leaks, or operations get slower. Rank 0 decides when it is over and compares: medians of the first and
// last fifth, in units of a piece of computation that is measured in between; what the process holds after a fifth, and at
// the end.
func Soak(r *dist.Rank, length time.Duration) error {
	p := RandomProgram(1)
	p.Ranks, p.ways, p.mesh = r.World.Size(), 2, [2]int{1, r.World.Size()}
	groups, err := p.groups(r)
	if err != nil {
		return err
	}
	var log soakLog
	begin, last, timed := time.Now(), time.Now(), true
	for round := 0; ; round++ {
		if err := log.round(r, groups[:], round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if timed {
			if err := log.sample(r); err != nil {
				return err
			}
			last = time.Now()
		}
		past := time.Since(begin)
		if past > length/5 && log.early == nil {
			h := holdings()
			log.early = &h
		}
		say := []float64{0, 0} // rank 0: it is over; the next round is timed
		if r.World.Rank() == 0 {
			say = []float64{number(past > length), number(time.Since(last) > length/samples)}
		}
		if err := r.World.SumFloats(say); err != nil {
			return err
		}
		timed = say[1] > 0
		if say[0] > 0 {
			r.Logf("soak: %s", log.report())
			return log.verdict(length)
		}
	}
}

// samples is about how many rounds are timed: what the soak remembers must not look like a leak.
const samples = 5000

type soakLog struct {
	base, small, large []float64 // ns of each round
	early              *held
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// sample times a piece of computation, and two all-reduces, each behind a barrier.
func (l *soakLog) sample(r *dist.Rank) error {
	for _, x := range []struct {
		to *[]float64
		do func() error
	}{
		{&l.base, func() error { return work(20_000) }},
		{&l.small, func() error { return reduceOne(r, r.World, 0, tensor.Float32, 8) }},
		{&l.large, func() error { return reduceOne(r, r.World, 0, tensor.Float32, 5000) }},
	} {
		if err := r.World.Barrier().Wait(); err != nil {
			return err
		}
		begin := time.Now()
		if err := x.do(); err != nil {
			return err
		}
		*x.to = append(*x.to, float64(time.Since(begin)))
	}
	return nil
}

// round does a bit of everything.
func (l *soakLog) round(r *dist.Rank, groups []*dist.Group, round int) error {
	for _, g := range groups {
		if g == nil {
			continue
		}
		s := step{what: round % len(actions), dtype: tensor.Float32, count: round % 300, root: round}
		w, check := actions[s.what].run(&s, r, g)
		if err := w.Wait(); err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
	}
	short := r.World.With()
	w, check := actRing(&step{dtype: tensor.Int64, count: 20}, r, short)
	if err := w.Wait(); err != nil {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	return short.Close()
}

// work computes for a while.
func work(n uint64) error {
	x := n
	for i := range n {
		x = x*6364136223846793005 + i
	}
	if x == 0 {
		return errors.New("never") // the compiler cannot know
	}
	return nil
}

func median(x []float64) float64 {
	x = slices.Clone(x)
	slices.Sort(x)
	return x[len(x)/2]
}

// drift is how much longer the last fifth took than the first one; the very first rounds warm up.
func drift(x []float64) float64 {
	x = x[len(x)/50:]
	n := max(len(x)/5, 1)
	return median(x[len(x)-n:]) / median(x[:n])
}

func (l *soakLog) report() string {
	return fmt.Sprintf("%d samples; 32 B all-reduce %.1f µs, 20 kB %.1f µs; drift ×%.2f and ×%.2f, of computation ×%.2f; %v",
		len(l.base), median(l.small)/1e3, median(l.large)/1e3, drift(l.small), drift(l.large), drift(l.base), holdings())
}

func (l *soakLog) verdict(length time.Duration) error {
	if l.early == nil {
		return nil
	}
	if err := l.early.compare(holdings()); err != nil {
		return err
	}
	for name, x := range map[string][]float64{"small": l.small, "large": l.large} {
		if d := drift(x) / max(drift(l.base), 1); length >= time.Minute && d > 2 {
			return fmt.Errorf("%s all-reduces take %.2f times as long as at the beginning", name, d)
		}
	}
	return nil
}

// held is what the process holds.
type held struct{ goroutines, files, mappings, heap int }

func holdings() held {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	h := held{goroutines: runtime.NumGoroutine(), heap: int(m.HeapAlloc)}
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.files = len(names)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err == nil {
		h.mappings = bytes.Count(maps, []byte("\n"))
	}
	return h
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, %d mappings, heap %d KiB", h.goroutines, h.files, h.mappings, h.heap>>10)
}

// compare returns an error when later holds more, but for what a moment may need: a goroutine or two that ends, the mappings
// of threads and of the heap.
func (h held) compare(later held) error {
	if later.goroutines > h.goroutines+8 || later.files > h.files+4 || later.mappings > h.mappings+40 || later.heap > h.heap+h.heap/2+(8<<20) {
		return fmt.Errorf("something leaks: %v after a fifth, %v at the end", h, later)
	}
	return nil
}
