package layout

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// What an element is made of, if not of one row.
const (
	nothing = -1 // of no row: padding, or a constant
	every   = -2 // a sum over all rows
)

// labelled is a tensor whose elements carry the numbers of their row and of their position.
type labelled struct {
	dims   []int
	labels [2][]int // of rows, and of positions
	place  Place
	batch  *Batch
	log    []string
}

func newLabelled(b *Batch, dims ...int) *labelled {
	x := &labelled{dims: dims, batch: b}
	x.place.Of = 1
	n := product(dims)
	rows, seq := NewSpot(1, Exact, 1), Spot{}
	for i := range n {
		x.labels[0] = append(x.labels[0], i/(n/dims[0]))
		if b.Positions > 0 {
			x.labels[1] = append(x.labels[1], i/(n/dims[0]/dims[1])%dims[1])
			seq = NewSpot(2, Exact, 1)
		} else {
			x.labels[1] = append(x.labels[1], nothing)
		}
	}
	x.place = x.place.With(rows, seq)
	x.note("of %+v", *b)
	return x
}

func (x *labelled) note(text string, args ...any) {
	x.log = append(x.log[:len(x.log):len(x.log)], fmt.Sprintf(text, args...)+fmt.Sprint(" → ", x.dims))
}

// spots are the places of rows and positions, with their numbers.
func (x *labelled) spots() [2]Spot { return [2]Spot{x.place.Rows(), x.place.Seq()} }
func (x *labelled) sizes() [2]int  { return [2]int{x.batch.N, x.batch.Positions} }

// next returns a tensor of these dimensions whose element i is element from(i) of x, or nothing if that is negative.
func (x *labelled) next(dims []int, place Place, from func(at []int, i int) int) *labelled {
	y := &labelled{dims: dims, place: place, batch: x.batch, log: x.log}
	at := make([]int, len(dims))
	for i := range product(dims) {
		k := from(at, i)
		for l := range y.labels {
			label := nothing
			if k >= 0 {
				label = x.labels[l][k]
			}
			y.labels[l] = append(y.labels[l], label)
		}
		step(at, dims)
	}
	return y
}

// step moves an index on by one element.
func step(at, dims []int) {
	for d := len(at) - 1; d >= 0; d-- {
		if at[d]++; at[d] < dims[d] {
			return
		}
		at[d] = 0
	}
}

// index is the reverse: the number of the element.
func index(at, dims []int) (i int) {
	for d, n := range dims {
		i = i*n + at[d]
	}
	return i
}

// wrong returns what the place says that is not true of the elements.
func (x *labelled) wrong() string {
	for l, s := range x.spots() {
		if w := wrongSpot(s, x.dims, x.labels[l], x.sizes()[l]); w != "" {
			return fmt.Sprintf("%s: %s, place %+v, labels %v", []string{"rows", "positions"}[l], w, s, x.labels[l])
		}
	}
	return ""
}

func wrongSpot(s Spot, dims, labels []int, n int) string {
	if s.Dims() == 0 {
		if slices.ContainsFunc(labels, func(k int) bool { return k >= 0 }) {
			return "in no dimension, but elements differ"
		}
		return ""
	}
	if s.last() >= len(dims) {
		return "outside of the tensor"
	}
	if len(labels) == 0 {
		return ""
	}
	first, last := s.first(), s.last()
	right, size := product(dims[last+1:]), product(dims[first:last+1])
	if s.Mode() == Exact && (n == 0 || size%(s.Outer()*n) != 0) {
		return fmt.Sprintf("%d elements are not %d × %d × inner", size, s.Outer(), n)
	}
	seen := map[int]int{}
	at := make([]int, len(dims))
	for i, label := range labels {
		j := i / right % size
		want := label
		switch s.Mode() {
		case Exact:
			want = j / (size / (s.Outer() * n)) % n
		case Portion:
			want = s.Outer() + j
		default:
			key := 0
			for d := range dims {
				if s.Dims()>>d&1 != 0 {
					key = key*1000 + at[d] + 1
				}
			}
			if k, ok := seen[key]; ok {
				want = k
			} else if label != nothing {
				seen[key] = label
			}
			step(at, dims)
		}
		if label != nothing && label != want {
			return fmt.Sprintf("element %d is of %d, not of %d", i, label, want)
		}
	}
	return ""
}

