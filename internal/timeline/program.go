package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/trace"
)

// Recording is what the programs of all ranks did: enough to do it again on another network.
type Recording struct {
	Exchanges []Exchange
	Programs  [][]Act        // by rank
	Steps     []int64        // the numbers of the steps that all ranks have
	LeftOut   int            // exchanges at the end, which some ranks did not record
	spans     [][]trace.Span // of steps, by rank and time
}

// Exchange is a collective or a message.
type Exchange struct {
	Kind  string // such as "allreduce"; a message is a "send"
	Lane  *trace.Lane
	Seq   uint64
	Root  int // of a collective that has one: its place in the lane
	Bytes int // of the full buffer, or of the message
	Step  int // the place in Steps of the one in which the first rank issues it; -1: of none
}

// Act is what a program does after it has computed.
type Act struct {
	Compute int64 // nanoseconds before it
	What    Doing
	Of      int // place of the exchange, or of the step
	Step    int // place in Steps of the one it is in; -1: of none
}

// Doing is what an Act does.
type Doing uint8

// Acts of a program.
const (
	Issue Doing = iota
	Await       // until the exchange is over
	Begin       // a step
	End
)

const (
	day       = int64(24 * time.Hour)
	mostBytes = 4 << 30 // the gradients of a layer, or of the words, of 70 billion parameters in float32
	batch     = "batch" // its lane has operations of other lanes
)

// Record makes a recording of the ranks of a training, which need not be on one clock. A wait takes what the network makes of it, and all
// other time is computation. Nobody waited for an exchange that was over before its result was needed. A program needs it when its step
// ends; if soon is set, as soon as it was over in the recording.
func Record(ranks []Rank, soon bool) (*Recording, error) {
	for i, r := range ranks {
		switch {
		case r.Rank != i:
			return nil, fmt.Errorf("the trace has no rank %d: a replay needs the files of all ranks, see ringo trace merge", i)
		case r.Dropped > 0:
			return nil, fmt.Errorf("rank %d did not record its last %d spans: record fewer steps, or more spans (dist.Config.Trace)", i, r.Dropped)
		case length(r.Spans) < 0 || length(r.Spans) > day:
			return nil, fmt.Errorf("rank %d: a replay takes recordings of up to 24 hours", i)
		}
	}
	rec := &Recording{}
	if err := rec.steps(ranks); err != nil {
		return nil, err
	}
	places, err := rec.exchanges(ranks)
	if err != nil {
		return nil, err
	}
	for i := range ranks {
		rec.Programs = append(rec.Programs, rec.program(i, &ranks[i], places, soon))
	}
	return rec, nil
}

// length is the time from the first moment to the last one; below 0 if that is no number of nanoseconds.
func length(spans []trace.Span) int64 {
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for _, s := range spans {
		first, last = min(first, s.Start, s.End), max(last, s.Start, s.End)
	}
	if len(spans) == 0 {
		return 0
	}
	return last - first
}

// steps finds the steps that all ranks have.
func (rec *Recording) steps(ranks []Rank) error {
	for i := range ranks {
		var own []int64
		var spans []trace.Span
		for _, s := range ranks[i].Spans {
			if s.Track == trace.Steps && s.Name == trace.StepName {
				own, spans = append(own, s.Arg), append(spans, s)
			}
		}
		slices.SortFunc(spans, func(a, b trace.Span) int { return cmp.Compare(a.End, b.End) })
		rec.spans = append(rec.spans, spans)
		slices.Sort(own)
		own = slices.Compact(own)
		if i > 0 {
			own = slices.DeleteFunc(own, func(n int64) bool { _, both := slices.BinarySearch(rec.Steps, n); return !both })
		}
		if rec.Steps = own; len(own) == 0 {
			return fmt.Errorf("rank %d has no step that all ranks have: a replay needs a training that calls Trace.Step and Trace.EndStep", i)
		}
	}
	if len(ranks) == 0 {
		return fmt.Errorf("the trace has no ranks")
	}
	return nil
}

// key is an exchange as a rank knows it.
type key struct{ lane, seq uint64 }

