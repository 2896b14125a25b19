package pp

import (
	"fmt"
	"slices"
	"strings"
)

// Costs are the times of a stage's computations, and of a message to another rank.
type Costs struct{ F, I, W, Send float64 }

func (c Costs) of(k Kind) float64 { return [...]float64{F: c.F, B: c.I + c.W, I: c.I, W: c.W}[k] }

// Limit says how much each rank may hold at once, in microbatches of a stage; 0: any number. See Report.
type Limit struct{ Live, PutOff, Held int }

// Report is what a schedule needs. Slices are by rank.
type Report struct {
	Live    []int // most microbatches of stages with activations: F is done, B or I is not
	PutOff  []int // most whose weight gradients are put off: I is done, W is not
	Held    []int // most of both together
	Waiting []int // most messages of one sender that are there before they are used
	Ordered bool  // between any two ranks, messages are used in the order in which they are sent
	Sync    bool  // the schedule ends, too, if a send waits until the receiver is about to use it

	Start  [][]float64 // when each action begins
	Time   float64     // when the last one ends
	Bubble float64     // part of the time of all ranks in which they wait
}

// Check finds out, without running it, what a schedule needs. It returns an error with up to twelve reasons, unless each stage does each
// microbatch once, in an order that is possible, and no rank holds more than the limit.
func (s *Schedule) Check(c Costs, most Limit) (*Report, error) {
	k := &checker{Schedule: s}
	k.complete()
	if k.failed() {
		return nil, k.error()
	}
	k.simulate(c)
	if k.failed() {
		return nil, k.error()
	}
	k.messages()
	k.rep.Sync = k.synchronous()
	for r := range s.Actions {
		k.limit(r, "activations of", k.rep.Live[r], most.Live)
		k.limit(r, "put-off weight gradients of", k.rep.PutOff[r], most.PutOff)
		k.limit(r, "activations or put-off weight gradients of", k.rep.Held[r], most.Held)
	}
	return &k.rep, k.error()
}

// checker is a Check that runs.
type checker struct {
	*Schedule
	rep     Report
	reasons []string
}

func (k *checker) refuse(format string, a ...any) {
	k.reasons = append(k.reasons, fmt.Sprintf(format, a...))
}

func (k *checker) failed() bool { return len(k.reasons) > 0 }

