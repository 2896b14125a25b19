package disttest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// pointToPoint sends messages around a ring: blocking in pairs, non-blocking, many and large.
func (s *suite) pointToPoint(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		s.ok(t, n, func(r *dist.Rank) error {
			g := r.World
			me := g.Rank()
			next, prev := (me+1)%n, (me+n-1)%n
			for i, count := range []int{0, 1, 64, 65, 100_000} {
				out := filled(r, tensor.Float32, count, func(k int) float64 { return tag(me, k) })
				in := tensor.New(r.Device, tensor.Float32, count)
				sent := g.Send(out, next, i) // non-blocking
				if err := g.Recv(in, prev, i).Wait(); err != nil {
					return err
				}
				if err := sent.Wait(); err != nil {
					return err
				}
				if err := holds("recv", in, func(k int) float64 { return tag(prev, k) }); err != nil {
					return err
				}
			}
			return manyMessages(r, next, prev)
		})
	}
	s.recvAny(t)
	s.recvAnyFromNobody(t)
}

func manyMessages(r *dist.Rank, next, prev int) error {
	var works []dist.Work
	ins := make([]tensor.Tensor, 50)
	for i := range ins {
		ins[i] = tensor.New(r.Device, tensor.Int64, 10)
		out := filled(r, tensor.Int64, 10, func(int) float64 { return float64(i) })
		works = append(works, r.World.Send(out, next, i), r.World.Recv(ins[i], prev, i))
	}
	for _, w := range works {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	for i, x := range ins {
		if got := tensor.Floats(x)[9]; got != float64(i) {
			return fmt.Errorf("message %d has %v", i, got)
		}
	}
	return nil
}

// recvAny collects one message from every other rank, in any order.
func (s *suite) recvAny(t *testing.T) {
	s.ok(t, 4, func(r *dist.Rank) error {
		g := r.World
		x := tensor.New(r.Device, tensor.Float64, 1)
		if g.Rank() != 2 {
			set(x, func(int) float64 { return math.Exp2(float64(g.Rank())) })
			return g.Send(x, 2, 9).Wait()
		}
		sum := 0.0
		for range 3 {
			peer, err := g.RecvAny(x, 9)
			if err != nil {
				return err
			}
			if got := tensor.Floats(x)[0]; got != math.Exp2(float64(peer)) {
				return fmt.Errorf("from rank %d: %v", peer, got)
			}
			sum += tensor.Floats(x)[0]
		}
		if sum != 1+2+8 {
			return fmt.Errorf("sum %v", sum)
		}
		return nil
	})
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
			for range 2 {
				if _, err := g.RecvAny(x, 0); err != nil {
					return err
				}
			}
			begin := time.Now()
			_, err := g.RecvAny(x, 0)
			took = time.Since(begin)
			if err == nil || !strings.Contains(err.Error(), "nothing can arrive from any rank: ranks 1, 2 have left the job or closed the group") {
				return fmt.Errorf("from nobody: %w", err)
			}
			if closing {
				return r.World.Barrier().Wait()
			}
			return nil
		})
		assert.Less(t, took, time.Second+slack)
	}
}

// batch exchanges messages all-to-all in one batch, sends first on all ranks.
func (s *suite) batch(t *testing.T) {
	s.ok(t, 4, func(r *dist.Rank) error {
		g := r.World
		me := g.Rank()
		for _, count := range []int{3, 30_000} {
			ins := make([]tensor.Tensor, g.Size())
			sum := filled(r, tensor.Float32, 10, func(int) float64 { return 1 })
			err := g.Batch(func(b *dist.Batch) {
				for p := range ins {
					if p != me {
						b.Send(filled(r, tensor.Float32, count, func(i int) float64 { return tag(me+10*p, i) }), p, 0)
					}
				}
				for p := range ins {
					if p != me {
						ins[p] = tensor.New(r.Device, tensor.Float32, count)
						b.Recv(ins[p], p, 0)
					}
				}
				b.Add(g.AllReduce(sum, dist.Sum))
			}).Wait()
			if err != nil {
				return err
			}
			for p, x := range ins {
				if p == me {
					continue
				}
				if err := holds("batch", x, func(i int) float64 { return tag(p+10*me, i) }); err != nil {
					return err
				}
			}
			if tensor.Floats(sum)[0] != 4 {
				return fmt.Errorf("sum in batch: %v", sum)
			}
		}
		return nil
	})
}

