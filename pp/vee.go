package pp

import (
	"fmt"
	"strings"
)

// The schedules on a V are made of a block (Qi et al. 2024, arXiv:2405.15362): how one microbatch goes through the ranks. Each one
// follows the one before after six units, those of its passes and their weight gradients on a rank. The longer the way, the more
// microbatches a rank holds, and the less it waits. The paper gives a block for each amount of memory; here the best one for the amount is
// searched for, because which is best also depends on the number of ranks.

// ZBV has stages on a V and no bubble, in the memory of OneF1B: each rank holds 2·ranks microbatches of its two stages (ZB-V, Qi et al.
// 2023, arXiv:2401.10241). If F, I and W take equally long, the last rank waits for its first microbatch, and no rank for more.
func ZBV(ranks, micros int) (*Schedule, error) { return onVee("zbv", ranks, micros, 2*ranks) }

// VHalf is ZBV with about half of the memory, ranks+2, and half of the bubble of OneF1B.
func VHalf(ranks, micros int) (*Schedule, error) { return onVee("v-half", ranks, micros, ranks+2) }

// VMin is ZBV with about a third of the memory, 2·(ranks+4)/3, and two thirds of the bubble of OneF1B.
func VMin(ranks, micros int) (*Schedule, error) { return onVee("v-min", ranks, micros, 2*(ranks+4)/3) }

// onVee returns the shortest schedule in which ranks hold at most so many microbatches of their stages.
func onVee(name string, ranks, micros, held int) (*Schedule, error) {
	if ranks < 1 || micros < 1 {
		return nil, fmt.Errorf("pp: %s of %d ranks and %d microbatches: it needs one or more of each", name, ranks, micros)
	}
	probe := min(micros, 4*ranks) // from then on all goes on alike
	best, shortest := block{}, 0
	for b := range blocks {
		if !b.fits(ranks) {
			continue
		}
		f := newFiller(ranks, probe, held, b)
		if time, ok := f.fill(shortest); ok {
			best, shortest = b, time
		}
		if shortest == period*probe+ranks-1 { // nothing is shorter
			break
		}
	}
	if shortest == 0 {
		return nil, fmt.Errorf("pp: %s: no schedule of %d ranks holds at most %d microbatches", name, ranks, held)
	}
	f := newFiller(ranks, micros, held, best)
	if _, ok := f.fill(0); !ok {
		return nil, fmt.Errorf("pp: %s: no schedule of %d ranks and %d microbatches holds at most %d", name, ranks, micros, held)
	}
	f.s.Name = name
	return f.s, nil
}

// period is the time of a microbatch on a rank: two stages with F, I and W of a unit.
const period = 6

// block is the way of one microbatch: how many units after the rank before a rank begins, forward on the way there and back, and
// backward; and how many later the last rank, the first one, and again the last one begin the next way.
type block struct {
	hops  [4]int
	turns [3]int
}

// blocks are those with hops of one and two units, behind the one of ZBV.
func blocks(yield func(block) bool) {
	hops := [][4]int{{2, 4, 2, 4}}
	for i := range 16 {
		hops = append(hops, [4]int{1 + i>>3, 1 + i>>2&1, 1 + i>>1&1, 1 + i&1})
	}
	for _, h := range hops {
		for i := range period * period * period {
			if !yield(block{h, [3]int{1 + i/period/period, 1 + i/period%period, 1 + i%period}}) {
				return
			}
		}
	}
}

// begins returns when rank r begins its passes of the first microbatch: forward on its first and second stage, backward on these.
func (b block) begins(r, ranks int) (t [4]int) {
	last := ranks - 1
	t[0] = b.hops[0] * r
	t[1] = b.hops[0]*last + b.turns[0] + b.hops[1]*(last-r)
	top := (b.hops[0]+b.hops[1])*last + b.turns[0] + b.turns[1]
	t[2] = top + b.hops[2]*r
	t[3] = top + b.hops[2]*last + b.turns[2] + b.hops[3]*(last-r)
	return t
}

// fits reports whether no two passes of a rank are at the same time.
func (b block) fits(ranks int) bool {
	for r := range ranks {
		taken := [period]bool{}
		for _, t := range b.begins(r, ranks) {
			if taken[t%period] {
				return false
			}
			taken[t%period] = true
		}
	}
	return true
}

// order returns rank r's passes, without weight gradients.
func (b block) order(r, ranks, micros int) (list []Action) {
	passes, begins := [4]Action{{F, r, 0}, {F, 2*ranks - 1 - r, 0}, {I, 2*ranks - 1 - r, 0}, {I, r, 0}}, b.begins(r, ranks)
	for t := 0; len(list) < len(passes)*micros; t++ {
		for i, a := range passes {
			if since := t - begins[i]; since%period == 0 && since >= 0 && since < period*micros {
				a.Micro = since / period
				list = append(list, a)
			}
		}
	}
	return list
}

