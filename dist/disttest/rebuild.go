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
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"AllSurvive", s.rebuildAll},
		{"WithoutLateRank", s.rebuildWithoutLate},
		{"TooFew", s.rebuildTooFew},
		{"Cancelled", s.rebuildCancelled},
		{"SubGroup", s.rebuildSubGroup},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t)
		})
	}
}

// patience is the timeout of tests in which no wait should time out.
const patience = 20 * time.Second

// broken makes the group fail on all ranks: they give different counts.
func broken(g *dist.Group) error {
	err := g.AllReduce(zeros(g, tensor.Float32, 10+g.Rank()), dist.Sum).Wait()
	if err == nil {
		return errors.New("the mismatch was not seen")
	}
	return nil
}

// crossing makes all ranks wait for each other outside the engine. A barrier of the group cannot do this, because a failure may come
// before its end.
type crossing struct{ sync.WaitGroup }

func newCrossing(n int) *crossing {
	c := &crossing{}
	c.Add(n)
	return c
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
	part, err := g.Split(g.Rank()%2, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(sum(part, tensor.Float32, 10), sum(g.With(dist.Name("again")), tensor.Float32, 10)); err != nil {
		return err
	}
	return g.Barrier().Wait() // no rank breaks the group while another still uses a part of it
}

// rebuildAll: a mismatch ends a group, not its ranks. Four generations follow each other; the old ones stay failed.
func (s *suite) rebuildAll(t *testing.T) {
	var worked []*crossing
	for range 5 {
		worked = append(worked, newCrossing(3))
	}
	require.NoError(t, s.start(t, 3, quiet(patience), func(r *dist.Rank) error {
		g := r.World
		for gen := 1; gen < 5; gen++ {
			if _, err := g.Rebuild(context.Background()); err == nil || !strings.Contains(err.Error(), "has not failed") {
				return fmt.Errorf("a group that works was rebuilt: %w", err)
			}
			if err := worked[gen].cross(works(g)); err != nil {
				return err
			}
			forgotten := g.With(dist.Name("forgotten")).Barrier() //discard: it fails, and Rebuild forgives it
			if err := broken(g); err != nil {
				return err
			}
			first := g.Err()
			next, err := g.Rebuild(context.Background())
			if err != nil {
				return err
			}
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

// rebuildWithoutLate: a rank that does not come in time is left out. When it comes, it gets an error, and its old operations fail.
func (s *suite) rebuildWithoutLate(t *testing.T) {
	var over sync.WaitGroup
	over.Add(2)
	var late error
	var took table[time.Duration]
	timeout := time.Second
	require.NoError(t, s.start(t, 3, quiet(timeout), func(r *dist.Rank) error {
		g := r.World
		if g.Rank() != 1 {
			defer over.Done()
		}
		if err := g.Barrier().Wait(); err != nil {
			return err
		}
		if g.Rank() == 1 {
			over.Wait()
			if err := g.Barrier().Wait(); err == nil {
				return errors.New("an operation of a dead generation worked")
			}
			_, late = g.Rebuild(context.Background())
			return nil
		}
		begin := time.Now()
		err := g.AllReduce(zeros(g, tensor.Float32, 10), dist.Sum).Wait()
		if err == nil || !strings.Contains(err.Error(), "rank 1") {
			return fmt.Errorf("without rank 1: %w", err)
		}
		g, err = g.Rebuild(context.Background())
		took.put(r.World.Rank(), time.Since(begin))
		if err == nil && (!slices.Equal(g.Ranks(), []int{0, 2}) || g.Rank() != r.World.Rank()/2) {
			err = fmt.Errorf("rank %d of ranks %v", g.Rank(), g.Ranks())
		}
		if err == nil {
			err = works(g.With(dist.Timeout(patience))) // the short timeout is for the rank that is late
		}
		return err
	}))
	require.ErrorContains(t, late, "rank 1: rebuild seq 1 of group world: generation 1 is over: ranks 0, 2 went on without this rank")
	for _, d := range took.rows {
		assert.Less(t, d, 2*timeout+slack)
	}
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
		if err := broken(g); err != nil {
			return err
		}
		if hurried {
			_, err := g.Rebuild(context.Background())
			if err == nil || !strings.Contains(err.Error(), "of 5 ranks only rank") {
				return fmt.Errorf("two of five: %w", err)
			}
			return nil
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
			if err := g.Barrier().Wait(); err == nil {
				return fmt.Errorf("a barrier of ranks %v", g.Ranks())
			}
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
		if err := tried.cross(err); err != nil {
			return err
		}
		g, err = g.Rebuild(context.Background())
		if err != nil {
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
		if err := worked.cross(errors.Join(works(part), works(r.World))); err != nil {
			return err
		}
		if err := broken(r.World); err != nil {
			return err
		}
		g, err := r.World.Rebuild(context.Background())
		if err != nil {
			return err
		}
		again, err := g.Split(g.Rank()/2, 0)
		if err != nil {
			return err
		}
		return errors.Join(works(g), works(again))
	}))
}

// training is a training loop that handles failures: it goes on from the state of the lowest rank that is left. Stop ends it.
type training struct {
	step  int
	value float64 // the sum over all steps of the ranks' contributions
}

// Train runs the given number of steps. Each step adds the world ranks + 1 of the ranks that are left. After a failure it goes on with a
// new generation. at is called before each step. It returns the last group and the sum.
func Train(ctx context.Context, g *dist.Group, steps int, at func(g *dist.Group, step int)) (*dist.Group, float64, error) {
	s := training{}
	for s.step < steps {
		at(g, s.step)
		err := s.do(g)
		for err != nil {
			if g.Err() == nil {
				return g, 0, err // not a failure of the group: a wrong sum
			}
			if g, err = g.Rebuild(ctx); err != nil {
				return g, 0, err
			}
			err = s.resume(g)
		}
	}
	return g, s.value, nil
}

// do is one step.
func (s *training) do(g *dist.Group) error {
	x := tensor.FromSlice([]float64{float64(g.Ranks()[g.Rank()] + 1), s.value}, 2)
	if err := g.AllReduce(x, dist.Sum).Wait(); err != nil {
		return err
	}
	want := 0.0
	for _, r := range g.Ranks() {
		want += float64(r + 1)
	}
	got := tensor.Data[float64](x)
	if got[0] != want || got[1] != float64(g.Size())*s.value {
		return fmt.Errorf("step %d of generation %d: %v, want %v and %v", s.step, g.Generation(), got, want, float64(g.Size())*s.value)
	}
	s.step, s.value = s.step+1, s.value+want
	return nil
}

// resume copies the state of the first rank.
func (s *training) resume(g *dist.Group) error {
	x := tensor.FromSlice([]float64{float64(s.step), s.value}, 2)
	err := g.Broadcast(x, 0).Wait()
	got := tensor.Data[float64](x)
	s.step, s.value = int(got[0]), got[1]
	return err
}
