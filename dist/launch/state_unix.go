//go:build linux || darwin

package launch

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// maxAsked is how many ranks are asked for their State because an operation waited for them. More would hide the cause.
const maxAsked = 4

// keepState writes the State of a worker to a file, and hands on what the coordinator asked for.
func (a *agent) keepState(p *proc, s *State) {
	f, err := a.openLog(p.rank, "state")
	if f != nil {
		_, err = fmt.Fprintf(f, "the last operations:\n%s\nall goroutines:\n%s\n", s.Last, s.All)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		a.output.fail(err)
	}
	last := s.Last[strings.LastIndexByte(strings.TrimSuffix(s.Last, "\n"), '\n')+1:]
	a.wire.send(note{State: &stateOf{Gen: a.start.Gen, Rank: p.rank, What: State{Last: last, Stack: s.Stack[:min(len(s.Stack), maxText)]}}})
}

// late handles that an operation waited in vain for ranks.
func (c *coordinator) late(ranks []int) {
	for _, rank := range ranks {
		if rank >= 0 && rank < len(c.ranks) && c.asked < maxAsked {
			c.ask(rank)
		}
	}
}

// ask asks a rank for its State, once in a generation.
func (c *coordinator) ask(rank int) {
	r := &c.ranks[rank]
	if r.asked || r.ended || r.lost {
		return
	}
	r.asked = true
	c.asked++
	for _, n := range c.members {
		if n.hasRank(rank) {
			n.wire.send(note{Ask: []int{rank}})
		}
	}
}

// told handles the answer to ask. What a rank says that failed before it was asked is not of interest.
func (c *coordinator) told(s *stateOf) {
	r := &c.ranks[s.Rank]
	if !r.asked || r.state != nil || s.What.Stack == "" && !c.stalled {
		return
	}
	r.state = &s.What
	if c.stalled {
		c.endStalled(true)
		return
	}
	text := fmt.Sprintf("%s, for which others waited, was here:\n%s", c.rankName(s.Rank), s.What.Stack)
	for _, n := range c.nodes {
		n.wire.send(note{Notice: text})
	}
}

// checkWork tells the coordinator, if it wants to know, when a worker got further.
func (a *agent) checkWork() {
	worked := false
	for _, p := range a.procs {
		worked = p.worked.Swap(false) || worked
	}
	if worked && a.start.Stall {
		a.wire.send(note{Work: a.start.Gen})
	}
}

// worked notes that a rank got further, or begins.
func (c *coordinator) worked() {
	if c.config.Stall > 0 && !c.stalled {
		c.stall.Reset(c.config.Stall)
	}
}

// stallOver handles that no rank got further for too long. First all ranks are asked what they do.
func (c *coordinator) stallOver() {
	if c.stalled {
		c.endStalled(false)
		return
	}
	if c.firstCause() != nil || c.signal != 0 {
		return
	}
	c.stalled = true
	for rank := range c.ranks {
		c.ranks[rank].asked, c.ranks[rank].state = false, nil
		c.ask(rank)
	}
	c.stall.Reset(answerTime)
}

// endStalled ends a generation in which no rank gets further. With wait it does so only if all ranks have answered.
func (c *coordinator) endStalled(wait bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "no rank got further within %v (-stall)", c.config.Stall)
	for rank := range c.ranks {
		r := &c.ranks[rank]
		switch {
		case r.ended || r.lost:
		case r.state != nil:
			last := strings.TrimPrefix(strings.TrimSpace(r.state.Last), fmt.Sprintf("rank %d: ", rank))
			fmt.Fprintf(&b, "\n%s: last %s\n%s", c.rankName(rank), cmp.Or(last, "no operation"), r.state.Stack)
		case wait:
			return
		default:
			fmt.Fprintf(&b, "\n%s does not say what it does", c.rankName(rank))
		}
	}
	if c.firstCause() == nil && c.signal == 0 {
		c.fail(cause{kind: Primary, last: len(c.ranks) - 1, by: -1, text: b.String()})
		c.sendToMembers(note{Kill: true})
	}
}
