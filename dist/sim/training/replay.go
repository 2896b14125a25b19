package training

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/timeline"
)

// Replayed is a step of a recorded training on a network: the one of median length.
type Replayed struct {
	Step    int64     `json:"step"` // its number
	Steps   int       `json:"steps"`
	Time    sim.Time  `json:"time"`    // on the rank on which it takes longest
	Exposed sim.Time  `json:"exposed"` // what a rank waits, on average
	Ops     []OpTotal `json:"ops"`     // the most exposed first
}

// OpTotal is what a step has of an operation in a group.
type OpTotal struct {
	Op      string   `json:"op"`
	Group   string   `json:"group"`
	Calls   int      `json:"calls"`
	Bytes   int      `json:"bytes"`   // of their full buffers
	Flight  sim.Time `json:"flight"`  // from when the last member begins to when the last one ends
	Exposed sim.Time `json:"exposed"` // what all ranks wait for it
}

// Replay does what a recording has on a network: ranks compute as long as they did, and collectives are those that the Tuner chooses there.
// Uneven parts of ranks are taken as even ones.
func Replay(t *sim.Topology, rec *timeline.Recording) (*Replayed, error) {
	p, err := program(rec)
	if err != nil {
		return nil, err
	}
	played, err := t.Play(p)
	if err != nil {
		return nil, err
	}
	return ofMedianStep(rec, played), nil
}

// evenKinds are what V forms are taken for.
var evenKinds = map[string]backend.Kind{"allgatherv": backend.AllGather, "reducescatterv": backend.ReduceScatter,
	"alltoallv": backend.AllToAll, "monitoredbarrier": backend.Barrier}

// program returns the recording for package sim.
func program(rec *timeline.Recording) (*sim.Program, error) {
	p, groups := &sim.Program{}, map[uint64]int{}
	for _, e := range rec.Exchanges {
		if _, ok := groups[e.Lane.ID]; !ok {
			groups[e.Lane.ID] = len(p.Groups)
			p.Groups = append(p.Groups, e.Lane.Ranks)
		}
		kind, ok := evenKinds[e.Kind]
		if !ok {
			kind, _ = algo.KindOf(e.Kind)
			ok = kind == backend.Send || slices.Contains(sim.Kinds, kind) && kind.String() == e.Kind
		}
		if !ok {
			return nil, fmt.Errorf("sim: operation %s of group %s cannot be replayed", bounded.Quote(e.Kind), bounded.Quote(e.Lane.Group))
		}
		p.Exchanges = append(p.Exchanges, sim.Exchange{Kind: kind, Group: groups[e.Lane.ID], Seq: e.Seq, Root: e.Root, Bytes: e.Bytes})
	}
	for _, recorded := range rec.Programs {
		acts := make([]sim.Act, len(recorded))
		for k, a := range recorded {
			acts[k] = sim.Act{Compute: sim.Time(a.Compute) * 1000, Of: a.Of, Await: a.What == timeline.Await}
			if a.What == timeline.Begin || a.What == timeline.End {
				acts[k].Of = -1
			}
		}
		p.Acts = append(p.Acts, acts)
	}
	return p, nil
}

// ofMedianStep adds up the step of median length.
func ofMedianStep(rec *timeline.Recording, played *sim.Played) *Replayed {
	begin, times, order := make([]sim.Time, len(rec.Steps)), make([]sim.Time, len(rec.Steps)), make([]int, len(rec.Steps))
	for i, acts := range rec.Programs {
		for k, a := range acts {
			switch at := played.Acts[i][k].Start; a.What {
			case timeline.Begin:
				begin[a.Of] = at
			case timeline.End:
				times[a.Of] = max(times[a.Of], at-begin[a.Of])
			}
		}
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(times[a], times[b]) })
	step := order[len(order)/2]
	out := &Replayed{Step: rec.Steps[step], Steps: len(times), Time: times[step]}
	rows := map[[2]string]*OpTotal{}
	row := func(of int) *OpTotal {
		e := &rec.Exchanges[of]
		name := [2]string{e.Kind, e.Lane.Group}
		if rows[name] == nil {
			rows[name] = &OpTotal{Op: e.Kind, Group: e.Lane.Group}
		}
		return rows[name]
	}
	for i, e := range rec.Exchanges {
		if s := played.Exchanges[i]; e.Step == step {
			x := row(i)
			x.Calls, x.Bytes, x.Flight = x.Calls+1, x.Bytes+e.Bytes, x.Flight+s.End-s.Start
		}
	}
	for i, acts := range rec.Programs {
		for k, a := range acts {
			if s := played.Acts[i][k]; (a.What == timeline.Await || a.What == timeline.Issue) && a.Step == step {
				row(a.Of).Exposed += s.End - s.Start
				out.Exposed += s.End - s.Start
			}
		}
	}
	out.Exposed /= sim.Time(len(rec.Programs))
	for _, x := range rows {
		out.Ops = append(out.Ops, *x)
	}
	slices.SortFunc(out.Ops, func(a, b OpTotal) int {
		return cmp.Or(cmp.Compare(b.Exposed, a.Exposed), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Group, b.Group))
	})
	return out
}
