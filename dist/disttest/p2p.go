package disttest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// pointToPoint sends messages around a ring: empty, small and large, and many without a wait. It collects messages from any rank.
func (s *suite) pointToPoint(t *testing.T) {
	var calls []call
	for i, count := range []int{0, 1, 64, 65, 100_000} {
		calls = append(calls, call{Operation: &around, root: i, count: count})
	}
	for _, n := range []int{2, 5} {
		s.ok(t, n, func(r *dist.Rank) error {
			OK(runAll(r.World, calls...))
			var flying [50]pending
			for i := range flying {
				flying[i] = call{Operation: &around, dtype: tensor.Int64, root: i, salt: i, count: 10}.on(r.World).issue()
			}
			for i, p := range flying {
				if err := p.finish(); err != nil {
					return fmt.Errorf("message %d: %w", i, err)
				}
			}
			return nil
		})
	}
	s.ok(t, 4, func(r *dist.Rank) error {
		return actRecvAny(&step{dtype: tensor.Float64, count: 1, root: 2}, r.World, nil).finish()
	})
	s.recvAnyFromNobody(t)
}

// recvAnyFromNobody: if all others have closed the group or left, and all their messages were received, RecvAny fails at once.
func (s *suite) recvAnyFromNobody(t *testing.T) {
	for _, closing := range []bool{true, false} {
		var took time.Duration
		s.ok(t, 3, func(r *dist.Rank) error {
			g := r.World.With(dist.Name("any"), dist.Timeout(5*time.Second))
			x := tensor.New(r.Device, tensor.Float64, 1)
			if g.Rank() > 0 {
				err := g.Send(x, 0, 0).Wait()
				if closing && err == nil {
					err = errors.Join(g.Close(), r.World.Barrier().Wait())
				}
				return err
			}
			_, err := g.RecvAny(x, 0)
			if err == nil {
				_, err = g.RecvAny(x, 0)
			}
			begin := time.Now()
			if err == nil {
				_, err = g.RecvAny(x, 0)
			}
			took = time.Since(begin)
			err = mustFail("from nobody", err, "nothing can arrive from any rank: ranks 1, 2 have left the job or closed the group")
			if closing {
				err = errors.Join(err, r.World.Barrier().Wait())
			}
			return err
		})
		assert.Less(t, took, time.Second+slack)
	}
}

// batch exchanges messages among all ranks in one batch with an all-reduce, sends first on all ranks.
func (s *suite) batch(t *testing.T) {
	few, many := call{Operation: operation("batch"), count: 3, summed: true}, call{Operation: operation("batch"), count: 30_000, summed: true}
	s.ok(t, 4, func(r *dist.Rank) error { return runAll(r.World, few, many) })
}

// objects sends structured values.
func (s *suite) objects(t *testing.T) {
	type card struct {
		Name string
		List []int
	}
	s.ok(t, 3, func(r *dist.Rank) error {
		me := r.World.Rank()
		cards := Must(dist.AllGatherObject(r.World, card{fmt.Sprint("rank ", me), make([]int, me)}))
		for i, c := range cards {
			if c.Name != fmt.Sprint("rank ", i) || len(c.List) != i {
				return fmt.Errorf("card %d is %v", i, c)
			}
		}
		got, err := dist.BroadcastObject(r.World, card{Name: fmt.Sprint(me)}, 2)
		if err != nil || got.Name != "2" {
			return fmt.Errorf("broadcast: %v, %w", got, err)
		}
		return nil
	})
}

// bytes compares what all ranks counted with what the results need, for counts that are divisible by the number of ranks and counts that
// are not.
func (s *suite) bytes(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, count := range []int{6000, 1001} {
			total, want := wire(t, s.start, n, count)
			total["send"] += total["recv"]
			for kind, elements := range want {
				assert.Equal(t, uint64(4*elements), total[kind], "%s of %d elements, %d ranks", kind, count, n)
			}
		}
	}
}