// exchanges collects those that all members have, and returns their places.
func (rec *Recording) exchanges(ranks []Rank) (map[key]int, error) {
	places, last, known := map[key]int{}, map[uint64]uint64{}, map[uint64]*members{}
	var some []*collective
	for _, m := range exchanges(ranks) {
		if m.name == batch {
			continue
		}
		all, err := m.all(known, len(ranks))
		switch {
		case err != nil:
			return nil, err
		case !all:
			some = append(some, m)
			continue
		}
		e, err := m.exchange(ranks)
		if err != nil {
			return nil, err
		}
		e.Step = rec.within(m.parts[0].at, m.parts[0].start)
		places[key{m.lane.ID, m.seq}] = len(rec.Exchanges)
		last[m.lane.ID] = max(last[m.lane.ID], m.seq)
		rec.Exchanges = append(rec.Exchanges, e)
	}
	for _, m := range some {
		if m.seq < last[m.lane.ID] {
			return nil, fmt.Errorf("rank %d has no %v, which rank %d has: the trace is not whole", m.absent(), m, m.parts[0].at)
		}
	}
	rec.LeftOut = len(some)
	return places, nil
}

// String is such as "allreduce number 3 of group world".
func (m *collective) String() string {
	return fmt.Sprintf("%s number %d of group %s", bounded.Plain(kindOf(m.name)), m.seq, bounded.Plain(m.lane.Group))
}

// members are those of all lanes of an ID.
type members struct {
	lane *trace.Lane          // the first one
	have map[int]bool         // its ranks
	same map[*trace.Lane]bool // lanes that have the same ranks, in the same order
}

// all reports whether every member has the exchange. It is an error if members are none of so many ranks, if ranks are no members, or if a
// lane of this ID has other members.
func (m *collective) all(known map[uint64]*members, ranks int) (bool, error) {
	x := known[m.lane.ID]
	if x == nil {
		x = &members{m.lane, map[int]bool{}, map[*trace.Lane]bool{}}
		known[m.lane.ID] = x
		for _, r := range m.lane.Ranks {
			switch {
			case r < 0 || r >= ranks:
				return false, fmt.Errorf("the trace has no rank %d, with which rank %d has %v: a replay needs the files of all ranks, see ringo trace "+
					"merge", r, m.parts[0].at, m)
			case x.have[r]:
				return false, fmt.Errorf("%v has a member twice: the trace is damaged", m)
			}
			x.have[r] = true
		}
	}
	has := map[int]bool{}
	for _, p := range m.parts {
		if has[p.at] || !x.have[p.at] {
			return false, fmt.Errorf("rank %d has %v, and is no member or has it twice: the trace is damaged", p.at, m)
		}
		if !x.same[p.lane] && !slices.Equal(p.lane.Ranks, x.lane.Ranks) {
			return false, fmt.Errorf("rank %d has %v in lane %x, which has other members elsewhere: the trace is damaged", p.at, m, m.lane.ID)
		}
		has[p.at], x.same[p.lane] = true, true
	}
	return len(has) == len(x.have), nil
}

// absent returns a member without the exchange.
func (m *collective) absent() int {
	has := map[int]bool{}
	for _, p := range m.parts {
		has[p.at] = true
	}
	return m.lane.Ranks[slices.IndexFunc(m.lane.Ranks, func(r int) bool { return !has[r] })]
}

// exchange checks that the members do the same.
func (m *collective) exchange(ranks []Rank) (Exchange, error) {
	e := Exchange{Kind: kindOf(m.name), Lane: m.lane, Seq: m.seq}
	if e.Kind == "recv" {
		e.Kind = "send"
	}
	for _, p := range m.parts {
		kind := kindOf(p.name)
		if want := e.Kind; kind != want && (want != "send" || kind != "recv") {
			return e, fmt.Errorf("%v is a %s on rank %d: the trace is damaged", m, bounded.Quote(kind), p.at)
		}
		if p.bytes < 0 || p.bytes > mostBytes || p.end < p.start {
			return e, fmt.Errorf("%v has %d bytes and takes %d ns on rank %d: a replay takes 0 to 4 GiB, and times from 0 on", m, p.bytes,
				p.end-p.start, p.at)
		}
		e.Bytes = max(e.Bytes, int(p.bytes))
	}
	if e.Kind == "send" && len(m.lane.Ranks) != 2 {
		return e, fmt.Errorf("%v is from %d ranks: the trace is damaged", m, len(m.lane.Ranks))
	}
	if rooted(m.name) {
		if e.Root = slices.Index(m.lane.Ranks, m.root); e.Root < 0 {
			return e, fmt.Errorf("%v has root %d, which is no member: the trace is damaged", m, m.root)
		}
	}
	return e, nil
}

// within returns the place of the step of rank i that has a time in it, or -1.
func (rec *Recording) within(i int, at int64) int {
	own := rec.spans[i]
	n, _ := slices.BinarySearchFunc(own, at, func(s trace.Span, at int64) int { return cmp.Compare(s.End, at) })
	if n == len(own) || own[n].Start > at {
		return -1
	}
	return rec.place(&own[n])
}

