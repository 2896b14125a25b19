package cp

import "github.com/ringo-ml/ringo/layout"

// cuts are where the 2n runs of a sequence begin, and its end. Rank r has runs r and 2n-1-r (zigzag).
type cuts []int

// even makes runs of equal lengths; if these do not divide, the first ones are longer.
func (c cuts) even(total int) {
	for k := range len(c) - 1 {
		_, c[k+1] = layout.Share(total, k, len(c)-1)
	}
}

func (c cuts) total() int { return c[len(c)-1] }

// of returns the runs of a rank.
func (c cuts) of(rank int) runs {
	k := len(c) - 2 - rank
	return runs{{c[rank], c[rank+1]}, {c[k], c[k+1]}}
}

// seen returns how many of the keys of rank k queries of run a of rank q see, from the first one on.
func (c cuts) seen(q, k, a int) int {
	mine, its := c.of(q), c.of(k)
	switch {
	case mine.len(a) == 0 || a == 0 && k > q:
		return 0
	case k < q || k == q && a == 0:
		return its.len(0)
	}
	return its.size()
}

// count finds how many keys of each rank the queries of this rank's runs see, from the first one on, and to how many places behind its own
// rank the keys of each go. shared is nil without documents.
func (p *circle) count(shared func(i, j int) bool) {
	for before := range p.ranks {
		k, last := p.at(before), p.ranks-1
		keys := p.seenBy(p.rank, k, shared)
		for last > 0 && p.seenBy((k+last)%p.ranks, k, shared) == [2]int{} {
			last--
		}
		p.sees[3*before], p.sees[3*before+1], p.sees[3*before+2] = keys[0], keys[1], last
	}
}

// seenBy returns how many keys of rank k the queries of both runs of rank q see.
func (p *circle) seenBy(q, k int, shared func(i, j int) bool) (keys [2]int) {
	n := 2*p.ranks - 1
	for a, run := range [2]int{q, n - q} {
		keys[a] = p.cuts.seen(q, k, a)
		if shared != nil && !shared(run, k) && (keys[a] <= p.cuts.of(k).len(0) || !shared(run, n-k)) {
			keys[a] = 0
		}
	}
	return keys
}

// last returns how many places behind its own rank the last one is that sees the keys of the rank so many places before this one.
func (p *circle) last(before int) int { return p.sees[3*(before%p.ranks)+2] }

// areas are the sums of what attention multiplies: element i is the number of pairs of a query before position i and a key of its document.
type areas []int

func areasOf(ids []int64, total int) areas {
	sum, n := make(areas, total+1), 0
	for i, id := range ids {
		if n++; i%total == 0 || id != ids[i-1] {
			n = 1
		}
		sum[i%total+1] += n
	}
	for i := range total {
		sum[i+1] += sum[i]
	}
	return sum
}

func (s areas) of(r runs) int { return s[r[0][1]] - s[r[0][0]] + s[r[1][1]] - s[r[1][0]] }

// most returns the largest area of a rank.
func (s areas) most(c cuts) (most int) {
	for rank := range len(c) / 2 {
		most = max(most, s.of(c.of(rank)))
	}
	return most
}

// balance moves even cuts if the largest area of a rank becomes smaller. Each rank keeps its number of positions: what its first run loses,
// its last one gets. So where its first run begins tells what later ranks have, and the best cuts are found from the last rank to the
// first. First runs are multiples of a 64th of a rank's positions.
func (c cuts) balance(area areas) {
	ranks, total := len(c)/2, c.total()
	step, rest := max(1, total/ranks/64), 0
	var best []int                                            // the largest area of ranks from r on, for each beginning of r's first run
	firsts, sizes := make([][]int, ranks), make([]int, ranks) // the lengths of first runs with that area
	for r := ranks - 1; r >= 0; r-- {
		size, later := c.of(r).size(), best
		sizes[r], rest = size, rest+size
		best, firsts[r] = make([]int, (total-rest)/step+1), make([]int, (total-rest)/step+1)
		for i := range best {
			at, end := i*step, i*step+rest
			for n := 0; n <= size; n += step {
				most := area.of(runs{{at, at + n}, {end - size + n, end}})
				if r < ranks-1 {
					most = max(most, later[i+n/step])
				}
				if n == 0 || most < best[i] || most == best[i] && n <= size/2 {
					best[i], firsts[r][i] = most, n
				}
			}
		}
	}
	if best[0] >= area.most(c) {
		return
	}
	for r, size := range sizes {
		n, last := firsts[r][c[r]/step], len(c)-2-r
		c[r+1], c[last] = c[r]+n, c[last+1]-size+n
	}
}