// wire runs operations of each kind, and returns the bytes that all ranks moved, and how many elements they had to move.
func wire(t *testing.T, start Start, n, count int) (total map[string]uint64, want map[string]int) {
	var stats table[dist.Stats]
	calls := append(atRoots(n, call{count: count, rows: func(_, to int) int { return 100 * (to + 1) }}, func(*Operation) bool { return true }),
		call{Operation: operation("send"), root: 1, count: count})
	total, want = map[string]uint64{}, map[string]int{}
	require.NoError(t, start(t, n, quiet(0), func(r *dist.Rank) error {
		for _, c := range calls {
			p := c.on(r.World)
			if r.World.Rank() == 0 {
				want[c.Name] += p.moved()
			}
			OK(waitAll(p.issue().works...))
		}
		stats.put(r.World.Rank(), r.World.Stats())
		return nil
	}))
	for _, s := range stats.rows {
		for k, b := range s.Wire {
			total[k] += b
		}
	}
	return total, want
}

// message is the data of the message from one rank to another.
func (c *call) message(from, to int) func(i int) float64 { return c.input(from + 10*to) }

// post sends and receives the messages of this rank. All are sent before one is received.
func (c *call) post() pending {
	me, in, sum := c.g.Rank(), make([]tensor.Tensor, c.g.Size()), tensor.Tensor{}
	if c.summed {
		sum = filled(c.g, tensor.Int64, 3, c.input(me))
	}
	each := func(send, recv func(x tensor.Tensor, peer, tag int), add func(w ...dist.Work)) {
		for to := range in {
			if c.pair(me, to) {
				send(filled(c.g, c.dtype, c.part(me, to), c.message(me, to)), to, c.root)
			}
		}
		if c.summed {
			add(c.g.AllReduce(sum, dist.Sum))
		}
		for _, s := range c.result(me) {
			in[s.rank] = zeros(c.g, c.dtype, s.n)
			recv(in[s.rank], s.rank, c.root)
		}
	}
	var works []dist.Work
	if c.batched {
		works = append(works, c.g.Batch(func(b *dist.Batch) { each(b.Send, b.Recv, b.Add) }))
	} else {
		each(func(x tensor.Tensor, peer, tag int) { works = append(works, c.g.Send(x, peer, tag)) },
			func(x tensor.Tensor, peer, tag int) { works = append(works, c.g.Recv(x, peer, tag)) }, nil)
	}
	return pending{works, func() error {
		for from, x := range in {
			if x.IsZero() {
				continue
			}
			if err := holds("message", x, c.message(from, me)); err != nil {
				return fmt.Errorf("%v, from rank %d of the group: %w", c, from, err)
			}
		}
		if sum.IsZero() {
			return nil
		}
		return holds(c.String()+", sum", sum, func(i int) (s float64) {
			for rank := range in {
				s += c.input(rank)(i)
			}
			return s
		})
	}}
}

// actRecvAny collects a message of each other rank at the root, in any order. No rank goes on before that, because RecvAny would also
// take a later message of a rank.
func actRecvAny(s *step, g, _ *dist.Group) pending {
	me, root := g.Rank(), s.root%g.Size()
	x, seen := filled(g, s.dtype, s.count, func(i int) float64 { return tag(me, i) }), make([]bool, g.Size())
	var err error
	if me != root {
		err = g.Send(x, root, s.root).Wait()
	}
	for k := 1; k < g.Size() && me == root && err == nil; k++ {
		var from int
		if from, err = g.RecvAny(x, s.root); err != nil {
			break
		}
		if err = holds("recvany", x, func(i int) float64 { return tag(from, i) }); err != nil || seen[from] {
			err = fmt.Errorf("from rank %d of the group, again %v: %w", from, seen[from], err)
		}
		seen[from] = true
	}
	if err == nil {
		err = g.Barrier().Wait()
	}
	return pending{check: func() error { return err }}
}