// place returns the place of a step, or -1.
func (rec *Recording) place(s *trace.Span) int {
	if n, ok := slices.BinarySearch(rec.Steps, s.Arg); ok {
		return n
	}
	return -1
}

// programmer writes the program of a rank.
type programmer struct {
	*Recording
	places map[key]int
	lanes  []trace.Lane
	acts   []timedAct
	waited map[int]bool
}

// timedAct is an act in the recording. A wait takes until end.
type timedAct struct {
	Act
	at, end int64
}

func (p *programmer) add(what Doing, of int, at, end int64) {
	p.acts = append(p.acts, timedAct{Act{What: what, Of: of}, at, end})
}

// program writes the acts of rank i.
func (rec *Recording) program(i int, r *Rank, places map[key]int, soon bool) []Act {
	p := &programmer{Recording: rec, places: places, lanes: r.Lanes, waited: map[int]bool{}}
	parts := p.batches(r.Spans)
	for _, s := range r.Spans {
		of, known := -1, false
		if s.Lane > 0 {
			of, known = places[p.key(&s)]
		}
		switch {
		case known && s.Track == trace.Comm:
			p.add(Issue, of, s.Start, s.Start)
		case known && s.Track == trace.Waits:
			p.wait(of, &s)
		case s.Lane > 0 && s.Track == trace.Waits: // for a batch, or something that was left out
			p.add(Await, -1, s.Start, s.End)
			for _, of := range parts[p.key(&s)] {
				p.wait(of, &s)
			}
		}
	}
	for _, s := range rec.spans[i] {
		if n := rec.place(&s); n >= 0 {
			p.add(Begin, n, s.Start, s.Start)
			p.add(End, n, s.End, s.End)
		}
	}
	p.needs(i, r.Spans, soon)
	return p.ordered()
}

func (p *programmer) key(s *trace.Span) key { return key{p.lanes[s.Lane-1].ID, s.Seq} }

func (p *programmer) wait(of int, s *trace.Span) {
	p.waited[of] = true
	p.add(Await, of, s.Start, s.End)
}

// batches returns what a wait for a batch waits for: what the rank has issued in the group since the batch before.
func (p *programmer) batches(spans []trace.Span) map[key][]int {
	var own []trace.Span
	for _, s := range spans {
		if s.Track == trace.Comm && s.Lane > 0 {
			own = append(own, s)
		}
	}
	slices.SortStableFunc(own, func(a, b trace.Span) int { return cmp.Compare(a.Start, b.Start) })
	open, all := map[string][]int{}, map[key][]int{}
	for _, s := range own {
		group := p.lanes[s.Lane-1].Group
		if of, known := p.places[p.key(&s)]; known {
			open[group] = append(open[group], of)
		} else if s.Name == batch {
			all[p.key(&s)] = open[group]
			open[group] = nil
		}
	}
	return all
}

// needs adds waits for what nobody has waited for.
func (p *programmer) needs(i int, spans []trace.Span, soon bool) {
	steps := p.spans[i]
	for _, s := range spans {
		if s.Track != trace.Comm || s.Lane == 0 {
			continue
		}
		of, known := p.places[p.key(&s)]
		n, _ := slices.BinarySearchFunc(steps, s.End, func(x trace.Span, end int64) int { return cmp.Compare(x.End, end) })
		switch {
		case !known || p.waited[of] || !soon && n == len(steps):
		case soon:
			p.add(Await, of, s.End, s.End)
		default:
			p.add(Await, of, steps[n].End, steps[n].End)
		}
	}
}

// ordered puts the acts in the order of their times, and leaves only computation between them.
func (p *programmer) ordered() []Act {
	slices.SortStableFunc(p.acts, func(a, b timedAct) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.What, b.What)) })
	var out []Act
	now, computed, step, issued := int64(0), int64(0), -1, map[int]bool{}
	for i, a := range p.acts {
		if i == 0 {
			now = a.at
		}
		computed += max(0, a.at-now)
		now = max(now, a.at, a.end)
		switch {
		case a.What == Begin:
			step = a.Of
		case a.What == Issue:
			issued[a.Of] = true
		case a.What == Await && !issued[a.Of]:
			continue
		}
		a.Compute, a.Step, computed = computed, step, 0
		out = append(out, a.Act)
		if a.What == End && step == a.Of {
			step = -1
		}
	}
	return out
}
