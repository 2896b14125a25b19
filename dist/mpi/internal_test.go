package mpi

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// A small message that cannot be sent fails the group that it belongs to, and no other: whether the group has failed before, or MPI ends
// the message with an error when nobody waits for it any more.
func TestSmallMessageFailsItsGroup(t *testing.T) {
	broken := errors.New("the network is down")
	for name, failing := range map[string]func(b *endpoint){
		"begun": func(b *endpoint) {
			b.fail(broken, true)
			require.ErrorIs(t, (&transport{b: b}).Send(0, 0, []byte{1}), broken)
		},
		"on its way": func(b *endpoint) {
			r := b.e.newRequest()
			r.of, r.err, r.over = b, broken, true
			b.e.active = append(b.e.active, r)
			b.e.testAll()
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &Engine{processes: []string{"here, pid 1"}, open: map[uint64]*endpoint{}}
			for id := range uint64(2) {
				b := newEndpoint(e, backend.Spec{ID: id + 1, Name: "one", Ranks: []int{0}})
				e.ends, e.open[id+1] = append(e.ends, b), b
			}
			failing(e.ends[0])
			require.ErrorIs(t, e.ends[0].err, broken)
			require.Nil(t, e.ends[1].err)
			require.Empty(t, e.active)
			require.NoError(t, e.frozen)
		})
	}
}

// A group fails by itself when MPI is done with its operations, also with one of which testAll has not heard yet.
func TestFailsAfterAnOperation(t *testing.T) {
	e := &Engine{processes: []string{"here, pid 1"}, open: map[uint64]*endpoint{}}
	b := newEndpoint(e, backend.Spec{ID: 1, Name: "one", Ranks: []int{0}})
	e.ends, e.open[1] = append(e.ends, b), b
	e.active = append(e.active, &request{of: b, writes: true, over: true})
	b.fail(errors.New("on purpose"), true)
	require.ErrorContains(t, b.err, "on purpose")
	require.NoError(t, e.frozen)
}

// A rank that only asks whether one operation is done, again and again, looks at everything else in each fourth turn: nobody else does,
// because the pinned goroutine leaves a rank alone that makes steps.
func TestHurryLeavesTurns(t *testing.T) {
	e, r, others := &Engine{}, &request{over: true}, 0
	for range 12 {
		if !r.hurry(e) {
			others++
		}
	}
	require.Equal(t, 3, others)
}

// The pinned goroutine makes a step every 2 ms if nobody else does. While others do, or hold the lock, it looks more and more rarely.
func TestLook(t *testing.T) {
	e := &Engine{away: "a call"} // so that a step does nothing
	e.stepAt = time.Now().Add(time.Hour)
	require.Equal(t, 2*calm, e.look(calm))
	require.Equal(t, calmest, e.look(calmest))
	e.stepAt = time.Time{}
	require.Equal(t, calm, e.look(calmest))
	e.mu.Lock()
	require.Equal(t, 2*calm, e.look(calm))
}

// Who makes steps for long lets others run now and then, before Go makes it.
func TestOthersHaveATurn(t *testing.T) {
	e := &Engine{}
	b := &endpoint{e: e, request: &request{over: true}}
	for _, c := range []struct {
		turnAt time.Time
		want   bool
	}{{time.Now().Add(-2 * stretch), true}, {time.Now().Add(time.Hour), false}} {
		e.turnAt, e.woken = c.turnAt, false
		e.step(b)
		require.Equal(t, c.want, e.woken)
	}
}
