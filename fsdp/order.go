package fsdp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// order is the order in which all ranks gather units, in a forward pass and the Backward after it, and how far this rank is. It
// communicates nothing: its methods return what the rank has to do, one action after the other (see Sharding.perform). So all ranks issue
// the same gathers one after the other, whatever each of them uses.
type order struct {
	list    []use // of forward, then of Backward
	forward int   // uses of forward
	pos     int   // the first use that is not over
	issued  int   // the first use whose gather was not issued
	learned bool  // a Backward was completed: list is known
	current *Unit // in use, and not kept; nil: none
	todo    []action
}

// use is a place in the order.
type use struct {
	u     *Unit
	phase tensor.Phase
}

// action is something that a rank does with a unit.
type action struct {
	do step
	u  *Unit
}

// step is the kind of an action. The first two have the numbers of their phases.
type step uint8

const (
	agreeForward    step = iota // compare over all ranks: the unit is used now
	agreeBackward               // the same in Backward
	agreeNewForward             // compare over all ranks: a forward pass had no Backward, and the next one begins with the unit
	unshard                     // issue the unit's gathers
	waitUnshard                 // wait for them
	reshard                     // free the unit's memory
)

// next returns what to do before a use of u.
func (o *order) next(u *Unit, phase tensor.Phase) ([]action, error) {
	o.todo = o.todo[:0]
	if u.gathered && (u == o.current || u.upToDate()) {
		return nil, nil
	}
	if !u.keep && u != o.current { // the unit in use may be gathered anew, where the order says so
		o.reshardCurrent()
	}
	k, err := o.find(u, phase)
	if err != nil {
		return nil, err
	}
	o.skipTo(k)
	o.unshard(k)
	o.add(waitUnshard, u)
	if !u.keep {
		o.current = u
	}
	o.pos = k + 1
	o.prefetch(phase)
	return o.todo, nil
}

// find returns the place of a use of u. If it is not in the rest of the order, all ranks agree that it is added, or that they go back to
// the beginning of the order.
func (o *order) find(u *Unit, phase tensor.Phase) (int, error) {
	if k := o.index(u, phase); k >= 0 {
		return k, nil
	}
	known := slices.Contains(o.list, use{u, phase})
	switch {
	case known && phase == tensor.Forward: // another forward pass: evaluation
		o.newForward(u)
		return o.index(u, phase), nil
	case known && o.learned:
		return 0, fmt.Errorf("%s is used at another place in Backward than in the first step", u.name)
	}
	o.add(step(phase), u)
	o.list = slices.Insert(o.list, o.pos, use{u, phase})
	if phase == tensor.Forward {
		o.forward++
	}
	o.issued++
	o.add(unshard, u)
	return o.pos, nil
}

// index returns the next place of u in a phase, or −1.
func (o *order) index(u *Unit, phase tensor.Phase) int {
	for k := o.pos; k < o.end(phase); k++ {
		if o.list[k] == (use{u, phase}) {
			return k
		}
	}
	return -1
}

func (o *order) end(phase tensor.Phase) int {
	if phase == tensor.Forward {
		return o.forward
	}
	return len(o.list)
}

// newForward ends a forward pass that had no Backward: the next one begins with u, on all ranks.
func (o *order) newForward(u *Unit) {
	o.skipTo(max(o.forward, o.issued))
	o.add(agreeNewForward, u)
	o.pos, o.issued = 0, 0
}

// skipTo goes on to place k. This rank did not use the units in between. Other ranks may use them, so this rank takes part in their
// gathers.
func (o *order) skipTo(k int) {
	for ; o.pos < k; o.pos++ {
		o.unshard(o.pos)
		u := o.list[o.pos].u
		if o.add(waitUnshard, u); u != o.current {
			o.add(reshard, u)
		}
	}
}

// unshard issues the gathers of place k, if they were not issued before.
func (o *order) unshard(k int) {
	if k < o.issued {
		return
	}
	o.issued = k + 1
	if u := o.list[k].u; !o.stays(u) {
		o.add(unshard, u)
	}
}

// prefetch issues the next gathers of a phase.
func (o *order) prefetch(phase tensor.Phase) {
	for k := o.pos; k < o.end(phase); k++ {
		if !o.stays(o.list[k].u) {
			o.unshard(k)
			return
		}
	}
}

// stays reports whether u needs no gather.
func (o *order) stays(u *Unit) bool {
	return u.upToDate() || u.keep && slices.Contains(o.todo, action{unshard, u})
}

func (o *order) add(do step, u *Unit) { o.todo = append(o.todo, action{do, u}) }

func (o *order) reshardCurrent() {
	if o.current != nil {
		o.add(reshard, o.current)
		o.current = nil
	}
}

// beginBackward completes the forward pass.
func (o *order) beginBackward() []action {
	o.todo = o.todo[:0]
	if o.issued > 0 || o.pos > 0 {
		o.skipTo(o.forward)
	} else { // another tape's Backward came after this one's forward pass
		o.pos, o.issued = o.forward, o.forward
	}
	o.prefetch(tensor.Backward)
	return o.todo
}

// endBackward takes part in the gathers of Backward that this rank does not need, and goes back to the beginning of the order.
func (o *order) endBackward() []action {
	o.todo = o.todo[:0]
	o.skipTo(len(o.list))
	o.reshardCurrent()
	o.pos, o.issued, o.learned = 0, 0, true
	return o.todo
}

// reshardAll frees the units that do not stay. Gathers that were issued are waited for.
func (o *order) reshardAll() []action {
	o.todo = o.todo[:0]
	o.skipTo(o.issued)
	o.reshardCurrent()
	return o.todo
}

// restart begins a forward pass with u, for which nothing is gathered yet.
func (o *order) restart(u *Unit) []action {
	o.todo = o.todo[:0]
	if o.pos > 0 {
		o.newForward(u)
	}
	o.reshardCurrent()
	return o.todo
}