func (k *checker) error() error {
	const most = 12
	list := k.reasons
	switch n := len(list); {
	case n == 0:
		return nil
	case n > most:
		list = append(list[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return fmt.Errorf("pp: schedule %s: %s", k.Name, strings.Join(list, "; "))
}

func (k *checker) limit(rank int, what string, n, most int) {
	if most > 0 && n > most {
		k.refuse("rank %d holds %s %d microbatches, and the limit is %d", rank, what, n, most)
	}
}

// at is the place of an action in a table of all. That of I is B's, too.
func (s *Schedule) at(a Action) int {
	pass := [...]int{F: 0, B: 1, I: 1, W: 2}[a.Kind]
	return (a.Stage*s.Micros+a.Micro)*3 + pass
}

// table returns one false for each place.
func table[T any](s *Schedule) []T { return make([]T, 3*len(s.Ranks)*s.Micros) }

// complete refuses actions that are wrong, missing or there twice.
func (k *checker) complete() {
	if len(k.Ranks) == 0 || k.Micros < 1 {
		k.refuse("%d stages and %d microbatches: it needs one or more of each", len(k.Ranks), k.Micros)
		return
	}
	n := 0
	for _, list := range k.Actions {
		n += len(list)
	}
	if n/len(k.Ranks) < k.Micros {
		k.refuse("%d actions are too few for %d stages and %d microbatches", n, len(k.Ranks), k.Micros)
		return
	}
	trains, counts := false, map[Action]int{}
	for r, list := range k.Actions {
		for _, a := range list {
			switch {
			case a.Kind > W || a.Stage < 0 || a.Stage >= len(k.Ranks) || a.Micro < 0 || a.Micro >= k.Micros:
				k.refuse("rank %d: %+v: there are stages 0 to %d and microbatches 0 to %d", r, a, len(k.Ranks)-1, k.Micros-1)
			case k.Ranks[a.Stage] != r:
				k.refuse("rank %d: %v: stage %d is on rank %d", r, a, a.Stage, k.Ranks[a.Stage])
			}
			counts[a]++
			trains = trains || a.Kind != F
		}
	}
	for stage := range k.Ranks {
		for m := range k.Micros {
			k.completeOne(stage, m, trains, counts)
		}
	}
}

func (k *checker) completeOne(stage, m int, trains bool, counts map[Action]int) {
	f, b := counts[Action{F, stage, m}], counts[Action{B, stage, m}]
	i, w := counts[Action{I, stage, m}], counts[Action{W, stage, m}]
	switch {
	case f != 1:
		k.refuse("%v is there %d times, not once", Action{F, stage, m}, f)
	case trains && b+i != 1:
		k.refuse("stage %d has %d backward passes of microbatch %d, not one", stage, b+i, m)
	case w != i:
		k.refuse("%v is there %d times, and %v %d times", Action{I, stage, m}, i, Action{W, stage, m}, w)
	}
}

// needs returns the actions whose results a needs: on its own rank, and on another one; none: they are a itself.
func (s *Schedule) needs(a Action) (list [2]Action) {
	list = [2]Action{a, a}
	switch {
	case a.Kind == W:
		list[0].Kind = I
	case a.Kind == F && a.Stage > 0:
		list[0].Stage--
	case a.Kind != F:
		list[0].Kind = F
		if a.Stage < len(s.Ranks)-1 {
			list[1] = Action{I, a.Stage + 1, a.Micro}
		}
	}
	return list
}

// simulate gives each action its time, if sends do not wait.
func (k *checker) simulate(c Costs) {
	n := len(k.Actions)
	k.rep = Report{Live: make([]int, n), PutOff: make([]int, n), Held: make([]int, n), Waiting: make([]int, n), Start: make([][]float64, n)}
	done, free := slices.Repeat([]float64{-1}, len(table[bool](k.Schedule))), make([]float64, n) // done: -1 before
	for moved := true; moved; {
		moved = false
		for r, list := range k.Actions {
			for len(k.rep.Start[r]) < len(list) {
				a := list[len(k.rep.Start[r])]
				t, ready := k.ready(a, done, free[r], c.Send)
				if !ready {
					break
				}
				k.rep.Start[r] = append(k.rep.Start[r], t)
				free[r] = t + c.of(a.Kind)
				done[k.at(a)], moved = free[r], true
			}
		}
	}
	for r, list := range k.Actions {
		if at := len(k.rep.Start[r]); at < len(list) {
			k.stuck(r, list[at], done)
		}
		k.hold(r)
	}
	k.bubble(c, free)
}

// ready returns when an action can begin.
func (k *checker) ready(a Action, done []float64, free, send float64) (t float64, ok bool) {
	t = free
	for _, b := range k.needs(a) {
		if b == a {
			continue
		}
		end := done[k.at(b)]
		if end < 0 {
			return 0, false
		}
		if k.Ranks[b.Stage] != k.Ranks[a.Stage] {
			end += send
		}
		t = max(t, end)
	}
	return t, true
}

// stuck says for what a rank waits for ever.
func (k *checker) stuck(r int, a Action, done []float64) {
	for _, b := range k.needs(a) {
		if b == a || done[k.at(b)] >= 0 {
			continue
		}
		where, q := "which comes later on this rank", k.Ranks[b.Stage]
		if q != r {
			where = fmt.Sprintf("of rank %d, which waits at %v before it", q, k.Actions[q][len(k.rep.Start[q])])
		}
		k.refuse("rank %d waits for ever at %v for %v, %s", r, a, b, where)
	}
}

// hold counts what a rank holds.
func (k *checker) hold(r int) {
	live, putOff := 0, 0
	for _, a := range k.Actions[r] {
		d := [...][2]int{F: {1, 0}, B: {-1, 0}, I: {-1, 1}, W: {0, -1}}[a.Kind]
		live, putOff = live+d[0], putOff+d[1]
		k.rep.Live[r], k.rep.PutOff[r] = max(k.rep.Live[r], live), max(k.rep.PutOff[r], putOff)
		k.rep.Held[r] = max(k.rep.Held[r], live+putOff)
	}
}

func (k *checker) bubble(c Costs, free []float64) {
	work := 0.0
	for r, list := range k.Actions {
		for _, a := range list {
			work += c.of(a.Kind)
		}
		k.rep.Time = max(k.rep.Time, free[r])
	}
	if k.rep.Time > 0 {
		k.rep.Bubble = 1 - work/(k.rep.Time*float64(len(k.Actions)))
	}
}

// sends returns the rank to which an action's result goes, or -1.
func (s *Schedule) sends(a Action) (to int) {
	next := a.Stage + 1
	if a.Kind != F {
		next = a.Stage - 1
	}
	if a.Kind == W || next < 0 || next >= len(s.Ranks) || s.Ranks[next] == s.Ranks[a.Stage] {
		return -1
	}
	return s.Ranks[next]
}

// gets returns the action of another rank whose result an action needs.
func (s *Schedule) gets(a Action) (from Action, ok bool) {
	for _, b := range s.needs(a) {
		if b != a && s.Ranks[b.Stage] != s.Ranks[a.Stage] {
			return b, true
		}
	}
	return a, false
}

// numbers returns the number of an action's message, among all of its rank to the same one, and how many these are.
func (s *Schedule) numbers() (number []int, sent map[[2]int]int) {
	number, sent = table[int](s), map[[2]int]int{}
	for r, list := range s.Actions {
		for _, a := range list {
			if to := s.sends(a); to >= 0 {
				number[s.at(a)] = sent[[2]int{r, to}]
				sent[[2]int{r, to}]++
			}
		}
	}
	return number, sent
}

// messages compares the orders in which messages are sent and used.
func (k *checker) messages() {
	k.rep.Ordered = true
	number, _ := k.numbers()
	for r, list := range k.Actions {
		come, used := map[int]int{}, map[int]int{} // from each rank
		for _, a := range list {
			b, ok := k.gets(a)
			if !ok {
				continue
			}
			from := k.Ranks[b.Stage]
			come[from] = max(come[from], number[k.at(b)]+1)
			used[from]++
			if n := come[from] - used[from]; n > 0 {
				k.rep.Ordered = false
				k.rep.Waiting[r] = max(k.rep.Waiting[r], n)
			}
		}
	}
}

// synchronous reports whether the schedule ends if each send waits until the receiver is about to use it.
func (k *checker) synchronous() bool {
	n := len(k.Actions)
	pos, done := make([]int, n), table[bool](k.Schedule)
	sending := slices.Repeat([]int{-1}, n) // a place in the table, or -1
	for moved := true; moved; {
		moved = false
		for r, list := range k.Actions {
			for pos[r] < len(list) && sending[r] < 0 && k.take(list[pos[r]], done, sending) {
				a := list[pos[r]]
				done[k.at(a)], moved = true, true
				if k.sends(a) >= 0 {
					sending[r] = k.at(a)
				}
				pos[r]++
			}
		}
	}
	for r, list := range k.Actions {
		if pos[r] < len(list) {
			return false
		}
	}
	return !slices.ContainsFunc(sending, func(at int) bool { return at >= 0 })
}

// take reports whether an action can begin, and takes what another rank sends it.
func (k *checker) take(a Action, done []bool, sending []int) bool {
	for _, b := range k.needs(a) {
		if b != a && k.Ranks[b.Stage] == k.Ranks[a.Stage] && !done[k.at(b)] {
			return false
		}
	}
	b, ok := k.gets(a)
	if !ok {
		return true
	}
	from := k.Ranks[b.Stage]
	if sending[from] != k.at(b) {
		return false
	}
	sending[from] = -1
	return true
}
