package disttest

import (
	"context"
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
	"github.com/ringo-ml/ringo/tensor"
)

// rebuild makes new generations of failed groups.
func (s *suite) rebuild(t *testing.T) {
	for name, test := range map[string]func(t *testing.T){"AllSurvive": s.rebuildAll, "WithoutLateRank": s.rebuildWithoutLate,
		"TooFew": s.rebuildTooFew, "Cancelled": s.rebuildCancelled, "SubGroup": s.rebuildSubGroup} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// patience is the timeout of tests in which no wait should time out.
const patience = 20 * time.Second

// broken makes the group fail on all ranks: they give different counts.
func broken(g *dist.Group) error {
	return mustFail("a mismatch", sum(g, tensor.Float32, 10+g.Rank()), " vs ")
}

// crossing makes all ranks wait for each other outside the engine. A barrier of the group cannot do this, because a failure may come
// before its end.
type crossing struct{ sync.WaitGroup }

func newCrossing(n int) *crossing { return &newCrossings(1, n)[0] }

func newCrossings(count, n int) []crossing {
	all := make([]crossing, count)
	for i := range all {
		all[i].Add(n)
	}
	return all
}

// cross is called by each rank with the error of what it did before; a rank that failed does not wait.
func (c *crossing) cross(err error) error {
	c.Done()
	if err == nil {
		c.Wait()
	}
	return err
}

// works uses a group, and groups made from it, with every kind of operation.
func works(g *dist.Group) error {
	for _, op := range Operations() {
		if err := op.Run(g, g.Size()-1, 50); err != nil {
			return fmt.Errorf("%s in generation %d: %w", op.Name, g.Generation(), err)
		}
	}
	part := Must(g.Split(g.Rank()%2, 0))
	return errors.Join(sum(part, tensor.Float32, 10), sum(g.With(dist.Name("again")), tensor.Float32, 10),
		g.Barrier().Wait()) // no rank breaks the group while another still uses a part of it
}

// rebuildAll: a mismatch ends a group, not its ranks. Four generations follow each other; the old ones stay failed.
func (s *suite) rebuildAll(t *testing.T) {
	worked := newCrossings(5, 3)
	require.NoError(t, s.start(t, 3, quiet(patience), func(r *dist.Rank) error {
		g := r.World
		for gen := 1; gen < 5; gen++ {
			_, err := g.Rebuild(context.Background())
			OK(worked[gen].cross(errors.Join(mustFail("rebuilding a group that works", err, "has not failed"), works(g))))
			forgotten := g.With(dist.Name("forgotten")).Barrier() //discard: it fails, and Rebuild forgives it
			OK(broken(g))
			first := g.Err()
			next := Must(g.Rebuild(context.Background()))
			if next.Generation() != gen+1 || next.Size() != 3 || next.Rank() != g.Rank() || next.Name() != "world" {
				return fmt.Errorf("generation %d: rank %d of %d in %s", next.Generation(), next.Rank(), next.Size(), next.Name())
			}
			if err := g.Barrier().Wait(); !same2(err, first) {
				return fmt.Errorf("the old group after Rebuild: %w", err)
			}
			_ = forgotten
			g = next
		}
		return works(g)
	}))
}

// rebuildWithoutLate: a rank that does not come in time is left out. When it comes, it gets an error, and its old operations fail. As in
// stuck, it is tried with a longer timeout where the others come too late as well.
func (s *suite) rebuildWithoutLate(t *testing.T) {
	timeout := time.Second
	for !s.rebuiltWithoutLate(t, timeout, timeout < 16*time.Second) {
		timeout *= 2
	}
}

func (s *suite) rebuiltWithoutLate(t *testing.T, timeout time.Duration, retry bool) bool {
	var over sync.WaitGroup
	over.Add(2)
	var late error
	var took table[time.Duration]
	err := s.start(t, 3, quiet(timeout), func(r *dist.Rank) error {
		g := r.World
		if g.Rank() != 1 {
			defer over.Done()
		}
		OK(g.Barrier().Wait())
		if g.Rank() == 1 {
			over.Wait()
			err := mustFail("an operation of a dead generation", g.Barrier().Wait(), "")
			_, late = g.Rebuild(context.Background())
			return err
		}
		begin := time.Now()
		OK(mustFail("without rank 1", sum(g, tensor.Float32, 10), "rank 1"))
		g, err := g.Rebuild(context.Background())
		took.put(r.World.Rank(), time.Since(begin))
		if err == nil && (!slices.Equal(g.Ranks(), []int{0, 2}) || g.Rank() != r.World.Rank()/2) {
			err = fmt.Errorf("rank %d of ranks %v", g.Rank(), g.Ranks())
		}
		if err == nil {
			err = works(g.With(dist.Timeout(patience))) // the short timeout is for the rank that is late
		}
		return err
	})
	if retry && err != nil && strings.Contains(err.Error(), "no progress within") {
		t.Logf("once more, with more patience: %v", err)
		return false
	}
	require.NoError(t, err)
	require.ErrorContains(t, late, "rank 1: rebuild seq 1 of group world: generation 1 is over: ranks 0, 2 went on without this rank")
	for _, d := range took.rows {
		assert.Less(t, d, 2*timeout+slack)
	}
	return true
}

// rebuildTooFew: a minority with a short timeout cannot go on without the majority.
func (s *suite) rebuildTooFew(t *testing.T) {
	var over sync.WaitGroup
	over.Add(2)
	require.NoError(t, s.start(t, 5, quiet(time.Second), func(r *dist.Rank) error {
		g := r.World
		hurried := g.Rank() == 1 || g.Rank() == 4
		if hurried {
			defer over.Done()
		}
		OK(broken(g))
		if hurried {
			_, err := g.Rebuild(context.Background())
			return mustFail("two of five", err, "of 5 ranks only rank")
		}
		over.Wait()
		for range 3 { // the news that a rank gave up may come too late; then there is one more generation
			var err error
			if g, err = g.Rebuild(context.Background()); err != nil {
				return err
			}
			if slices.Equal(g.Ranks(), []int{0, 2, 3}) {
				return works(g.With(dist.Timeout(patience)))
			}
			OK(mustFail(fmt.Sprint("a barrier of ranks ", g.Ranks()), g.Barrier().Wait(), ""))
		}
		return fmt.Errorf("ranks %v", g.Ranks())
	}))
}

// rebuildCancelled: ctx ends the wait; a later call succeeds with the others.
func (s *suite) rebuildCancelled(t *testing.T) {
	tried := newCrossing(2)
	require.NoError(t, s.start(t, 2, quiet(10*time.Second), func(r *dist.Rank) error {
		g := r.World
		err := broken(g)
		if g.Rank() == 0 && err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
			defer cancel()
			if _, again := g.Rebuild(ctx); !errors.Is(again, context.DeadlineExceeded) {
				err = fmt.Errorf("cancelled: %w", again)
			}
		}
		OK(tried.cross(err))
		if g, err = g.Rebuild(context.Background()); err != nil {
			return err
		}
		return works(g)
	}))
}

