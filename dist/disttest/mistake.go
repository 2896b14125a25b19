package disttest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// mistake is something after which every rank's error must contain all texts, within the time limit of a row of package reliability.
type mistake struct {
	name  string
	row   int
	bound time.Duration
	texts []string
	make  func(r *dist.Rank) error
}

// fails makes n ranks make a mistake in the world group.
func (s *suite) fails(t *testing.T, row, n int, timeout, bound time.Duration, texts []string, fn func(r *dist.Rank) error) {
	t.Helper()
	a := s.newAttempt(mistake{row: row, bound: bound, texts: texts, make: fn}, n)
	require.NoError(t, s.start(t, n, quiet(timeout), a.run))
	a.check(t)
}

// failEach makes n ranks make several mistakes, each in its own group with these options. The world group stays usable.
func (s *suite) failEach(t *testing.T, n int, mistakes []mistake, opts ...dist.Option) {
	attempts := make([]*attempt, len(mistakes))
	for i, m := range mistakes {
		attempts[i] = s.newAttempt(m, n)
	}
	require.NoError(t, s.start(t, n, quiet(0), func(r *dist.Rank) error {
		for i, a := range attempts {
			g := r.World.With(append([]dist.Option{dist.Name(fmt.Sprint("mistake ", i))}, opts...)...)
			OK(errors.Join(a.run(&dist.Rank{World: g, Device: r.Device}), g.Close()))
		}
		return r.World.Barrier().Wait()
	}))
	for _, a := range attempts {
		t.Run(a.name, a.check)
	}
}

// attempt is the result of a mistake on each rank.
type attempt struct {
	mistake
	n       int
	errs    table[error]
	longest table[time.Duration]
	engine  table[string]
	apart   bool           // the others are other processes: they look after their own errors
	begun   sync.WaitGroup // no rank makes the mistake while another is still in the barrier
	broken  atomic.Bool    // by a network fault
}

func (s *suite) newAttempt(m mistake, n int) *attempt {
	a := &attempt{mistake: m, n: n, apart: s.inOrder}
	if a.begun.Add(n); a.apart {
		a.begun.Add(1 - n)
	}
	return a
}

// run makes the mistake on one rank. It returns an error if the group failed before it.
func (a *attempt) run(r *dist.Rank) error {
	err := r.World.Barrier().Wait()
	if err != nil && a.apart { // a rank that was faster has made the mistake
		a.errs.put(r.World.Rank(), err)
		return nil
	}
	if err != nil {
		a.broken.Store(true)
	}
	a.begun.Done()
	if err != nil {
		return err
	}
	if a.begun.Wait(); a.broken.Load() {
		return r.World.Barrier().Wait()
	}
	begin := time.Now()
	if err = a.make(r); err == nil {
		err = r.World.Barrier().Wait() // a rank that only sends may notice at its next call
	}
	a.longest.put(r.World.Rank(), time.Since(begin))
	a.errs.put(r.World.Rank(), err)
	a.engine.put(r.World.Rank(), r.Engine())
	return nil
}

func (a *attempt) check(t *testing.T) {
	t.Helper()
	if !a.apart {
		require.Len(t, a.errs.rows, a.n)
	}
	for rank := range a.errs.rows {
		if !assert.Error(t, a.errs.rows[rank], "rank %d", rank) {
			continue
		}
		for _, text := range a.texts {
			assert.Contains(t, a.errs.rows[rank].Error(), text, "rank %d", rank)
		}
		reliability.Took(t, a.row, a.engine.rows[rank], a.bound, a.longest.rows[rank])
	}
	t.Logf("%v after %v", a.errs.rows[0], a.longest.rows[0].Round(10*time.Microsecond))
}

// mustFail returns an error if err is nil or has not the text.
func mustFail(what string, err error, text string) error {
	if err == nil || !strings.Contains(err.Error(), text) {
		return fmt.Errorf("%s: %w, without %q", what, err, text)
	}
	return nil
}

// untilError calls fn until it fails.
func untilError(fn func() error) error {
	for {
		if err := fn(); err != nil {
			return err
		}
	}
}

// Different makes one rank call another operation than the rest, for every pair of operations and these numbers of ranks, with algorithms
// forced as by dist.Algo. All ranks must get an error that names both operations, at once. Whatever messages the two algorithms send and
// wait for, the mismatch must be found.
func Different(t *testing.T, start Start, ranks []int, force string) {
	for _, n := range ranks {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			var mistakes []mistake
			for i, a := range collectives() {
				for j, b := range collectives() {
					odd := (i + j) % n
					call := func(r *dist.Rank) error {
						if r.World.Rank() == odd {
							return b.Run(r.World, 0, 40)
						}
						return a.Run(r.World, 0, 40)
					}
					if i < j || i > j && (reliability.Long(t) || (i+j)%2 > 0) {
						name := fmt.Sprintf("%s, rank %d %s", a.Name, odd, b.Name)
						mistakes = append(mistakes, mistake{name, 2, 500 * time.Millisecond, []string{a.Name, b.Name, " vs "}, call})
					}
				}
			}
			(&suite{start: start}).failEach(t, n, mistakes, dist.Algo(force), dist.Timeout(patience))
		})
	}
}
