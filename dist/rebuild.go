package dist

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Generation returns how often the group was made: 1, plus one for each Rebuild.
func (g *Group) Generation() int { return int(g.gen) }

// Rebuild makes a new generation of a failed group, from the members that are left: all that call Rebuild, too. It returns the new group,
// with ranks renumbered in the old order. The new group is the same on all of them. Groups that were made from the old group must be made
// again from the new one. The old ones stay failed, and are closed.
//
// Rebuild waits for each member that is alive and has not called it, at most for the group's timeout. Then such a member is left out, and
// gets an error when it calls (generation 1 is over). A member that dies during Rebuild is left out, too. If it dies or gives up so late
// that the new group already has it, the new group fails, and its members can call Rebuild again, on that group. The new group has more
// than half of the members of the old one, or half with its rank 0; all others get an error. So if a network is cut in two parts, at most
// one part goes on. (Of two ranks, only rank 0 can go on alone.) If ctx ends, Rebuild fails with ctx.Err() and may be called again.
//
// Before the call, wait for the operations of other groups, because Rebuild makes no progress on them. Ranks may have come to different
// points since the last operation that all of them finished. So broadcast the state from rank 0 of the new group, or load a checkpoint.
func (g *Group) Rebuild(ctx context.Context) (*Group, error) {
	if g.Err() == nil {
		return nil, fmt.Errorf("dist: group %s has not failed: Abort it first", g.name)
	}
	if err := g.enter(); err != nil {
		return nil, err
	}
	defer g.leave()
	c := g.c
	old := backend.Spec{ID: g.id, Gen: g.gen, Name: g.name, Ranks: g.ranks, Rank: g.rank}
	fail := func(err error) (*Group, error) {
		return nil, &Error{Rank: c.rank, Group: g.name, Op: "rebuild", Seq: uint64(g.gen), Cause: err}
	}
	e, ok := c.engine.(backend.Rebuilder)
	if !ok {
		return fail(fmt.Errorf("engine %s cannot", c.engine.Name()))
	}
	ranks, err := e.Survivors(ctx, old, g.timeout)
	if err != nil {
		return fail(err)
	}
	g.retire()
	made, err := c.open(backend.Spec{ID: g.id, Gen: g.gen + 1, Name: g.name, Ranks: ranks, Rank: slices.Index(ranks, c.rank)},
		g.timeout, g.algo)
	if err != nil {
		return fail(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.world.Load() == g {
		c.world.Store(made)
		lost := slices.DeleteFunc(slices.Clone(g.ranks), func(rank int) bool { return slices.Contains(ranks, rank) })
		if c.tellLost != nil && len(lost) > 0 {
			_ = c.tellLost(lost) // a launcher that has ended has ended the job, too
		}
	}
	return made, nil
}

// retire closes the group and those made from it. Their failure is known, so it does not report operations that were not waited for.
func (g *group) retire() {
	g.c.mu.Lock()
	defer g.c.mu.Unlock()
	for _, x := range g.c.groups() {
		for p := x; p != nil; p = p.parent {
			if p == g {
				x.fail(g.err)
				x.reported = true
				_ = x.end() // it would report the failure that is known
				break
			}
		}
	}
}
