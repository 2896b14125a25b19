package disttest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// everyOperation meets ranks that are late, slow, stuck in something else, or gone, in every operation; in the short form,
// in one of each kind: with and without a result on every rank, uneven, without data, with one peer.
func (s *suite) everyOperation(t *testing.T) {
	t.Parallel()
	for i, op := range Operations() {
		if !Long() && !slices.Contains([]string{"allreduce", "broadcast", "alltoallv", "barrier", "send"}, op.Name) {
			continue
		}
		victim := i % 3
		t.Run(op.Name, func(t *testing.T) {
			t.Parallel()
			t.Run("Late", func(t *testing.T) { s.late(t, op, victim) })
			t.Run("Stuck", func(t *testing.T) { s.stuck(t, op, victim) })
			t.Run("Returns", func(t *testing.T) { s.returns(t, op, victim) })
		})
	}
}

// late: a rank comes late, three times, and before the timeout. Nobody minds.
func (s *suite) late(t *testing.T, op Operation, victim int) {
	timeout := time.Second + slack
	require.NoError(t, s.start(t, 3, quiet(timeout), func(r *dist.Rank) error {
		for range 3 {
			if r.World.Rank() == victim {
				<-time.After(time.Second / 15)
			}
			if err := op.Run(r.World, victim, 100); err != nil {
				return err
			}
		}
		return r.World.Barrier().Wait()
	}))
}

// stuck: a rank is alive and busy with something that is none of the group's business. The others name it after the
// timeout; it gets the error at its next call.
func (s *suite) stuck(t *testing.T, op Operation, victim int) {
	timeout := time.Second
	var errs table[error]
	var took table[time.Duration]
	var over sync.WaitGroup
	over.Add(2)
	require.NoError(t, s.start(t, 3, quiet(0), func(r *dist.Rank) error {
		if err := op.Run(r.World, victim, 100); err != nil {
			return err
		}
		g := r.World.With(dist.Name("hasty"), dist.Timeout(timeout))
		var err error
		begin := time.Now()
		if r.World.Rank() == victim {
			over.Wait()
		}
		for err == nil { // who only sends notices at its next call
			err = op.Run(g, victim, 100)
		}
		took.put(r.World.Rank(), time.Since(begin))
		errs.put(r.World.Rank(), err)
		if r.World.Rank() != victim {
			over.Done()
		}
		return nil
	}))
	for rank, err := range errs.rows {
		assert.ErrorContains(t, err, fmt.Sprintf("rank %d did not arrive", victim), "rank %d", rank)
		assert.Regexp(t, `: (`+says(op.Name)+`) seq \d+ of group hasty`, err.Error(), "rank %d", rank)
		if rank != victim {
			reliability.Took(t, 47, s.engine(t), timeout+200*time.Millisecond, took.rows[rank])
		}
	}
}

// says is what an error may call an operation.
func says(name string) string {
	if slices.Contains([]string{"send", "recv", "batch"}, name) {
		return "send|recv|batch"
	}
	return name
}

// returns: a rank's function fails. Everybody hears why.
func (s *suite) returns(t *testing.T, op Operation, victim int) {
	var errs table[error]
	begin := time.Now()
	err := s.start(t, 3, quiet(0), func(r *dist.Rank) error {
		for {
			if err := op.Run(r.World, victim, 100); err != nil {
				errs.put(r.World.Rank(), err)
				return err
			}
			if r.World.Rank() == victim {
				return errBoom
			}
		}
	})
	require.ErrorIs(t, err, errBoom)
	require.Len(t, errs.rows, 2)
	for _, err := range errs.rows {
		assert.ErrorContains(t, err, fmt.Sprintf("rank %d: boom", victim))
	}
	reliability.Took(t, 16, s.engine(t), time.Second, time.Since(begin))
}
