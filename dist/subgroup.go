package dist

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// Option is a setting of a group that With makes.
type Option func(*options)

type options struct {
	name    string
	timeout time.Duration
	algo    string
}

// Timeout sets how long an operation may go without progress while its rank waits for it. A time that is not above 0 fails the new group.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Name sets the name in errors and traces.
func Name(s string) Option { return func(o *options) { o.name = s } }

// Algo forces algorithms, as RINGO_ALGO does: a name that every operation of the group must have, such as "linear", or a list for some
// kinds, such as "allreduce:ring,broadcast:chain". The names are in package algo; goroutine ranks have only "direct" and, on GPUs,
// "oneshot" and "twoshot" for all-reduce. An unknown name fails the new group. An operation that the algorithm cannot do fails.
func Algo(list string) Option { return func(o *options) { o.algo = list } }

// With returns a group of the same ranks with its own lane: its operations have no order with those of g. It is collective: all members
// call it in the same order. No rank waits.
func (g *Group) With(opts ...Option) *Group {
	id := g.nextID()
	o := options{name: fmt.Sprintf("%s/%d", g.name, g.children), timeout: g.timeout}
	for _, f := range opts {
		f(&o)
	}
	a, err := g.algo, error(nil)
	if o.algo != "" {
		a, err = a.parse(o.algo)
	}
	if o.timeout <= 0 {
		err = errors.Join(err, fmt.Errorf("group %s: Timeout(%v): it must be more than 0", o.name, o.timeout))
		o.timeout = g.timeout
	}
	child := g.child(backend.Spec{ID: id, Name: o.name, Ranks: g.ranks, Rank: g.rank}, o.timeout, a)
	if err != nil {
		child.Abort(&Error{Rank: g.c.rank, Group: o.name, Cause: err})
	}
	return child
}

// nextID returns the ID of the next group that is made from g. It is the same on all members that make groups in the same order.
func (g *Group) nextID() uint64 {
	g.must().c.mu.Lock()
	defer g.c.mu.Unlock()
	g.children++
	return backend.Hash64(backend.Hash64(g.id, uint64(g.gen)), g.children)
}

// Split makes a group of the ranks that give the same color, ordered by key, then by rank. With a negative color it returns nil: this
// rank is in no group. It is collective, and waits for all members of g.
func (g *Group) Split(color, key int) (*Group, error) {
	mine := []int64{int64(color), int64(key)}
	all := make([]int64, 2*g.Size())
	if err := g.AllGather(tensor.FromSlice(all, len(all)), tensor.FromSlice(mine, 2)).Wait(); err != nil {
		return nil, fmt.Errorf("dist: Split gathers the colors: %w", err)
	}
	id := backend.Hash64(g.nextID(), uint64(color))
	splitter, _ := g.lane.be.(backend.Splitter)
	if color < 0 {
		if splitter != nil {
			splitter.Split(0, -1, 0)
		}
		return nil, nil
	}
	var members []int // ranks in g
	for r := range g.ranks {
		if all[2*r] == int64(color) {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[2*a+1], all[2*b+1]) })
	if splitter != nil { // colors and keys of the engine are small
		splitter.Split(id, members[0], slices.Index(members, g.rank))
	}
	name := fmt.Sprintf("%s/%d[%d]", g.name, g.children, color)
	return g.sub(id, name, members), nil
}

// sub makes a group of some ranks of g, this one among them.
func (g *Group) sub(id uint64, name string, members []int) *Group {
	return g.child(backend.Spec{ID: id, Name: name, Ranks: g.world(members), Rank: slices.Index(members, g.rank)}, g.timeout, g.algo)
}

// world returns the ranks of members in the job.
func (g *group) world(members []int) []int {
	world := make([]int, len(members))
	for i, m := range members {
		world[i] = g.ranks[m]
	}
	return world
}
