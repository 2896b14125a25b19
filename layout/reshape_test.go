package layout

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// shapes returns all shapes of n elements with at most rank dimensions.
func shapes(n, rank int) (list [][]int) {
	if rank == 0 {
		if n == 1 {
			list = append(list, nil)
		}
		return list
	}
	if n == 1 {
		list = append(list, nil)
	}
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			for _, s := range shapes(n/d, rank-1) {
				list = append(list, append([]int{d}, s...))
			}
		}
	}
	return list
}

// exactSpots returns all Exact Spots of n rows in neighbouring dimensions of a shape.
func exactSpots(dims []int, n int) (list []Spot) {
	for first := range dims {
		for last := first; last < len(dims); last++ {
			size := product(dims[first : last+1])
			for outer := 1; outer*n <= size; outer++ {
				if size%(outer*n) == 0 {
					list = append(list, NewSpot(1<<(last+1)-1<<first, Exact, outer))
				}
			}
		}
	}
	return list
}

// labelsOf returns the row of each element.
func labelsOf(s Spot, dims []int, n int) []int {
	right, size := product(dims[s.last()+1:]), product(dims[s.first():s.last()+1])
	list := make([]int, product(dims))
	for i := range list {
		list[i] = i / right % size / (size / (s.Outer() * n)) % n
	}
	return list
}

// After every Reshape of every small tensor, the place is true, and says that all rows are still there in order.
func TestReshapeOfSmallTensors(t *testing.T) {
	tried := 0
	for _, size := range []int{2, 4, 6, 8, 12, 18, 24, 30} {
		if size > 12 != reliability.Long(t) {
			continue
		}
		all := shapes(size, 4)
		for _, from := range all {
			for n := 2; n <= 4; n++ {
				for _, s := range exactSpots(from, n) {
					labels := labelsOf(s, from, n)
					for _, to := range all {
						if len(to) == 0 {
							continue
						}
						got := s.reshape(from, to, n)
						w := wrongSpot(got, to, labels, n)
						if w == "" && got.Mode() != Exact {
							w = "rows are in order, and it does not say so"
						}
						if w != "" {
							t.Fatal(from, " → ", to, " of ", n, ": ", s, " → ", got, ": ", w)
						}
						tried++
					}
				}
			}
		}
	}
	t.Log(tried, "reshapes")
}

func TestLongReshapeOfSmallTensors(t *testing.T) { reliability.AsLong(t, TestReshapeOfSmallTensors) }

// symbolic is a shape in which each dimension is a product of numbers; 0 stands for the number of this rank's rows.
type symbolic [][]int

func (s symbolic) dims(n int) []int {
	dims := make([]int, len(s))
	for i, factors := range s {
		dims[i] = 1
		for _, f := range factors {
			if f == 0 {
				f = n
			}
			dims[i] *= f
		}
	}
	return dims
}

// merges returns all shapes with the factors of s in their order, where neighbours may be one dimension.
func (s symbolic) merges() (list []symbolic) {
	flat := slices.Concat(s...)
	for mask := range 1 << (len(flat) - 1) {
		out := symbolic{{flat[0]}}
		for i, f := range flat[1:] {
			if mask>>i&1 != 0 {
				out[len(out)-1] = append(out[len(out)-1], f)
			} else {
				out = append(out, []int{f})
			}
		}
		list = append(list, out)
	}
	return list
}

// Ranks with other numbers of rows find them in the same dimensions. A rank with one row cannot always see which of two dimensions it is
// in, if dimensions of other ranks merge there with what is in front of them: it takes the first one.
func TestRanksReshapeAlike(t *testing.T) {
	for _, s := range []symbolic{{{0}, {5}, {7}}, {{5}, {0}, {7}}, {{5}, {7}, {0}}, {{0}, {3}, {5}, {7}}, {{3}, {0}, {5}, {7}}} {
		at := slices.IndexFunc(s, func(f []int) bool { return f[0] == 0 })
		for _, from := range s.merges() {
			for _, to := range s.merges() {
				var want Spot
				for _, n := range []int{3, 2, 4, 1, 0} {
					x := NewSpot(1<<at, Exact, 1).reshape(s.dims(n), from.dims(n), n)
					got := x.reshape(from.dims(n), to.dims(n), n)
					if n == 3 {
						want = got
					}
					if unsure := n < 2 && at > 0; got != want && !unsure {
						t.Errorf("%v → %v → %v: %v for %d rows, %v for 3", s, from, to, got, n, want)
					}
				}
			}
		}
	}
}

