package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/timeline"
)

// Replayed is a step of a recorded training on a network: the one of median length.
type Replayed struct {
	Step    int64      `json:"step"` // its number
	Steps   int        `json:"steps"`
	Time    Time       `json:"time"`    // on the rank on which it takes longest
	Exposed Time       `json:"exposed"` // what a rank waits, on average
	Ops     []Exchange `json:"ops"`     // the most exposed first
}

// Exchange is what a step has of an operation in a group.
type Exchange struct {
	Op      string `json:"op"`
	Group   string `json:"group"`
	Calls   int    `json:"calls"`
	Bytes   int    `json:"bytes"`   // of their full buffers
	Flight  Time   `json:"flight"`  // from when the last member begins to when the last one ends
	Exposed Time   `json:"exposed"` // what all ranks wait for it
}

// Replay does what a recording has on a network: ranks compute as long as they did, and collectives are those that the Tuner chooses there.
// Uneven parts of ranks are taken as even ones.
func (t *Topology) Replay(rec *timeline.Recording) (*Replayed, error) {
	ranks := len(rec.Programs)
	plan, err := t.wire(ranks)
	if err != nil {
		return nil, err
	}
	p := &replay{rec, make([]call, len(rec.Exchanges)), make([]*group, len(rec.Exchanges)), make([][]int, ranks)}
	net, groups, marks, most := newNetwork(plan), map[uint64]*group{}, 2*len(rec.Exchanges), 0
	for i, e := range rec.Exchanges {
		if groups[e.Lane.ID] == nil {
			groups[e.Lane.ID] = newGroup(net, e.Lane.Ranks)
		}
		p.groups[i] = groups[e.Lane.ID]
		kind, ok := evenKinds[e.Kind]
		if !ok {
			kind, _ = algo.KindOf(e.Kind)
			ok = kind == backend.Send || slices.Contains(Kinds, kind) && kind.String() == e.Kind
		}
		if !ok {
			return nil, fmt.Errorf("sim: operation %s of group %s cannot be replayed", bounded.Quote(e.Kind), bounded.Quote(e.Lane.Group))
		}
		p.calls[i] = *newCall(kind, "", len(e.Lane.Ranks), e.Bytes)
		p.calls[i].root, p.calls[i].seq = e.Root, e.Seq
		most = max(most, p.calls[i].bytes)
	}
	for i, acts := range rec.Programs {
		p.marks[i] = make([]int, len(acts))
		for k := range acts {
			p.marks[i][k] = marks
			marks += 2
		}
	}
	net.marks = make([]Time, marks)
	for i, r := range newGroup(net, upTo(ranks)).ranks {
		r.Memory(most) // one block, not a larger one again and again
		net.start(0, func() error { return p.program(r, i) })
	}
	if err := net.run(); err != nil {
		return nil, err
	}
	return p.result(net.marks), nil
}

// evenKinds are what V forms are taken for.
var evenKinds = map[string]backend.Kind{"allgatherv": backend.AllGather, "reducescatterv": backend.ReduceScatter,
	"alltoallv": backend.AllToAll, "monitoredbarrier": backend.Barrier}

// replay is a recording on a network.
type replay struct {
	*timeline.Recording
	calls  []call   // of the exchanges
	groups []*group // that do them
	marks  [][]int  // of each act of each rank, where the time before it is kept; that after it follows
}

// program is that of rank i. Operations of a group are done one after the other, each in a thread of its own. As many as backend.Depth can
// be in flight; one more waits for the first of them.
func (p *replay) program(r *rank, i int) error {
	over, queue := map[int]func() error{}, map[*group][]func() error{}
	for k, a := range p.Programs[i] {
		r.pause(Time(a.Compute) * 1000)
		r.net.record(r, step{n: p.marks[i][k], what: mark})
		switch a.What {
		case timeline.Issue:
			g, of, before := p.groups[a.Of], a.Of, nothingBefore
			q := queue[g]
			if len(q) == backend.Depth {
				if err := q[0](); err != nil {
					return err
				}
				q = q[1:]
			}
			if len(q) > 0 {
				before = q[len(q)-1]
			}
			over[of] = r.Fork(func() error { return p.exchange(r, of, before) })
			queue[g] = append(q, over[of])
		case timeline.Await:
			if err := over[a.Of](); err != nil {
				return err
			}
		}
		if !r.net.record(r, step{n: p.marks[i][k] + 1, what: mark}) {
			return errEnded
		}
	}
	return nil
}

// nothingBefore is what the first operation of a group waits for.
func nothingBefore() error { return nil }

// exchange is the thread of an operation on a rank.
func (p *replay) exchange(r *rank, of int, before func() error) error {
	if err := before(); err != nil {
		return err
	}
	g := p.groups[of]
	me := g.ranks[slices.Index(p.Exchanges[of].Lane.Ranks, r.world)]
	r.net.record(r, step{n: 2 * of, what: mark})
	var err error
	switch b := me.Memory(p.calls[of].bytes); {
	case p.calls[of].kind != backend.Send:
		err = me.do(&p.calls[of])
	case me.number == 0:
		err = me.Send(1, 0, b)
	default:
		err = me.Recv(0, 0, b)
	}
	me.net.record(me, step{n: 2*of + 1, what: mark})
	return err
}

// result adds up the step of median length.
func (p *replay) result(marks []Time) *Replayed {
	begin, times := make([]Time, len(p.Steps)), make([]Time, len(p.Steps))
	for i, acts := range p.Programs {
		for k, a := range acts {
			switch at := marks[p.marks[i][k]]; a.What {
			case timeline.Begin:
				begin[a.Of] = at
			case timeline.End:
				times[a.Of] = max(times[a.Of], at-begin[a.Of])
			}
		}
	}
	order := upTo(len(times))
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(times[a], times[b]) })
	median := order[len(order)/2]
	out := &Replayed{Step: p.Steps[median], Steps: len(times), Time: times[median]}
	at := map[[2]string]*Exchange{}
	row := func(of int) *Exchange {
		e := &p.Exchanges[of]
		name := [2]string{e.Kind, e.Lane.Group}
		if at[name] == nil {
			at[name] = &Exchange{Op: e.Kind, Group: e.Lane.Group}
		}
		return at[name]
	}
	for i, e := range p.Exchanges {
		if e.Step == median {
			x := row(i)
			x.Calls, x.Bytes, x.Flight = x.Calls+1, x.Bytes+e.Bytes, x.Flight+marks[2*i+1]-marks[2*i]
		}
	}
	for i, acts := range p.Programs {
		for k, a := range acts {
			if (a.What == timeline.Await || a.What == timeline.Issue) && a.Step == median {
				waited := marks[p.marks[i][k]+1] - marks[p.marks[i][k]]
				row(a.Of).Exposed += waited
				out.Exposed += waited
			}
		}
	}
	out.Exposed /= Time(len(p.Programs))
	for _, x := range at {
		out.Ops = append(out.Ops, *x)
	}
	slices.SortFunc(out.Ops, func(a, b Exchange) int {
		return cmp.Or(cmp.Compare(b.Exposed, a.Exposed), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Group, b.Group))
	})
	return out
}
