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
	Live    []int // most microbatches of stages with activations: F is done, B or I is not; without backward passes: that are needed
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
	if k.complete(); len(k.reasons) == 0 {
		k.measure(c)
	}
	if len(k.reasons) > 0 {
		return nil, k.error()
	}
	k.messages()
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

func (k *checker) error() error {
	const most = 12
	list := k.reasons
	if len(list) == 0 {
		return nil
	}
	if n := len(list) - most; n > 0 {
		list = append(list[:most:most], fmt.Sprintf("and %d more", n))
	}
	return fmt.Errorf("pp: schedule %s: %s", k.Name, strings.Join(list, "; "))
}

func (k *checker) limit(rank int, what string, n, most int) {
	if most > 0 && n > most {
		k.refuse("rank %d holds %s %d microbatches, and the limit is %d", rank, what, n, most)
	}
}

// complete refuses actions that are wrong, missing or there twice.
func (k *checker) complete() {
	if len(k.Ranks) == 0 || k.Micros < 1 {
		k.refuse("%d stages and %d microbatches: it needs one or more of each", len(k.Ranks), k.Micros)
		return
	}
	n := len(slices.Concat(k.Actions...))
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

// measure finds the times, if sends do not wait, and what ranks hold.
func (k *checker) measure(c Costs) {
	n, work, end := len(k.Actions), 0.0, []float64(nil)
	k.rep = Report{Live: make([]int, n), PutOff: make([]int, n), Held: make([]int, n), Waiting: make([]int, n)}
	k.rep.Start, end = k.simulate(c, false)
	sync, _ := k.simulate(c, true)
	k.rep.Sync = slices.EqualFunc(sync, k.Actions, func(begun []float64, list []Action) bool { return len(begun) == len(list) })
	for r, list := range k.Actions {
		if at := len(k.rep.Start[r]); at < len(list) {
			k.stuck(r, list[at], end)
		}
		live, putOff, trains := 0, 0, k.trains()
		for _, a := range list {
			work += c.of(a.Kind)
			d := [...][2]int{F: {1, 0}, B: {-1, 0}, I: {-1, 1}, W: {0, -1}}[a.Kind]
			live, putOff = live+d[0], putOff+d[1]
			k.rep.Live[r], k.rep.PutOff[r] = max(k.rep.Live[r], live), max(k.rep.PutOff[r], putOff)
			k.rep.Held[r] = max(k.rep.Held[r], live+putOff)
			if !trains {
				live -= k.ended(a)
			}
		}
	}
	if k.rep.Time = slices.Max(end); k.rep.Time > 0 {
		k.rep.Bubble = 1 - work/(k.rep.Time*float64(n))
	}
}

// ended returns how many passes nothing needs any more after a, a forward pass of a schedule without backward ones: with that of a, those
// of the stages before it on the same rank.
func (k *checker) ended(a Action) (n int) {
	if _, sent := k.sends(a); !sent && !k.isLast(a.Stage) {
		return 0
	}
	for n = 1; a.Stage >= n && k.Ranks[a.Stage-n] == k.Ranks[a.Stage]; n++ {
	}
	return n
}

// simulate returns when each rank's actions begin, and when each action ends; -1: never. If sends wait, a rank goes on when the receiver
// begins what needs its message.
func (s *Schedule) simulate(c Costs, wait bool) (start [][]float64, end []float64) {
	start, end = make([][]float64, len(s.Actions)), slices.Repeat([]float64{-1}, s.places())
	free := make([]float64, len(s.Actions))
	used := func(a Action) bool { b, sent := s.sends(a); return !sent || end[s.at(b)] >= 0 }
	for moved := true; moved; {
		moved = false
		for r, list := range s.Actions {
			for i := len(start[r]); i < len(list); i++ {
				t, ready := s.ready(list[i], end, free[r], c.Send)
				if !ready || wait && i > 0 && !used(list[i-1]) {
					break
				}
				start[r] = append(start[r], t)
				free[r] = t + c.of(list[i].Kind)
				end[s.at(list[i])], moved = free[r], true
			}
		}
	}
	return start, end
}

// ready returns when an action can begin on a rank that is free.
func (s *Schedule) ready(a Action, done []float64, free, send float64) (t float64, ok bool) {
	for b := range s.needs(a) {
		end := done[s.at(b)]
		if end < 0 {
			return 0, false
		}
		if s.Ranks[b.Stage] != s.Ranks[a.Stage] {
			end += send
		}
		free = max(free, end)
	}
	return free, true
}

// stuck says for what a rank waits for ever.
func (k *checker) stuck(r int, a Action, done []float64) {
	for b := range k.needs(a) {
		if done[k.at(b)] >= 0 {
			continue
		}
		where, q := "which comes later on this rank", k.Ranks[b.Stage]
		if q != r {
			where = fmt.Sprintf("of rank %d, which waits at %v before it", q, k.Actions[q][len(k.rep.Start[q])])
		}
		k.refuse("rank %d waits for ever at %v for %v, %s", r, a, b, where)
	}
}

// messages compares the orders in which messages are sent and used.
func (k *checker) messages() {
	for r, list := range k.tasks() {
		come, used := map[int]int{}, map[int]int{} // from each rank
		for _, t := range list {
			if t.from >= 0 {
				come[t.from] = max(come[t.from], t.index+1)
				used[t.from]++
				k.rep.Waiting[r] = max(k.rep.Waiting[r], come[t.from]-used[t.from])
			}
		}
	}
	k.rep.Ordered = slices.Max(k.rep.Waiting) == 0
}
