package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Program is what the ranks of a job do: each computes by itself, and issues and awaits exchanges with others.
type Program struct {
	Groups    [][]int // the ranks of each
	Exchanges []Exchange
	Acts      [][]Act // by rank
}

// Exchange is an operation of all ranks of a group. With the kind Send, it is a message from the first one to the second one.
type Exchange struct {
	Kind  backend.Kind
	Group int
	Seq   uint64 // number in the group, from 1
	Root  int    // rank in the group
	Bytes int    // of the full buffer
}

// Act is what a rank does after it has computed.
type Act struct {
	Compute Time // before it
	Of      int  // the exchange that it begins, by its number in Exchanges (0 is the first one); -1: none
	Await   bool // it waits for the end of the exchange instead
}

// Played is when a program did what.
type Played struct {
	Time      Time     // of the rank that needs most
	Exchanges []Span   // of each
	Acts      [][]Span // from when a rank has computed to when it goes on
}

// player is a program on a network.
type player struct {
	*Program
	calls  []*call  // of the exchanges
	groups []*group // by Program.Groups
}

// Play runs a program. Collectives are those that the Tuner chooses.
func (t *Topology) Play(prog *Program) (*Played, error) {
	net, err := t.network(len(prog.Acts), everything)
	if err != nil {
		return nil, err
	}
	p := &player{Program: prog}
	for _, ranks := range p.Groups {
		p.groups = append(p.groups, net.group(ranks))
	}
	most := 0
	for _, e := range p.Exchanges {
		c := newCall(e.Kind, "", len(p.Groups[e.Group]), e.Bytes)
		c.Root, c.Seq = e.Root, e.Seq
		p.calls, most = append(p.calls, c), max(most, c.bytes)
	}
	n := len(p.calls)
	net.spans = make([]Span, n)
	for i, r := range net.group(upTo(len(p.Acts))).ranks {
		r.Memory(most) // one block, not a larger one again and again
		first := len(net.spans)
		r.start(func() error { return p.acts(r, first) })
		net.spans = append(net.spans, make([]Span, len(p.Acts[i]))...)
	}
	if err := net.run(); err != nil {
		return nil, err
	}
	out := &Played{Time: net.last, Exchanges: net.spans[:n]}
	for _, acts := range p.Acts {
		out.Acts = append(out.Acts, net.spans[n:][:len(acts)])
		n += len(acts)
	}
	return out, nil
}

// acts does those of a rank, which have a span each. Operations of a group are done one after the other, each in a thread of its own. As
// many as backend.Depth can be in flight; one more waits for the first of them.
func (p *player) acts(r *rank, span int) error {
	threadOf, queue := map[int]int{}, map[int][]int{} // numbers of threads: of exchanges, and those of a group
	for k, a := range p.Acts[r.number] {
		r.pause(a.Compute)
		_ = r.net.record(step{n: span + k, what: begin}) // the last step has the error, too
		if a.Of >= 0 && a.Await {
			n, begun := threadOf[a.Of]
			if !begun {
				return fmt.Errorf("sim: rank %d awaits exchange %d, which it has not begun", r.number, a.Of)
			}
			_ = r.join(n)
		} else if a.Of >= 0 {
			g := p.Exchanges[a.Of].Group
			threadOf[a.Of] = p.issue(r, a.Of, queue[g])
			queue[g] = append(queue[g], threadOf[a.Of])
		}
		if err := r.net.record(step{n: span + k, what: end}); err != nil {
			return err
		}
	}
	return nil
}

// issue begins an exchange on a rank, when those before it in its group are over. It returns the number of its thread.
func (p *player) issue(r *rank, of int, before []int) int {
	n, last := len(before), -1
	if n >= backend.Depth {
		_ = r.join(before[n-backend.Depth]) // the next step has the error, too
	}
	if n > 0 {
		last = before[n-1]
	}
	g := p.Exchanges[of].Group
	me := p.groups[g].ranks[slices.Index(p.Groups[g], r.number)]
	return me.fork(func() error { return p.exchange(me, of) }, last)
}

// exchange does an operation on a rank.
func (p *player) exchange(r *rank, of int) (err error) {
	_ = r.net.record(step{n: of, what: begin})
	c := p.calls[of]
	switch b := r.Memory(c.bytes); {
	case c.Kind != backend.Send:
		err = r.do(c)
	case r.number == 0:
		err = r.Send(1, 0, b)
	default:
		err = r.Recv(0, 0, b)
	}
	return cmp.Or(err, r.net.record(step{n: of, what: end}))
}
