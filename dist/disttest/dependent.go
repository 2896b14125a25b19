package disttest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// chain is a rank's part in programs whose operations use the same memory and are issued without a wait between them. Only the last one
// is waited for.
type chain struct {
	me, n int
	twin  *dist.Group // a group of the same ranks
	part  int         // elements
	x, y  tensor.Tensor
	whole tensor.Tensor // a part for each rank
}

func (c *chain) mine(i int) float64 { return from4(c.me, i) }

// from4 is element i of rank's data: small, so that sums of sums are exact.
func from4(rank, i int) float64 { return float64((rank + i) % 4) }

// times is the sum over ranks, summed again k times.
func (c *chain) times(k int) func(i int) float64 {
	return func(i int) (s float64) {
		for rank := range c.n {
			s += from4(rank, i)
		}
		return s * math.Pow(float64(c.n), float64(k))
	}
}

var chains = []struct {
	name string
	run  func(c *chain, g *dist.Group) error
}{
	{"parts that overlap", func(c *chain, g *dist.Group) error {
		low, mid, once, twice := c.part/3, 2*c.part/3, c.times(1), c.times(2)
		w := last(g.AllReduce(c.x.Range(0, mid), dist.Sum), c.twin.AllReduce(c.x.Range(low, c.part), dist.Sum), g.AllReduce(c.x, dist.Sum))
		return want(w, "x", c.x, func(i int) float64 {
			if i >= low && i < mid {
				return twice(i)
			}
			return once(i)
		})
	}},
	{"read, then overwritten", func(c *chain, g *dist.Group) error {
		w := g.AllGather(c.whole, c.x)
		return errors.Join(want(c.twin.Broadcast(c.x, 0), "x", c.x, func(i int) float64 { return from4(0, i) }),
			want(w, "whole", c.whole, func(i int) float64 { return from4(i/c.part, i%c.part) }))
	}},
	{"chain", func(c *chain, g *dist.Group) error { return actChain(&step{count: max(4, c.part)}, g, c.twin).finish() }},
	{"relay", func(c *chain, g *dist.Group) error { return actRelay(&step{count: max(4, c.part)}, g, c.twin).finish() }},
	{"a batch between", func(c *chain, g *dist.Group) error {
		next, prev := neighbours(g)
		swap := func(b *dist.Batch) {
			b.Send(c.x, next, 0)
			b.Recv(c.y, prev, 0)
		}
		return want(last(g.AllReduce(c.x, dist.Sum), g.Batch(swap), c.twin.AllReduce(c.y, dist.Sum)), "y", c.y, c.times(1))
	}},
	{"two groups in other order", func(c *chain, g *dist.Group) error {
		a, b, x, y := g, c.twin, c.x, c.y
		set(y, c.mine)
		if g.Rank()%2 == 1 {
			a, b, x, y = b, a, y, x
		}
		first := [2]dist.Work{a.AllReduce(x, dist.Sum), b.AllReduce(y, dist.Sum)}
		v, w := last(first[0], a.AllReduce(x, dist.Sum)), last(first[1], b.AllReduce(y, dist.Sum))
		return errors.Join(want(v, "first", x, c.times(1)), want(w, "second", y, c.times(1)))
	}},
}

// last returns the last of several operations, in the order in which they were issued.
func last(works ...dist.Work) dist.Work { return works[len(works)-1] }

func neighbours(g *dist.Group) (next, prev int) {
	n := g.Size()
	return (g.Rank() + 1) % n, (g.Rank() + n - 1) % n
}