// A rank with one row knows where it is if the dimensions up to there stay, or those from there on.
func TestOneRowReshaped(t *testing.T) {
	for _, c := range []struct {
		from, to []int
		dim      int
		want     Spot
	}{
		{[]int{5}, []int{5, 1}, 0, NewSpot(1, Exact, 5)},
		{[]int{5, 1, 6}, []int{5, 1, 2, 3}, 1, NewSpot(2, Exact, 1)},
		{[]int{5, 7, 1, 6}, []int{35, 1, 6}, 2, NewSpot(2, Exact, 1)},
		{[]int{5, 6}, []int{5, 6, 1}, 0, NewSpot(1, Exact, 5)},
		{[]int{1, 7}, []int{1, 1, 7}, 0, NewSpot(1, Exact, 1)},
		{[]int{1, 4, 6}, []int{4, 6}, 0, NewSpot(1, Exact, 1)},
	} {
		if got := NewSpot(1<<c.dim, Exact, c.want.Outer()).reshape(c.from, c.to, 1); got != c.want {
			t.Errorf("%v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// One row is in the dimension that Reshape computed: [rows, features] becomes [1, rows, features] and [rows, 1, features].
func TestOneRowIsWhereItWasAskedFor(t *testing.T) {
	for free, want := range map[int]Spot{0: NewSpot(1, Exact, 1), 1: NewSpot(2, Exact, 1), -1: NewSpot(1, Exact, 1)} {
		if got := NewSpot(1, Exact, 1).reshapeRows([]int{1, 8}, []int{1, 1, 8}, free, 1); got != want {
			t.Error(free, got)
		}
	}
}

// One row of [time·rows, features] is in the middle of [time, rows, features].
func TestOneRowOfManyTimes(t *testing.T) {
	x := NewSpot(2, Exact, 1).reshape([]int{5, 1, 8}, []int{5, 8}, 1)
	if got := x.reshapeRows([]int{5, 8}, []int{5, 1, 8}, -1, 1); got != NewSpot(2, Exact, 1) {
		t.Error(got)
	}
}

// Rows that Reshape puts into groups of Rows.Group are groups after it.
func TestGroups(t *testing.T) {
	b := &Batch{Rows: Rows{Stride: 1, First: 8, Total: 24, Group: 4, Over: 1}, N: 8}
	p := Place{Of: 1}.With(NewSpot(1, Exact, 1), Spot{})
	q, ok := p.Grouped([]int{8, 5}, []int{2, 4, 5}, -1, b)
	if !ok || q.Rows() != NewSpot(1, Exact, 1) {
		t.Error("groups in front:", q, ok)
	}
	q, ok = p.Permute([]int{1, 0}).Grouped([]int{5, 8}, []int{5, 2, 4}, -1, b)
	if !ok || q.Rows() != NewSpot(2, Exact, 1) {
		t.Error("groups behind:", q, ok)
	}
	if _, ok = p.Grouped([]int{8, 5}, []int{4, 2, 5}, -1, b); ok {
		t.Error("groups of another size")
	}
	want := Batch{Rows: Rows{Stride: 1, First: 2, Total: 6, Over: 1}, N: 2}
	g := b.Groups()
	if g != want || !g.Related(b) || !b.Related(&g) {
		t.Errorf("%+v", g)
	}
	x, y := Operand{Place: p, Dims: []int{8, 5}, Batch: b}, Operand{Place: Place{Of: 2}.With(p.Rows(), Spot{}), Dims: []int{8, 1}, Batch: &g}
	place, rows, _ := Meet(&y, &x, 2)
	if !rows || place.Of != 1 {
		t.Error("rows meet their groups, spread over them:", place, rows)
	}
}

// In every Reshape, the groups are in the dimension whose index is the number of an element's group, if there is one, and in no other.
func TestGroupsOfAllReshapes(t *testing.T) {
	const features = 6
	for _, groups := range []int{2, 3} {
		for _, group := range []int{2, 3} {
			b := &Batch{Rows: Rows{Stride: 1, Total: 12 * group, Group: group, Over: 1}, N: groups * group}
			for first, from := range [][]int{{b.N, features}, {features, b.N}, {2, 3, b.N}} {
				inner := product(from[first+1:])
				groupOf := func(i int) int { return i / inner % b.N / group }
				p, grouped := Place{Of: 1}.With(NewSpot(1<<first, Exact, 1), Spot{}), 0
				for _, to := range splits(b.N*features, 4) {
					want := -1
					for d := range to {
						behind, same := product(to[d+1:]), to[d] == groups
						for i := 0; same && i < b.N*features; i++ {
							same = i/behind%to[d] == groupOf(i)
						}
						if same {
							want = d
						}
					}
					q, ok := p.Grouped(from, to, -1, b)
					if ok != (want >= 0) || ok && q.Rows() != NewSpot(1<<want, Exact, 1) {
						t.Fatal(groups, group, from, to, want, q, ok)
					}
					if ok {
						grouped++
					}
				}
				if grouped < 3 {
					t.Error("hardly any groups:", from, grouped)
				}
			}
		}
	}
}

// splits returns all ways to write n as a product of up to most factors, in order.
func splits(n, most int) (all [][]int) {
	all = append(all, []int{n})
	for k := 1; k <= n && most > 1; k++ {
		if n%k == 0 {
			for _, rest := range splits(n/k, most-1) {
				all = append(all, append([]int{k}, rest...))
			}
		}
	}
	return all
}

// One group may be in several dimensions of one element: it is in the one that was free, else the outermost; a 1 may also be no number of
// groups. A rank without rows agrees with the others.
func TestOneGroupAndNone(t *testing.T) {
	for _, c := range []struct {
		rows, free int
		to         []int
		want       int
	}{
		{5, 0, []int{1, 1, 5, 3}, 0}, {5, 1, []int{1, 1, 5, 3}, 1}, {5, -1, []int{1, 1, 5, 3}, 0}, {5, 0, []int{1, 15}, 0},
		{5, 1, []int{1, 15}, -1}, {5, 2, []int{1, 5, 3}, 0}, {5, 2, []int{1, 1, 15}, -1}, {10, 1, []int{2, 15}, 0},
		{0, 0, []int{0, 1, 5, 3}, 0}, {0, 1, []int{1, 0, 5, 3}, 1}, {0, 0, []int{0, 15}, 0}, {0, 0, []int{0}, -1}, {0, 0, []int{0, 3}, -1},
	} {
		b := &Batch{Rows: Rows{Stride: 1, Total: 15, Group: 5, Over: 1}, N: c.rows}
		p := Place{Of: 1}.With(NewSpot(1, Exact, 1), Spot{})
		if q, ok := p.Grouped([]int{c.rows, 3}, c.to, c.free, b); ok != (c.want >= 0) || ok && q.Rows() != NewSpot(1<<c.want, Exact, 1) {
			t.Error(c, q, ok)
		}
	}
}

// A count is that of one rank with the whole batch.
func TestCount(t *testing.T) {
	b := &Batch{Rows: Rows{Stride: 1, Total: 12, Seq: Spans{First: 4, Total: 10}, Over: 3, SeqOver: 2}, N: 3, Positions: 4}
	at := func(rows, seq Spot) Place { return Place{Of: 1}.With(rows, seq) }
	row, seq := NewSpot(1, Exact, 1), NewSpot(2, Exact, 1)
	for _, c := range []struct {
		name string
		n    int
		p    Place
		want int
		ok   bool
	}{
		{"an element for each token", 12, at(row, seq), 120, true},
		{"features of tokens", 60, at(row, seq), 600, true},
		{"an element for each row", 3, at(row, Spot{}), 12, true},
		{"without elements", 0, at(row, seq), 1, true},
		{"picked tokens", 12, at(NewSpot(1, Loose, 7), seq), 0, false},
		{"some of the rows", 2, at(NewSpot(1, Portion, 1), Spot{}), 0, false},
		{"no rows", 12, at(Spot{}, seq), 0, false},
		{"rows that differ in size", 7, at(row, Spot{}), 0, false},
	} {
		if got, ok := b.Count(c.n, c.p); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v", c.name, got, ok)
		}
	}
	alone := &Batch{Rows: Rows{Stride: 1, Total: 3}, N: 3}
	if got, ok := alone.Count(2, at(NewSpot(1, Loose, 0), Spot{})); got != 2 || !ok {
		t.Error("one rank has all rows:", got, ok)
	}
}

// Small tensors without elements, and Spots of all kinds, do not panic.
func TestPlacesOfEmptyTensors(t *testing.T) {
	for _, from := range [][]int{{0}, {0, 3}, {3, 0}, {2, 0, 2}, {0, 0}} {
		for _, to := range [][]int{{0}, {0, 5}, {5, 0}, {1, 0, 3}, {0, 0}, {4, 2, 0}} {
			for dims := range uint8(1 << len(from)) {
				for _, m := range []Mode{Exact, Portion, Loose} {
					for n := range 3 {
						s := NewSpot(dims, m, 1).reshape(from, to, n)
						if bits.Len8(s.Dims()) > len(to) || (s.Dims() == 0) != (dims == 0) {
							t.Fatal(from, to, dims, m, n, s)
						}
					}
				}
			}
		}
	}
}
