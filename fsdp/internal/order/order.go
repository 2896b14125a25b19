package order

import "slices"

// Order is the order in which all ranks gather units, in a forward pass and the Backward after it, and reduce their gradients, and how far
// this rank is.
//
// Its events are those of a tape: Use in forward, BeginBackward, Use and GradReady in Backward, EndBackward. Actions that an event returns
// are to be carried out before the next event, which writes over them.
type Order struct {
	units   []Unit
	uses    []use // of forward, then of Backward
	forward int   // uses of forward
	pos     int   // the first use that is not over
	issued  int   // the first use whose gather was not issued
	began   bool  // something was used in forward since the last Backward, perhaps only what stays
	learned bool  // a Backward was completed: uses are known
	current int   // the unit in use, unless it is kept; none: −1

	reduces  []int // units, from the last one used in forward to the first one, in which order their gradients are completed
	started  int   // of how many the reduction was issued
	hopped   int   // with two hops: of how many the second one was issued
	finished int
	reducing bool // this Backward reduces
	recorded bool // it is captured, and takes no new memory
	pools    []pool

	todo []Action
}

// Unit is what an Order knows of a unit.
type Unit struct {
	Keep bool     // values stay until they change
	Has  Sections // that have elements
	Pool int      // whose memory its whole gradients are lent: 0: nobody's, they have their own; 1: that of many units; 2 and more: of one
	Hops bool     // gradients are reduced in two hops

	gathered bool     // values may be used
	stale    Sections // changed since they were gathered
	awaited  int      // gradients that may still come in this Backward
	complete bool     // no more gradients will come in this Backward
	lent     bool     // gradients may be written in this Backward
}

// Sections are some of a unit's sections, each of which is gathered by itself.
type Sections uint8

// The sections.
const (
	Trained Sections = 1 << iota // what the optimizer changes
	Frozen                       // values without gradients
)

// use is a place in the order.
type use struct {
	unit int
	in   Phase
	late bool // the first step did not have it: the place is a guess, since units around it may have been left out
	used bool // in this forward pass or Backward
}

func isUse(unit int, in Phase) func(use) bool {
	return func(u use) bool { return u.unit == unit && u.in == in }
}

// Phase is forward or Backward.
type Phase uint8

// The phases.
const (
	Forward Phase = iota
	Backward
)

// Action is something that a rank does with a unit.
type Action struct {
	Do    Verb
	Unit  int
	Stale Sections // of Unshard: values that changed since the gather before
}

// Verb says what is done. The first two have the numbers of their phases.
type Verb uint8

// The verbs.
const (
	AgreeForward    Verb = iota // compare over all ranks: the unit is used now
	AgreeBackward               // the same in Backward
	AgreeNewForward             // compare over all ranks: a forward pass had no Backward, and the next one begins with the unit
	Misplaced                   // fail: Backward uses the unit at another place than in the first step
	Unshard                     // issue the unit's gathers
	WaitUnshard                 // wait for them
	Reshard                     // free the unit's values
	Lend                        // give memory to the unit's gradients
	Reduce                      // issue their reduction
	Hop                         // wait for its first hop, and issue the second one
	WaitReduce                  // wait for it, and free their memory
)

// New returns the Order of a job's units before their first use.
func New(units []Unit) *Order {
	o := &Order{units: units, current: -1, pools: make([]pool, len(units)+2)}
	o.todo = make([]Action, 0, 16*len(units)) // steps allocate nothing, however many reductions are over at once
	o.Forget()
	return o
}

// Changed says that values of a unit were changed.
func (o *Order) Changed(unit int, p Sections) { o.units[unit].stale |= p & o.units[unit].Has }

// Fresh reports whether values of a unit were gathered, or are being gathered, since they changed: a unit that stays, or a host, has them.
func (o *Order) Fresh(unit int, p Sections) bool { return o.units[unit].stale&p == 0 }

// Forget says that an action failed: whatever was gathered is not to be used.
func (o *Order) Forget() {
	for i := range o.units {
		u := &o.units[i]
		u.gathered, u.stale = false, u.Has
	}
}

func (u *Unit) upToDate() bool { return u.Keep && u.stale == 0 }

// Use returns what to do before a use of a unit.
func (o *Order) Use(unit int, in Phase) []Action {
	u := &o.units[unit]
	o.began = o.began || in == Forward
	if !u.gathered || unit != o.current && !u.upToDate() {
		if !u.Keep && unit != o.current { // the unit in use may be gathered anew, where the order says so
			o.reshardCurrent()
		}
		k := o.find(unit, in)
		if k < 0 {
			o.todo = o.todo[:0]
			o.add(Misplaced, unit)
			return o.actions()
		}
		o.skipTo(k)
		o.uses[k].used = true
		o.unshard(k)
		o.wait(unit)
		if !u.Keep {
			o.current = unit
		}
		o.pos = k + 1
		o.prefetch(in)
	}
	if in == Backward && !u.lent && !u.complete && u.Has&Trained != 0 { // frozen values may be used after the last gradient
		o.lend(unit)
	}
	return o.actions()
}