// random operations

func (x *labelled) reshape(rng *rand.Rand) *labelled {
	dims := slices.Clone(x.dims)
	for range 1 + rng.IntN(3) {
		if d := rng.IntN(len(dims)); len(dims) > 1 && d+1 < len(dims) && rng.IntN(2) == 0 {
			dims = slices.Concat(dims[:d], []int{dims[d] * dims[d+1]}, dims[d+2:])
		} else if len(dims) < 6 {
			f := divisor(rng, dims[d])
			dims = slices.Concat(dims[:d], []int{f, dims[d] / f}, dims[d+1:])
		}
	}
	y := x.next(dims, x.place.Reshape(x.dims, dims, -1, x.batch), func(_ []int, i int) int { return i })
	y.note("reshape")
	return y
}

func divisor(rng *rand.Rand, n int) int {
	var list []int
	for f := 1; f <= n; f++ {
		if n%f == 0 {
			list = append(list, f)
		}
	}
	return list[rng.IntN(len(list))]
}

func (x *labelled) permute(rng *rand.Rand) *labelled {
	perm := rng.Perm(len(x.dims))
	dims, back := make([]int, len(perm)), make([]int, len(perm))
	for i, p := range perm {
		dims[i] = x.dims[p]
	}
	y := x.next(dims, x.place.Permute(perm), func(at []int, _ int) int {
		for i, p := range perm {
			back[p] = at[i]
		}
		return index(back, x.dims)
	})
	y.note("permute %v", perm)
	return y
}

// along returns a tensor of size elements along dimension d; element i of it is element from(i) of x, or nothing.
func (x *labelled) along(d, size int, place Place, from func(int) int) *labelled {
	dims := slices.Clone(x.dims)
	dims[d] = size
	back := make([]int, len(dims))
	return x.next(dims, place, func(at []int, _ int) int {
		copy(back, at)
		if back[d] = from(at[d]); back[d] < 0 || back[d] >= x.dims[d] {
			return -1
		}
		return index(back, x.dims)
	})
}

func (x *labelled) sliced(d, lo, hi int) *labelled {
	y := x.along(d, hi-lo, x.place.Slice(d, lo, hi, x.dims[d], x.batch), func(i int) int { return lo + i })
	y.note("slice %d %d:%d", d, lo, hi)
	return y
}

func (x *labelled) slice(rng *rand.Rand) *labelled {
	d := rng.IntN(len(x.dims))
	k := divisor(rng, x.dims[d])
	lo := rng.IntN(x.dims[d]/k) * k
	return x.sliced(d, lo, lo+k*(1+rng.IntN((x.dims[d]-lo)/k)))
}

func (x *labelled) pad(rng *rand.Rand) *labelled {
	d := rng.IntN(len(x.dims))
	before, after := rng.IntN(3), rng.IntN(3)
	if s := x.place.Rows(); s.Mode() == Portion && s.single(d) && rng.IntN(2) == 0 { // back to where they were
		before, after = s.Outer(), x.batch.N-s.Outer()-x.dims[d]
	}
	size := before + x.dims[d] + after
	y := x.along(d, size, x.place.Pad(d, before, size, x.batch), func(i int) int { return i - before })
	y.note("pad %d by %d, %d", d, before, after)
	return y
}

func (x *labelled) pick(rng *rand.Rand) *labelled {
	d := rng.IntN(len(x.dims))
	list := make([]int, 1+rng.IntN(4))
	for i := range list {
		list[i] = rng.IntN(x.dims[d])
	}
	order := 1
	for _, i := range list {
		order = order*31 + i
	}
	y := x.along(d, len(list), x.place.Pick(d, x.dims[d], order), func(i int) int { return list[i] })
	y.note("pick %d %v", d, list)
	return y
}