// dependent runs each chain many times, with eager, small and large inputs. RINGO_CHAINS is how often; for more than 64 KiB it is a
// fiftieth of that.
func (s *suite) dependent(t *testing.T) {
	times := map[int]int{1: 10, 10: 10, 64: 10, 1000: 5, 16 << 10: 2}
	switch {
	case s.long():
		times = map[int]int{1: 50, 10: 50, 64: 50, 1000: 50, 16 << 10: 20, 256 << 10: 4, 4 << 20: 1}
	case s.emulated && s.full:
		times = map[int]int{1: 5, 10: 5, 64: 5, 1000: 5, 16 << 10: 2}
	case s.emulated:
		times = map[int]int{1: 2, 64: 3, 1000: 2}
	}
	if n, err := strconv.Atoi(os.Getenv("RINGO_CHAINS")); err == nil {
		times = map[int]int{1: n, 10: n, 64: n, 1000: n, 16 << 10: n, 256 << 10: n / 50, 4 << 20: n / 50}
	}
	for _, n := range []int{2, 3} {
		for _, count := range slices.Sorted(maps.Keys(times)) { // in one order in all processes
			times := times[count]
			s.ok(t, n, func(r *dist.Rank) error {
				make := func(n int) tensor.Tensor { return zeros(r.World, tensor.Float32, n) }
				c := &chain{me: r.World.Rank(), n: n, twin: r.World.With(dist.Name("twin")), part: count, x: make(count), y: make(count),
					whole: make(count * n)}
				for k := range times {
					for _, p := range chains {
						set(c.x, c.mine)
						set(c.whole, c.mine)
						if err := p.run(c, r.World); err != nil {
							return fmt.Errorf("%s of %d elements, time %d: %w", p.name, count, k, err)
						}
					}
				}
				return nil
			})
		}
	}
	t.Run("Independent", s.independent)
}

// independent: operations that do not overlap, or only read the same memory, do not wait for each other. If they did, each of these
// programs would deadlock.
func (s *suite) independent(t *testing.T) {
	s.ok(t, 3, func(r *dist.Rank) error {
		g, me := r.World, r.World.Rank()
		buf := filled(r.World, tensor.Float32, 20, func(i int) float64 { return float64(me) })
		x, y, hello := buf.Range(0, 10), buf.Range(10, 20), tensor.New(r.Device, tensor.Float32, 1)
		if me == 0 { // the others begin when they have received
			sum := g.AllReduce(x, dist.Sum)
			if err := waitAll(sum, g.Send(y, 1, 0), g.Send(y, 2, 0)); err != nil { // rank 1 receives after rank 2 has received
				return err
			}
			return holds("x", x, func(int) float64 { return 3 })
		}
		if me == 1 {
			OK(g.Recv(hello, 2, 1).Wait())
		}
		OK(want(g.Recv(y, 0, 0), "y", y, func(int) float64 { return 0 }))
		if me == 2 {
			OK(g.Send(hello, 1, 1).Wait())
		}
		return want(g.AllReduce(x, dist.Sum), "x", x, func(int) float64 { return 3 })
	})
}

// actChain sums four times on two groups, with a reduce-scatter and an all-gather between them, in place and without a wait.
func actChain(s *step, g, twin *dist.Group) pending {
	n, part := g.Size(), s.count/4
	x := filled(g, tensor.Float64, part*n, func(i int) float64 { return from4(g.Rank(), i) })
	mine := x.Range(g.Rank()*part, (g.Rank()+1)*part)
	w := last(g.AllReduce(x, dist.Sum), twin.AllReduce(x, dist.Sum), g.ReduceScatter(mine, x, dist.Sum), twin.AllGather(x, mine),
		g.AllReduce(x, dist.Sum))
	return pending{[]dist.Work{w}, func() error { return holds("chain", x, (&chain{n: n}).times(3)) }}
}

// actRelay sums what it has received, and sends the sum on.
func actRelay(s *step, g, twin *dist.Group) pending {
	next, prev := neighbours(g)
	if next == g.Rank() {
		return pending{check: func() error { return nil }}
	}
	x, y := filled(g, tensor.Float64, s.count, func(i int) float64 { return from4(g.Rank(), i) }), zeros(g, tensor.Float64, s.count)
	z := zeros(g, tensor.Float64, s.count)
	w := last(g.Send(x, next, s.root), g.Recv(y, prev, s.root), twin.AllReduce(y, dist.Sum),
		g.Recv(z, prev, s.root), g.Send(y, next, s.root), g.AllReduce(z, dist.Sum))
	return pending{[]dist.Work{w}, func() error { return holds("relay", z, (&chain{n: g.Size()}).times(1)) }}
}
