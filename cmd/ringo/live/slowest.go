package live

import "github.com/ringo-ml/ringo/internal/live"

const (
	// heldSteps is how many steps are kept until all ranks have reported their times.
	heldSteps = 4 * live.MaxSteps
	// shownSteps is how many steps are shown.
	shownSteps = 256
)

// slowest finds the slowest rank of each step: the one that waited least for the others. All others wait for it, so a step takes about
// the same time on all ranks.
type slowest struct {
	ranks int
	held  [heldSteps]stepTimes // step s has index s modulo heldSteps
	last  int                  // the last step that a rank reported
}

// stepTimes are the times of a step in µs, by rank.
type stepTimes struct {
	step      int
	got       int
	took, own []int32
}

// add adds the times of a rank's last steps, up to step.
func (s *slowest) add(rank, step int, took, own []int) {
	for i := range took {
		at := step - len(took) + 1 + i
		if at < 1 {
			continue
		}
		t := &s.held[at%heldSteps]
		if t.step > at {
			continue // too late
		}
		if t.step < at {
			*t = stepTimes{step: at, took: resized(t.took, s.ranks), own: resized(t.own, s.ranks)}
		}
		if t.took[rank] < 0 {
			t.took[rank], t.own[rank] = int32(took[i]), int32(own[i])
			t.got++
		}
		s.last = max(s.last, at)
	}
}

// resized returns n values of -1.
func resized(x []int32, n int) []int32 {
	if cap(x) < n {
		x = make([]int32, n)
	}
	x = x[:n]
	for i := range x {
		x[i] = -1
	}
	return x
}

// slowView is what the page shows about the last steps that all ranks have reported.
type slowView struct {
	Steps []int   `json:"steps"`
	Ranks []int   `json:"ranks"` // the slowest rank of each step
	Lead  []int   `json:"lead"`  // µs by which that rank's own time was above the mean of all ranks
	Times []int   `json:"times"` // by rank: how often it was the slowest
	Own   []int64 `json:"own"`   // by rank: mean µs of a step in which it did not wait for others
	Took  []int64 `json:"took"`  // by rank: mean µs of a step
}

func (s *slowest) view() slowView {
	v := slowView{Steps: []int{}, Ranks: []int{}, Lead: []int{}, Times: make([]int, s.ranks), Own: make([]int64, s.ranks),
		Took: make([]int64, s.ranks)}
	var whole []*stepTimes
	for at := s.last; at > max(0, s.last-heldSteps) && len(whole) < shownSteps; at-- {
		if t := &s.held[at%heldSteps]; t.step == at && t.got == s.ranks {
			whole = append(whole, t)
		}
	}
	for i := len(whole) - 1; i >= 0; i-- {
		t, first, sum := whole[i], 0, int64(0)
		for r, own := range t.own {
			if own > t.own[first] {
				first = r
			}
			sum += int64(own)
			v.Own[r] += int64(own)
			v.Took[r] += int64(t.took[r])
		}
		v.Steps, v.Ranks = append(v.Steps, t.step), append(v.Ranks, first)
		v.Lead = append(v.Lead, int(int64(t.own[first])-sum/int64(s.ranks)))
		v.Times[first]++
	}
	for r := range v.Own {
		v.Own[r] /= int64(max(1, len(whole)))
		v.Took[r] /= int64(max(1, len(whole)))
	}
	return v
}