func concatenated(d int, list ...*labelled) *labelled {
	in, size := make([]Operand, len(list)), 0
	for i, x := range list {
		in[i] = x.operand()
		size += x.dims[d]
	}
	x := list[0]
	place, rows, seq, union := Concat(d, in)
	dims := slices.Clone(x.dims)
	dims[d] = size
	y := &labelled{dims: dims, place: place, batch: x.batch, log: x.log}
	if union {
		u := Union(in)
		y.batch = &u
		y.place.Of = uint8(100 + u.N)
	}
	at := make([]int, len(dims))
	for range product(dims) {
		i, k := 0, at[d]
		first := 0
		for k >= list[i].dims[d] {
			k -= list[i].dims[d]
			first += list[i].batch.N
			i++
		}
		from := slices.Clone(at)
		from[d] = k
		for l := range y.labels {
			label := list[i].labels[l][index(from, list[i].dims)]
			if union && l == 0 && label >= 0 {
				label += first
			}
			y.labels[l] = append(y.labels[l], label)
		}
		step(at, dims)
	}
	y.forget(!rows, !seq)
	y.note("concat %d of %d", d, len(list))
	return y
}

func (x *labelled) operand() Operand { return Operand{Place: x.place, Dims: x.dims, Batch: x.batch} }

// forget takes labels away that the place says to have no meaning for other ranks.
func (x *labelled) forget(rows, seq bool) {
	for l, yes := range [2]bool{rows, seq} {
		for i := range x.labels[l] {
			if yes {
				x.labels[l][i] = nothing
			}
		}
	}
}

// concat joins x to itself, or parts of it to each other.
func (x *labelled) concat(rng *rand.Rand) *labelled {
	d := rng.IntN(len(x.dims))
	if rng.IntN(3) == 0 || x.dims[d] < 2 {
		return concatenated(d, x, x)
	}
	k := 1 + rng.IntN(x.dims[d]-1)
	a, b := x.sliced(d, 0, k), x.sliced(d, k, x.dims[d])
	if rng.IntN(3) == 0 {
		a, b = b, a
	}
	return concatenated(d, a, b)
}

// sum returns the sum over random dimensions. wrong says what its place says that is not true.
func (x *labelled) sum(rng *rand.Rand) (_ *labelled, wrong string) {
	mask := uint8(rng.IntN(1 << len(x.dims)))
	if rng.IntN(2) == 0 {
		mask = 1 << rng.IntN(len(x.dims))
	}
	var dims []int
	for d, n := range x.dims {
		if mask>>d&1 == 0 {
			dims = append(dims, n)
		}
	}
	place, rows, seq, _ := x.place.Reduce(mask, len(x.dims))
	y := &labelled{dims: dims, place: place, batch: x.batch, log: x.log}
	y.note("sum %b", mask)
	for l, c := range [2]Covered{rows, seq} {
		sets := make([]map[int]int, product(dims))
		at := make([]int, len(x.dims))
		for i := range x.labels[l] {
			k := 0
			for d, n := range x.dims {
				if mask>>d&1 == 0 {
					k = k*n + at[d]
				}
			}
			if sets[k] == nil {
				sets[k] = map[int]int{}
			}
			sets[k][x.labels[l][i]]++
			step(at, x.dims)
		}
		for _, set := range sets {
			label, w := summed(set, c, x.spots()[l], x.sizes()[l])
			if w != "" {
				return y, fmt.Sprint(w, ": ", set)
			}
			y.labels[l] = append(y.labels[l], label)
		}
	}
	return y, ""
}

// summed returns the label of a sum of elements with these labels, of which c is said.
func summed(set map[int]int, c Covered, s Spot, n int) (label int, wrong string) {
	padded := set[nothing] > 0
	delete(set, nothing)
	switch {
	case c.All && s.Mode() == Exact && !padded:
		for row := range n {
			if set[row] == 0 || set[row] != set[0] {
				return 0, "not each row is in the sum, equally often"
			}
		}
		return every, ""
	case c.Some:
		return nothing, ""
	case len(set) > 1:
		return 0, "a sum over several rows is not noticed"
	}
	for row := range set {
		return row, ""
	}
	return nothing, ""
}