// filler does the passes of a block as early as possible, and weight gradients where a rank would wait, or has no room.
type filler struct {
	s     *Schedule
	order [][]Action
	done  []int // when an action was begun, from 1 on
	held  []int
	put   [][]Action // weight gradients that are put off
	most  int
}

func newFiller(ranks, micros, most int, b block) *filler {
	f := &filler{s: &Schedule{Micros: micros, Ranks: vee(ranks), Actions: make([][]Action, ranks)},
		held: make([]int, ranks), put: make([][]Action, ranks), most: most}
	f.done = make([]int, f.s.places())
	for r := range ranks {
		f.order = append(f.order, b.order(r, ranks, micros))
	}
	return f
}

// fill returns how long all takes, or false if it cannot be done in less than limit units; 0: at all.
func (f *filler) fill(limit int) (time int, ok bool) {
	for left := len(f.done); left > 0; {
		if time++; time == limit {
			return 0, false
		}
		did := 0
		for r := range f.order {
			if f.unit(r, time) {
				did++
			}
		}
		if did == 0 { // nothing is under way: so it stays
			return 0, false
		}
		left -= did
	}
	return time, true
}

// unit has rank r do what is possible at a time.
func (f *filler) unit(r, time int) bool {
	var a Action
	switch order := f.order[r]; {
	case len(order) > 0 && f.possible(order[0], r, time):
		a, f.order[r] = order[0], order[1:]
	case len(f.put[r]) > 0:
		a, f.put[r] = f.put[r][0], f.put[r][1:]
	default:
		return false
	}
	switch a.Kind {
	case F:
		f.held[r]++
	case I:
		f.put[r] = append(f.put[r], Action{W, a.Stage, a.Micro})
	case W:
		f.held[r]--
	}
	f.done[f.s.at(a)], f.s.Actions[r] = time, append(f.s.Actions[r], a)
	return true
}

func (f *filler) possible(a Action, r, time int) bool {
	if a.Kind == F && f.held[r] == f.most {
		return false
	}
	for b := range f.s.needs(a) {
		if at := f.done[f.s.at(b)]; at == 0 || at == time {
			return false
		}
	}
	return true
}

// vee places stages there and back: rank 0 has the first and the last one.
func vee(ranks int) []int {
	place := make([]int, 2*max(ranks, 0))
	for i := range place {
		place[i] = min(i, 2*ranks-1-i)
	}
	return place
}

// DualPipeV is DeepSeek's DualPipe on a V of stages (DeepSeek-AI 2025, Qi 2025): a forward and a backward pass of different microbatches
// alternate, so that one computes while the other communicates. It needs two microbatches for each rank.
func DualPipeV(ranks, micros int) (*Schedule, error) {
	if micros < 2*ranks {
		return nil, fmt.Errorf("pp: DualPipeV needs at least %d microbatches on %d ranks, not %d", 2*ranks, ranks, micros)
	}
	return build("dualpipev", micros, vee(ranks), func(r int) []Action { return dual(r, ranks, micros) }), nil
}

// dual returns what rank r does in DualPipeV: the eight phases of the reference implementation (github.com/deepseek-ai/DualPipe). In their
// actions, 0 is its first stage, and 1 its second one.
func dual(r, ranks, micros int) (list []Action) {
	behind, half := ranks-1-r, (r+1)/2
	var putOff []Action
	var next [2][2]int // microbatch, forward and backward, of each stage
	for _, phase := range []struct {
		times   int
		actions string
	}{{2 * behind, "F0 "}, {r + 1, "F0 F1 "}, {behind, "I1 W F1 "}, {micros - 2*ranks + r + 1, "F0 B1 F1 B0 "}, {behind, "B1 F1 B0 "},
		{half, "B1 B0 "}, {1 - r%2, "B1 I0 "}, {half, "I1 I0 "}, {behind, "W I0 "}} {
		for _, what := range strings.Fields(strings.Repeat(phase.actions, phase.times)) {
			k := Kind(strings.IndexByte(letters, what[0]))
			if k == W {
				n := min(1, len(putOff))
				list, putOff = append(list, putOff[:n]...), putOff[n:]
				continue
			}
			stage, micro := [2]int{r, 2*ranks - 1 - r}[what[1]-'0'], &next[min(k, B)][what[1]-'0']
			if list = append(list, Action{k, stage, *micro}); k == I {
				putOff = append(putOff, Action{W, stage, *micro})
			}
			*micro++
		}
	}
	return append(list, putOff...)
}