// objects sends structured values.
func (s *suite) objects(t *testing.T) {
	type card struct {
		Name string
		List []int
	}
	s.ok(t, 3, func(r *dist.Rank) error {
		me := r.World.Rank()
		cards, err := dist.AllGatherObject(r.World, card{fmt.Sprint("rank ", me), make([]int, me)})
		if err != nil {
			return err
		}
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

// bytes compares what all ranks counted with the formulas, for counts that are divisible by the number of ranks and counts that are not.
func (s *suite) bytes(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, count := range []int{6000, 1001} {
			total := wire(t, s.start, n, count)
			size, k := count*4, n-1
			for kind, want := range map[string]int{"allreduce": 2 * k * size, "broadcast": k * size, "reduce": k * size,
				"gather": k * size, "scatter": k * size, "allgather": n * k * size, "reducescatter": n * k * size,
				"alltoall": n * k * size, "allgatherv": k * vRows(n) * 4, "reducescatterv": k * vRows(n) * 4, "alltoallv": k * vRows(n) * 4} {
				assert.Equal(t, uint64(want), total[kind]+total[opposite[kind]], "%s of %d elements, %d ranks", kind, count, n)
			}
			send := total["send"] + total["recv"]
			assert.Equal(t, uint64(size), send, "send")
		}
	}
}

var opposite = map[string]string{"send": "recv"}

// wire runs one operation of each kind and returns the bytes that all ranks moved.
func wire(t *testing.T, start Start, n, count int) map[string]uint64 {
	var stats table[dist.Stats]
	require.NoError(t, start(t, n, quiet(0), func(r *dist.Rank) error {
		g := r.World
		x, all := tensor.New(r.Device, tensor.Float32, count), tensor.New(r.Device, tensor.Float32, n*count)
		other := tensor.New(r.Device, tensor.Float32, n*count)
		atRoot := func(y tensor.Tensor) tensor.Tensor {
			if g.Rank() == n-1 {
				return y
			}
			return tensor.Tensor{}
		}
		for _, op := range []func() dist.Work{
			func() dist.Work { return g.AllReduce(x, dist.Sum) },
			func() dist.Work { return g.Broadcast(x, 0) },
			func() dist.Work { return g.Reduce(x, dist.Sum, 1) },
			func() dist.Work { return g.Gather(atRoot(all), x, n-1) },
			func() dist.Work { return g.Scatter(x, atRoot(all), n-1) },
			func() dist.Work { return g.AllGather(all, x) },
			func() dist.Work { return g.ReduceScatter(x, all, dist.Sum) },
			func() dist.Work { return g.AllToAll(other, all) },
			func() dist.Work { return vGather(r) },
			func() dist.Work { return vScatter(r) },
			func() dist.Work { return vExchange(r) },
			func() dist.Work { return message(g, x) },
		} {
			if err := op().Wait(); err != nil {
				return err
			}
		}
		stats.put(g.Rank(), g.Stats())
		return nil
	}))
	total := map[string]uint64{}
	for _, s := range stats.rows {
		for k, b := range s.Wire {
			total[k] += b
		}
	}
	return total
}

// message sends x from rank 0 to rank 1.
func message(g *dist.Group, x tensor.Tensor) dist.Work {
	switch g.Rank() {
	case 0:
		return g.Send(x, 1, 0)
	case 1:
		return g.Recv(x, 0, 0)
	}
	return dist.Work{}
}
