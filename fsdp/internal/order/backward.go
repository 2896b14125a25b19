package order

import "slices"

// inFlight is the number of units of a pool whose whole gradients are in memory at a time: Backward writes one, and one is being reduced.
// If Backward needs more units at once, there are more.
const inFlight = 2

// pool counts the loans that package pool makes for Lend and WaitReduce, so that Order can decide without memory.
type pool struct{ made, lent int }

// BeginBackward completes the forward pass. reduce is false if gradients wait for those of later microbatches.
func (o *Order) BeginBackward(reduce, recorded bool) []Action {
	if o.began || o.pos > 0 {
		o.skipTo(o.forward)
	} else { // another tape's Backward came after this one's forward pass
		o.pos, o.issued = o.forward, o.forward
	}
	o.prefetch(Backward)
	o.started, o.hopped, o.finished, o.reducing, o.recorded, o.reduces = 0, 0, 0, reduce, recorded, o.reduces[:0]
	for _, use := range o.uses[:o.forward] {
		if o.units[use.unit].Has&Trained != 0 && !slices.Contains(o.reduces, use.unit) {
			o.reduces = append(o.reduces, use.unit)
		}
	}
	slices.Reverse(o.reduces)
	return o.actions()
}

// Reduces returns the units whose gradients this Backward reduces, in the order of all ranks.
func (o *Order) Reduces() []int { return o.reduces }

// Await says how many gradients of a unit may come in this Backward.
func (o *Order) Await(unit, gradients int) {
	u := &o.units[unit]
	u.awaited, u.complete = gradients, gradients == 0
}

// Complete reports whether no more gradients of a unit come in this Backward.
func (o *Order) Complete(unit int) bool { return o.units[unit].complete }

// GradReady counts a gradient.
func (o *Order) GradReady(unit int) []Action {
	u := &o.units[unit]
	if !u.lent { // the gradient was computed before this Backward began, and is added now (see tensor.DeferWeights)
		o.lend(unit)
	}
	if u.awaited--; u.awaited <= 0 && o.reducing {
		u.complete = true
		o.reduceReady()
	}
	return o.actions()
}

// Ready reduces the units that await no gradient.
func (o *Order) Ready() []Action {
	if o.reducing {
		o.reduceReady()
	}
	return o.actions()
}

// reduceReady reduces complete units, in the order of all ranks. A rank that did not use a unit reduces zeros at the same place in the
// order, and not later: other ranks may wait for that before they go on.
func (o *Order) reduceReady() {
	for o.started < len(o.reduces) && o.Complete(o.reduces[o.started]) {
		o.reduce()
	}
}

func (o *Order) reduce() {
	unit := o.reduces[o.started]
	if !o.units[unit].lent {
		o.lend(unit)
	}
	o.add(Reduce, unit)
	o.started++
}

// lend gives memory to the gradients of a unit. If there is none, it waits for reductions.
func (o *Order) lend(unit int) {
	u := &o.units[unit]
	p, least := &o.pools[u.Pool], inFlight
	if o.recorded {
		least = 0
	}
	for u.Pool > 0 && p.lent == p.made && p.lent >= least && o.finished < o.started {
		if o.hopped == o.finished {
			o.hop()
		}
		o.waitReduce()
	}
	o.add(Lend, unit)
	u.lent = true
	p.lent++
	p.made = max(p.made, p.lent)
}

func (o *Order) hop() {
	if unit := o.reduces[o.hopped]; o.units[unit].Hops {
		o.add(Hop, unit)
	}
	o.hopped++
}

func (o *Order) waitReduce() {
	o.add(WaitReduce, o.reduces[o.finished])
	o.giveBack(o.reduces[o.finished])
	o.finished++
}

func (o *Order) giveBack(unit int) {
	if u := &o.units[unit]; u.lent {
		u.lent = false
		o.pools[u.Pool].lent--
	}
}

// Finish goes on with those reductions that have come to the end of a hop. Call it again until there is nothing to do.
func (o *Order) Finish(over func(unit int) bool) []Action {
	for o.hopped < o.started && over(o.reduces[o.hopped]) {
		o.hop()
	}
	for o.finished < o.hopped {
		unit := o.reduces[o.finished]
		if slices.Contains(o.todo, Action{Do: Hop, Unit: unit}) || !over(unit) {
			break
		}
		o.waitReduce()
	}
	return o.actions()
}

// EndBackward takes part in what this rank does not need, the gathers of Backward and reductions, and goes back to the beginning of the
// order.
func (o *Order) EndBackward() []Action {
	o.skipTo(len(o.uses))
	o.reshardCurrent()
	o.began, o.learned = false, true
	o.restart()
	for o.reducing && o.started < len(o.reduces) {
		o.reduce()
	}
	return o.actions()
}

// Abandon says that this Backward failed: the memory of its gradients is given back.
func (o *Order) Abandon() {
	for _, unit := range o.reduces {
		o.giveBack(unit)
	}
}
