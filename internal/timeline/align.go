package timeline

import (
	"math"
	"slices"
	"time"
)

// Align puts all ranks on the clock of the first one. It uses that an operation on one rank cannot end before the data that it needs was
// sent. If a start on rank a must come before an end on rank b, the offsets x of the clocks must make a.start + x[a] <= b.end + x[b]. A
// collective bounds the difference of two clocks from both sides, a message from one side. Over many of them, the bounds are about as
// close as the fastest one took. Align takes the middle between the bounds, so that all bounds hold. The ranks of a host share a clock,
// unless the order of their operations shows that they do not. Clocks that drift give bounds that contradict each other: then all bounds
// are widened as much as needed.
func Align(ranks []Rank) []Clock {
	met := exchanges(ranks)
	clockOf, n := hostClocks(ranks, met)
	bounds := newRooms(n)
	for _, m := range met {
		bounds.narrow(m, ranks, clockOf)
	}
	slack, all := int64(0), bounds.closed(0)
	for all == nil {
		slack = max(1000, 2*slack)
		all = bounds.closed(slack)
	}
	add := all.settle()
	clocks := make([]Clock, len(ranks))
	for i := range ranks {
		c := clockOf[i]
		clocks[i] = Clock{Rank: ranks[i].Rank, Add: time.Duration(add[c]), Within: -1}
		if c == 0 {
			clocks[i].Within = 0
		} else if all[0][c] != free && all[c][0] != free {
			clocks[i].Within = time.Duration(max(all[0][c]-add[c], all[c][0]+add[c]) + slack)
		}
		for k := range ranks[i].Spans {
			ranks[i].Spans[k].Start += add[c]
			ranks[i].Spans[k].End += add[c]
		}
	}
	return clocks
}

// hostClocks returns the number of each rank's clock, and how many clocks there are. If the ranks of a host end operations before others
// of the host began what they wait for, the host has not one clock: then each of its ranks has its own.
func hostClocks(ranks []Rank, met []*collective) (clockOf []int, n int) {
	hosts := map[string]int{}
	clockOf = make([]int, len(ranks))
	for i, r := range ranks {
		if _, known := hosts[r.Host]; !known {
			hosts[r.Host] = len(hosts)
		}
		clockOf[i] = hosts[r.Host]
	}
	bounds := newRooms(len(hosts))
	for _, m := range met {
		bounds.narrow(m, ranks, clockOf)
	}
	number := map[[2]int]int{}
	for i, host := range clockOf {
		key := [2]int{host, -1}
		if bounds[host][host] < 0 {
			key[1] = i
		}
		if _, known := number[key]; !known {
			number[key] = len(number)
		}
		clockOf[i] = number[key]
	}
	return clockOf, len(number)
}

// rooms[a][b] is the largest allowed difference between the offset of clock b and that of clock a.
type rooms [][]int64

const (
	free = math.MaxInt64 // no bound
	far  = 1 << 60       // no bound is larger, so that sums of a few do not overflow
)

func newRooms(n int) rooms {
	r := make(rooms, n)
	for a := range r {
		r[a] = slices.Repeat([]int64{free}, n)
		r[a][a] = 0
	}
	return r
}

// narrow adds the bounds from a collective or a message.
func (r rooms) narrow(m *collective, ranks []Rank, clockOf []int) {
	starts, ends := m.ordered(ranks)
	last, first := map[int]int64{}, map[int]int64{} // by clock
	for _, p := range starts {
		if at, known := last[clockOf[p.at]]; !known || p.start > at {
			last[clockOf[p.at]] = p.start
		}
	}
	for _, p := range ends {
		if at, known := first[clockOf[p.at]]; !known || p.end < at {
			first[clockOf[p.at]] = p.end
		}
	}
	for a, end := range first {
		for b, start := range last {
			r[a][b] = min(r[a][b], max(-far, end-start))
		}
	}
}

// closed returns the bounds that follow from all bounds together, each widened by slack; nil if they contradict each other. These are the
// shortest paths from clock to clock (Floyd and Warshall).
func (r rooms) closed(slack int64) rooms {
	d := newRooms(len(r))
	for a := range r {
		for b, room := range r[a] {
			if a != b && room != free {
				d[a][b] = room + slack
			}
		}
	}
	for k := range d {
		for a := range d {
			for b := range d {
				if d[a][k] != free && d[k][b] != free {
					d[a][b] = min(d[a][b], d[a][k]+d[k][b])
				}
			}
		}
		for a := range d {
			if d[a][a] < 0 {
				return nil
			}
		}
	}
	return d
}

// settle returns the offsets of the clocks; the first is 0. The next clock is always the one whose bounds to the chosen ones are closest,
// and it gets the middle. All bounds are closed, so the others always have a possible offset. A clock with a bound on only one side, or
// none, gets the smallest possible change.
func (r rooms) settle() []int64 {
	n := len(r)
	add, done := make([]int64, n), make([]bool, n)
	low, high := slices.Repeat([]int64{math.MinInt64}, n), slices.Repeat([]int64{free}, n)
	room := func(c int) int64 {
		if low[c] == math.MinInt64 || high[c] == free {
			return free
		}
		return high[c] - low[c]
	}
	for range n {
		next := -1
		for c := range n {
			if !done[c] && (next < 0 || room(c) < room(next)) {
				next = c
			}
		}
		if room(next) == free {
			add[next] = min(max(0, low[next]), high[next])
		} else {
			add[next] = low[next] + room(next)/2
		}
		done[next] = true
		for c := range n {
			if r[next][c] != free {
				high[c] = min(high[c], add[next]+r[next][c])
			}
			if r[c][next] != free {
				low[c] = max(low[c], add[next]-r[c][next])
			}
		}
	}
	return add
}