// rebuildSubGroup: a subgroup is rebuilt while the world group works; then the world, whose subgroups also get new generations.
func (s *suite) rebuildSubGroup(t *testing.T) {
	worked := newCrossing(4)
	require.NoError(t, s.start(t, 4, quiet(patience), func(r *dist.Rank) error {
		part, err := r.World.Split(r.World.Rank()/2, 0)
		if err == nil {
			err = broken(part)
		}
		if err != nil {
			return err
		}
		if part, err = part.Rebuild(context.Background()); err != nil {
			return err
		}
		OK(worked.cross(errors.Join(works(part), works(r.World))))
		OK(broken(r.World))
		g := Must(r.World.Rebuild(context.Background()))
		again := Must(g.Split(g.Rank()/2, 0))
		return errors.Join(works(g), works(again))
	}))
}

// Train runs the given number of steps of a training loop that handles failures: it goes on from the state of the lowest rank that is
// left, with a new generation. Each step adds the world ranks + 1 of the ranks that are left. at is called before each step. It returns
// the last group and the sum.
func Train(ctx context.Context, g *dist.Group, steps int, at func(g *dist.Group, step int)) (*dist.Group, float64, error) {
	state := []float64{0, 0} // the step, and the sum
	for int(state[0]) < steps {
		at(g, int(state[0]))
		err := trainStep(g, state)
		for err != nil {
			if g.Err() == nil {
				return g, 0, err // not a failure of the group: a wrong sum
			}
			if g, err = g.Rebuild(ctx); err != nil {
				return g, 0, err
			}
			err = g.Broadcast(tensor.FromSlice(state, 2), 0).Wait()
		}
	}
	return g, state[1], nil
}

func trainStep(g *dist.Group, state []float64) error {
	got, want := []float64{float64(g.GlobalRank() + 1), state[1]}, 0.0
	if err := g.SumFloats(got); err != nil {
		return err
	}
	for _, r := range g.Ranks() {
		want += float64(r + 1)
	}
	if all := float64(g.Size()) * state[1]; got[0] != want || got[1] != all {
		return fmt.Errorf("step %v of generation %d: %v, want %v and %v", state[0], g.Generation(), got, want, all)
	}
	state[0], state[1] = state[0]+1, state[1]+want
	return nil
}
