package disttest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// everyOperation tests every operation with ranks that are late, slow, stuck elsewhere, or lost. The short form tests one operation of
// each kind: with and without a result on every rank, uneven, without data, with one peer.
func (s *suite) everyOperation(t *testing.T) {
	var scenarios []scenario
	for i, op := range Operations() {
		if s.full || slices.Contains([]string{"allreduce", "broadcast", "alltoallv", "barrier", "send"}, op.Name) {
			scenarios = append(scenarios, scenario{op, i % 3})
		}
	}
	t.Run("Late", func(t *testing.T) { s.late(t, scenarios) })
	t.Run("Stuck", func(t *testing.T) { s.stuck(t, scenarios) })
	t.Run("Returns", func(t *testing.T) {
		for _, m := range scenarios {
			s.returns(t, m)
		}
	})
}

// scenario is an operation, and the rank (of three) to which something happens.
type scenario struct {
	Operation
	victim int
}

// sideBySide calls fn for every operation at once, each in a group of its own of 3 ranks.
func (s *suite) sideBySide(t *testing.T, scenarios []scenario, timeout time.Duration, fn func(i int, g *dist.Group) error) {
	require.NoError(t, s.start(t, 3, quiet(timeout), func(r *dist.Rank) error {
		groups, errs := make([]*dist.Group, len(scenarios)), make([]error, len(scenarios))
		for i, m := range scenarios {
			groups[i] = r.World.With(dist.Name(m.Name))
		}
		var wg sync.WaitGroup
		for i := range scenarios {
			wg.Go(func() { errs[i] = fn(i, groups[i]) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}))
}

// late: a rank comes late, three times, but before the timeout. All operations succeed.
func (s *suite) late(t *testing.T, scenarios []scenario) {
	s.sideBySide(t, scenarios, patience, func(i int, g *dist.Group) error {
		m := scenarios[i]
		for range 3 {
			if g.Rank() == m.victim {
				<-time.After(time.Second / 15)
			}
			if err := m.Run(g, m.victim, 100); err != nil {
				return err
			}
		}
		return g.Barrier().Wait()
	})
}

// stuck: a rank is alive but busy with something outside the group. The others name it after the timeout; it gets the error at its next
// call. On a machine that is so busy that others come too late as well, or all of them before, it is tried with a longer timeout.
func (s *suite) stuck(t *testing.T, scenarios []scenario) {
	timeout := time.Second
	for !s.stuckFor(t, scenarios, timeout, timeout < 16*time.Second) {
		timeout *= 2
	}
}

// Messages are large, so that few of them fill what is between two ranks.
// stuckFor does so with a timeout. With retry, it reports false instead of a failure if a rank that was not stuck came too late.
func (s *suite) stuckFor(t *testing.T, scenarios []scenario, timeout time.Duration, retry bool) bool {
	errs, took := make([]table[error], len(scenarios)), make([]table[time.Duration], len(scenarios))
	starved := make([]error, 3*len(scenarios)) // in the first operation, or later though not stuck
	var engine table[string]
	over := make([]sync.WaitGroup, len(scenarios))
	for i := range over {
		over[i].Add(2)
	}
	s.sideBySide(t, scenarios, timeout, func(i int, g *dist.Group) error {
		m := scenarios[i]
		if g.Rank() != m.victim {
			defer over[i].Done() // also if a network fault already ends the first operation
		}
		err := m.Run(g, m.victim, 10_000)
		if starved[3*i+g.Rank()] = err; err != nil {
			return nil
		}
		engine.put(g.Rank(), g.Engine())
		begin := time.Now()
		if g.Rank() == m.victim {
			s.await(waited(&over[i]), g)
		}
		err = untilError(func() error { return m.Run(g, m.victim, 10_000) }) // a rank that only sends notices at its next call
		took[i].put(g.Rank(), time.Since(begin))
		errs[i].put(g.Rank(), err)
		return nil
	})
	for i := range scenarios {
		for _, err := range errs[i].rows {
			if err != nil && strings.Contains(err.Error(), "no progress within") {
				starved = append(starved, err)
			}
		}
	}
	if err := errors.Join(starved...); err != nil {
		require.True(t, retry, "%v", err)
		t.Logf("once more, with more patience: %v", err)
		return false
	}
	for i, m := range scenarios {
		says := m.Name
		if m.form == messages {
			says = "send|recv|batch"
		}
		for rank, err := range errs[i].rows {
			assert.ErrorContains(t, err, fmt.Sprintf("rank %d did not arrive", m.victim), "rank %d", rank)
			assert.Regexp(t, `: (`+says+`) seq \d+ of group `+m.Name, err.Error(), "rank %d", rank)
			if rank != m.victim {
				reliability.Took(t, 47, engine.rows[rank], timeout+200*time.Millisecond, took[i].rows[rank])
			}
		}
	}
	return true
}

// returns: a rank's function fails. All ranks get the reason.
func (s *suite) returns(t *testing.T, m scenario) {
	var errs table[error]
	do := func(r *dist.Rank) error {
		err := m.Run(r.World, m.victim, 100)
		if err != nil {
			errs.put(r.World.Rank(), err)
		}
		return err
	}
	err := s.end(t, 16, 3, m.victim, func(r *dist.Rank) error { return cmp.Or(do(r), errBoom) },
		func(r *dist.Rank) error { return untilError(func() error { return do(r) }) })
	require.ErrorIs(t, err, errBoom, m.Name)
	require.Len(t, errs.rows, 2, m.Name)
	for _, err := range errs.rows {
		assert.ErrorContains(t, err, fmt.Sprintf("rank %d: boom", m.victim), m.Name)
	}
}
