package local_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/local"
)

// bug changes what an engine does.
type bug struct {
	drop     uint64                          // one of so many blocks is lost; 0: none
	progress func(rank int, err error) error // changes the error of Progress
	stuck    bool                            // rank 1 does not wake up when a peer fails
	early    bool                            // operations count as done when they are issued
}

// buggyEngine is a rank's engine with a bug.
type buggyEngine struct {
	*local.Engine
	bug  *bug
	rank int
}

func (e buggyEngine) Open(s backend.Spec) (backend.Backend, error) {
	be, err := e.Engine.Open(s)
	if err != nil {
		return nil, err
	}
	return &buggyEnd{End: be.(disttest.End), bug: e.bug, rank: e.rank}, nil
}

func (e buggyEngine) Park(ctx context.Context) error {
	if e.bug.stuck && e.rank == 1 {
		<-make(chan struct{}) // forever
	}
	return e.Engine.Park(ctx)
}

type buggyEnd struct {
	disttest.End
	bug    *bug
	rank   int
	issued uint64
}

func (b *buggyEnd) Issue(op *backend.Op) error {
	b.issued = op.Seq
	return b.End.Issue(op)
}

func (b *buggyEnd) Progress() (uint64, error) {
	done, err := b.End.Progress()
	if err != nil && b.bug.progress != nil {
		err = b.bug.progress(b.rank, err)
	}
	if b.bug.early && b.rank == 0 {
		done = b.issued
	}
	return done, err
}

// with returns a runner of programs on an engine with a bug.
func (b *bug) with(p *disttest.Program) *disttest.Outcome {
	hub := local.NewHub(p.Ranks)
	var blocks atomic.Uint64
	hub.SetFault(func(int, int, int) bool { return b.drop > 0 && blocks.Add(1)%b.drop == 0 })
	engines := enginesOf(hub, p.Ranks)
	for r, e := range engines {
		engines[r] = buggyEngine{e.(*local.Engine), b, r}
	}
	return onEngines(p, engines)
}

// blames changes the rank or other fields that an error names.
func blames(change func(e *backend.Error)) func(int, error) error {
	return func(_ int, err error) error {
		var e *backend.Error
		if !errors.As(err, &e) {
			return err
		}
		other := *e
		change(&other)
		return &other
	}
}

// The random programs find bugs: each bug here makes some of them fail, and without a bug TestRandomPrograms passes.
func TestProgramsFindBugs(t *testing.T) {
	const programs = 120
	for _, c := range []struct {
		name, says string
		bug        bug
	}{
		{"a block is lost", "WRONG RESULT", bug{drop: 5}},
		{"an operation is over too early", "WRONG RESULT", bug{early: true}},
		{"the wrong rank is blamed", "fails without a cause", bug{progress: blames(func(e *backend.Error) { e.Rank = (e.Rank + 1) % 2 })}},
		{"the cause is forgotten", "fails without a cause", bug{progress: blames(func(e *backend.Error) { e.Cause = errors.New("lost") })}},
		{"ranks say different things", "another rank", bug{progress: func(rank int, err error) error {
			return blames(func(e *backend.Error) { e.Cause = fmt.Errorf("seen by %d: %w", rank, e.Cause) })(rank, err)
		}}},
		{"a rank never wakes up", "deadlock", bug{stuck: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := 0
			for seed := range uint64(programs) {
				_, err := disttest.Check(t, disttest.RandomProgram(seed+1), c.bug.with)
				if err == nil {
					continue
				}
				found++
				if strings.Contains(err.Error(), c.says) { // a bug may also break the making of groups, with another error
					t.Logf("program %d says it, %d found the bug so far", seed+1, found)
					return
				}
			}
			assert.Fail(t, "not found", "no program says %q, %d say something else", c.says, found)
		})
	}
}
