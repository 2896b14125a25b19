package disttest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// sumIs sums x over a group, and compares the result.
func sumIs(g *dist.Group, x, want float64) error {
	v := []float64{x}
	if err := g.SumFloats(v); err != nil || v[0] != want {
		return fmt.Errorf("the sum of %v over group %s is %v, want %v: %w", x, g.Name(), v[0], want, err)
	}
	return nil
}

// isMadeOf checks, by a sum, which of n ranks are members of a group.
func isMadeOf(g *dist.Group, me, n int, member func(rank int) bool) error {
	want := 0.0
	for i := range n {
		if member(i) {
			want += math.Exp2(float64(i))
		}
	}
	return sumIs(g, math.Exp2(float64(me)), want)
}

// groups uses many groups, disjoint and overlapping, made by Split and With.
func (s *suite) groups(t *testing.T) {
	for _, n := range s.sizes() {
		s.ok(t, n, func(r *dist.Rank) error {
			me := r.World.Rank()
			for ways := 1; ways <= min(n, 3); ways++ {
				part := Must(r.World.Split(me%ways, -me)) // reversed order
				OK(errors.Join(isMadeOf(part, me, n, func(i int) bool { return i%ways == me%ways }), part.Close()))
				if part.Ranks()[part.Size()-1] != me%ways {
					return fmt.Errorf("split %d ways: %v", ways, part.Ranks())
				}
			}
			first, err := r.World.Split(min(me-1, 0), 0) // rank 0 is in no group
			if err != nil || (first == nil) != (me == 0) {
				return fmt.Errorf("negative color: %v, %v", first, err)
			}
			named := r.World.With(dist.Name("mine"))
			if named.Name() != "mine" {
				return fmt.Errorf("name %s", named.Name())
			}
			return named.Barrier().Wait()
		})
	}
}

// mesh checks every group of a mesh with 3 axes by the sum of its members.
func (s *suite) mesh(t *testing.T) {
	s.ok(t, 8, func(r *dist.Rank) error {
		m := Must(r.Mesh("dp=2,ep=2,tp=2"))
		me := r.World.Rank()
		for _, c := range []struct {
			axes []string
			bits int // bits of the rank that differ within the group
		}{{[]string{"dp"}, 4}, {[]string{"ep"}, 2}, {[]string{"tp"}, 1}, {[]string{"dp", "tp"}, 5}, {[]string{"ep", "dp"}, 6}, {nil, 0},
			{[]string{"dp", "ep", "tp"}, 7}} {
			g := m.Group(c.axes...)
			if err := isMadeOf(g, me, 8, func(i int) bool { return i&^c.bits == me&^c.bits }); err != nil || g != m.Group(c.axes...) {
				return fmt.Errorf("axes %v: %w", c.axes, err)
			}
		}
		if m.Coord("dp") != me/4 || m.Coord("tp") != me%2 || m.Size("ep") != 2 {
			return fmt.Errorf("coordinates of rank %d: %d %d", me, m.Coord("dp"), m.Coord("tp"))
		}
		if _, err := r.Mesh("dp=3,tp=2"); err == nil {
			return fmt.Errorf("a mesh of 6 on 8 ranks was accepted")
		}
		return nil
	})
}

// inFlight issues 32 operations on two overlapping groups and waits for them in another order on each rank.
func (s *suite) inFlight(t *testing.T) {
	rounds := 3
	if s.long() {
		rounds = 10
	}
	for _, n := range s.sizes() {
		s.ok(t, n, func(r *dist.Rank) error {
			other := r.World.With()
			rng := rand.New(rand.NewPCG(7, uint64(r.World.Rank())))
			for range rounds {
				var flying [32]pending
				for i := range flying {
					c := call{Operation: operation("allreduce"), dtype: tensor.Float64, count: big(1 + i*i*40), salt: i}
					flying[i] = c.on([]*dist.Group{r.World, other}[i%2]).issue()
				}
				for _, i := range rng.Perm(len(flying)) {
					if err := flying[i].finish(); err != nil {
						return fmt.Errorf("operation %d: %w", i, err)
					}
				}
			}
			return nil
		})
	}
}

// backpressure issues more operations than a lane holds.
func (s *suite) backpressure(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		var flying [300]pending
		for i := range flying {
			flying[i] = call{Operation: operation("allreduce"), dtype: tensor.Int32, count: 1 + i%3*100, salt: i}.on(r.World).issue()
		}
		OK(waitAll(flying[299].works...))
		for i, p := range flying {
			if err := p.check(); err != nil {
				return fmt.Errorf("operation %d: %w", i, err)
			}
		}
		return nil
	})
}

// twoGoroutines waits for two groups of one rank in two goroutines, in opposite order on the two ranks.
func (s *suite) twoGoroutines(t *testing.T) {
	s.ok(t, 2, func(r *dist.Rank) error {
		groups := [2]*dist.Group{r.World.With(), r.World.With()}
		var both errgroup.Group
		for i, g := range groups {
			both.Go(func() error {
				for k := range 300 {
					if err := sumIs(g, float64(k+i), float64(2*(k+i))); err != nil {
						return fmt.Errorf("group %d, step %d: %w", i, k, err)
					}
				}
				return nil
			})
		}
		return both.Wait()
	})
}

// randomPrograms runs programs of random operations that all ranks derive from one seed, and compares each result with
// plain loops.
func (s *suite) randomPrograms(t *testing.T) {
	steps := 150
	switch {
	case s.long():
		steps = 1500
	case s.emulated && !s.full:
		steps = 100
	}
	for _, n := range s.sizes() {
		t.Run(fmt.Sprint(n, " ranks"), func(t *testing.T) {
			s.ok(t, n, func(r *dist.Rank) error {
				// All ranks have the same numbers.
				rng, ops, groups := rand.New(rand.NewPCG(uint64(n), 11)), collectives(), []*dist.Group{r.World, r.World.With(), r.World.With()}
				for step := range steps {
					c := call{Operation: ops[rng.IntN(len(ops))], dtype: tensor.DType(rng.IntN(int(tensor.Bool))),
						red: rng.IntN(len(reds)), root: rng.IntN(n), count: rng.IntN(1000)}
					if c.reduces && !valid(reds[c.red].name, c.dtype) {
						c.red = 0
					}
					if err := c.run(groups[rng.IntN(3)]); err != nil {
						return fmt.Errorf("step %d: %w", step, err)
					}
				}
				return nil
			})
		})
	}
}