// find returns the place of a use of a unit. If it is not in the rest of the order, all ranks agree that it is added, or that they go back
// to the beginning of the order. In Backward they do not go back: −1.
func (o *Order) find(unit int, in Phase) int {
	if k := o.index(unit, in); k >= 0 {
		return k
	}
	known := slices.IndexFunc(o.uses, isUse(unit, in))
	if known >= 0 && o.learned && o.guessed(known) {
		return o.rearrange(known)
	}
	switch {
	case known >= 0 && in == Forward: // another forward pass: evaluation
		o.newForward(unit)
		return o.index(unit, in)
	case known >= 0 && o.learned:
		return -1
	}
	o.add(Verb(in), unit)
	o.uses = slices.Insert(o.uses, o.pos, use{unit: unit, in: in, late: o.learned})
	if in == Forward {
		o.forward++
	}
	o.issued++
	o.issue(unit)
	return o.pos
}

// guessed reports whether the use at k, whose turn is over, comes only now because it, or what was used behind it, is late.
func (o *Order) guessed(k int) bool {
	x := o.uses[k]
	first := func(u use) bool { return u.used && !u.late }
	return k < o.pos && o.pos <= o.end(x.in) && !x.used && (x.late || !slices.ContainsFunc(o.uses[k:o.pos], first))
}

// rearrange puts the use at k, or else the late ones that came before it, to where they are used now, and returns the new place of the use.
func (o *Order) rearrange(k int) int {
	x, passed := o.uses[k], o.uses[k:o.pos]
	at := o.pos - 1
	o.skipTo(o.issued)
	o.add(Verb(x.in), x.unit)
	if x.late {
		copy(passed, passed[1:])
		passed[len(passed)-1] = x
	} else {
		late := 0
		for i, u := range passed {
			if u.used {
				copy(passed[late+1:], passed[late:i])
				passed[late] = u
				late++
			}
		}
		at = k + late
	}
	o.pos, o.issued = at, at
	return at
}

// index returns the next place of a unit in a phase, or −1.
func (o *Order) index(unit int, in Phase) int {
	if k := slices.IndexFunc(o.uses[min(o.pos, o.end(in)):o.end(in)], isUse(unit, in)); k >= 0 {
		return o.pos + k
	}
	return -1
}

func (o *Order) end(in Phase) int {
	if in == Forward {
		return o.forward
	}
	return len(o.uses)
}

// newForward ends a forward pass that had no Backward: the next one begins with a unit, on all ranks.
func (o *Order) newForward(unit int) {
	o.skipTo(max(o.forward, o.issued))
	o.add(AgreeNewForward, unit)
	o.restart()
}

// restart goes back to the beginning of the order.
func (o *Order) restart() {
	o.pos, o.issued = 0, 0
	for i := range o.uses {
		o.uses[i].used = false
	}
}

// skipTo goes on to place k. This rank did not use the units in between. Other ranks may use them, so this rank takes part in their
// gathers.
func (o *Order) skipTo(k int) {
	for ; o.pos < k; o.pos++ {
		o.unshard(o.pos)
		unit := o.uses[o.pos].unit
		if o.wait(unit); unit != o.current {
			o.reshard(unit)
		}
	}
}

// prefetch issues the next gathers of a phase.
func (o *Order) prefetch(in Phase) {
	for k := o.pos; k < o.end(in); k++ {
		if !o.units[o.uses[k].unit].upToDate() {
			o.unshard(k)
			return
		}
	}
}

// unshard issues the gathers of place k, if they were not issued before.
func (o *Order) unshard(k int) {
	if k < o.issued {
		return
	}
	o.issued = k + 1
	o.issue(o.uses[k].unit)
}

// issue issues the gathers of a unit, unless it stays.
func (o *Order) issue(unit int) {
	if u := &o.units[unit]; !u.upToDate() {
		o.todo = append(o.todo, Action{Unshard, unit, u.stale})
		u.gathered, u.stale = false, 0
	}
}

func (o *Order) wait(unit int) {
	if u := &o.units[unit]; !u.gathered {
		o.add(WaitUnshard, unit)
		u.gathered = true
	}
}

// reshard frees the values of a unit, unless they stay.
func (o *Order) reshard(unit int) {
	if u := &o.units[unit]; !u.Keep {
		o.add(Reshard, unit)
		u.gathered = false
	}
}

func (o *Order) reshardCurrent() {
	if o.current >= 0 {
		o.reshard(o.current)
		o.current = -1
	}
}

// actions returns what an event led to.
func (o *Order) actions() []Action {
	todo := o.todo
	o.todo = todo[:0]
	return todo
}

func (o *Order) add(do Verb, unit int) { o.todo = append(o.todo, Action{Do: do, Unit: unit}) }

// Stepped says that the optimizer changes what was trained.
func (o *Order) Stepped() {
	for _, unit := range o.reduces {
		o.Changed(unit, Trained)
	}
}

// ReshardAll frees the units that do not stay. Gathers that were issued are waited for.
func (o *Order) ReshardAll() []Action {
	o.skipTo(o.issued)
	o.reshardCurrent()
	return o.actions()
}

// Record begins a forward pass with a unit, for which nothing that trains is gathered yet.
func (o *Order) Record(unit int) []Action {
	if o.pos > 0 {
		o.newForward(unit)
	}
	o.reshardCurrent()
	for i := range o.units {
		o.Changed(i, Trained)
	}
	return o.actions()
}

// Replay gathers the frozen values of units that stay, where they changed.
func (o *Order) Replay() []Action {
	for i := range o.units {
		if u := &o.units[i]; u.Keep && u.stale&Frozen != 0 {
			o.todo = append(o.todo, Action{Unshard, i, Frozen})
			u.stale &^= Frozen
		}
	}
	return o.actions()
}
