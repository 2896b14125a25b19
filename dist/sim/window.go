package sim

import (
	"math"

	"github.com/ringo-ml/ringo/dist/backend"
)

// everything is what a rank touches that does other things, too: more than a cache.
const everything = math.MaxInt

// slow returns how many times as long a byte takes as in the last cache if an operation touches so many of a rank.
func (t *Topology) slow(touched int) float64 {
	x, from, at := 1., 0., math.Log(float64(max(touched, 1)))
	for i, c := range t.Caches {
		last, to := x, math.Log(c[0])
		if x = 1 / c[1]; i == 0 {
			last = x
		}
		if at < to {
			return last + (x-last)*(at-from)/(to-from)
		}
		from = to
	}
	return x
}

// window is algo.Direct in virtual time: when all have shown the operation, this rank moves its share, and unless the input was shown
// along, the operation is over when all have done so.
func (r *rank) window(c *call) error {
	r.pause(r.net.perMessage)
	err := r.barrier()
	r.Work(c.share(r.number, len(r.ranks)))
	if op := c.op(r); op.Src.Bytes <= backend.EagerBytes || err != nil {
		return err
	}
	return r.barrier()
}

// barrier tells all ranks of the group that this one is here, and waits for them.
func (r *rank) barrier() (err error) {
	for _, what := range []action{send, receive} {
		for p := range r.ranks {
			if p != r.number && err == nil {
				err = r.net.record(step{peer: int32(p), what: what})
			}
		}
	}
	return err
}

// share returns how many bytes rank i of n copies, of which each is read and written. A reduction reads n and writes one, an all-reduce n.
func (c *call) share(i, n int) int {
	switch k := c.Kind; {
	case i != c.Root && (k == backend.Reduce || k == backend.Gather), i == c.Root && k == backend.Broadcast:
		return 0
	case k == backend.Reduce, k == backend.ReduceScatter:
		return c.Count * (n + 1) / 2
	case k == backend.Scatter:
		return c.Count
	}
	return c.bytes
}
