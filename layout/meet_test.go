package layout

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// constant is a tensor without rows.
func constant(dims ...int) *labelled {
	x := &labelled{dims: dims, log: []string{"constant"}, batch: &Batch{}}
	for range product(dims) {
		x.labels[0], x.labels[1] = append(x.labels[0], nothing), append(x.labels[1], nothing)
	}
	return x
}

func (x *labelled) operands() *Operand {
	o := x.operand()
	if o.Batch.N == 0 {
		o.Batch = nil
	}
	return &o
}

// at returns the label of the element of x that is broadcast to an element of an output.
func (x *labelled) at(l int, out []int) int {
	from := slices.Clone(out[len(out)-len(x.dims):])
	for d := range from {
		if x.dims[d] == 1 {
			from[d] = 0
		}
	}
	return x.labels[l][index(from, x.dims)]
}

// broadcast returns the common shape of x and y, or none.
func broadcast(x, y []int) []int {
	if len(x) < len(y) {
		x, y = y, x
	}
	out := slices.Clone(x)
	for i, n := range y {
		d := len(x) - len(y) + i
		if out[d] != n && out[d] != 1 && n != 1 {
			return nil
		}
		out[d] = max(out[d], n)
	}
	return out
}

// both is the label of an element made of one of each; ok is false if different rows meet.
func both(a, b int) (label int, ok bool) {
	switch {
	case a < 0:
		return b, true
	case b < 0 || a == b:
		return a, true
	}
	return 0, false
}

// partner returns a tensor that x may meet: x after some more operations, or a part of it, or a constant.
func (x *labelled) partner(rng *rand.Rand) *labelled {
	y := x
	for range rng.IntN(3) {
		if y = y.moved(rng); len(y.labels[0]) > 300 {
			return x
		}
	}
	if len(y.labels[0]) == len(x.labels[0]) && rng.IntN(2) == 0 {
		return y.next(x.dims, y.place.Reshape(y.dims, x.dims, -1, y.batch), func(_ []int, i int) int { return i })
	}
	if rng.IntN(4) == 0 {
		return constant(y.dims...)
	}
	return y
}

// Where two tensors meet, each element is of one row, or the rules say that other rows meet.
func TestMeetIsTrue(t *testing.T) {
	kept, refused := 0, 0
	for seed := range chains(t, 12000, 40000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		b, dims := randomBatch(rng)
		x := newLabelled(b, dims...)
		for range rng.IntN(3) {
			x = x.moved(rng)
		}
		if len(x.labels[0]) > 300 {
			continue
		}
		y := x.partner(rng)
		out := broadcast(x.dims, y.dims)
		if out == nil || product(out) > 500 {
			continue
		}
		place, rows, seq := Meet(x.operands(), y.operands(), len(out))
		z := &labelled{dims: out, place: place, batch: b, log: append(x.log, y.log...)}
		for l, ok := range [2]bool{rows, seq} {
			at, met := make([]int, len(out)), false
			for range product(out) {
				label, same := both(x.at(l, at), y.at(l, at))
				met = met || !same
				if !ok {
					label = nothing
				}
				z.labels[l] = append(z.labels[l], label)
				step(at, out)
			}
			if met && ok {
				t.Fatalf("seed %d: other rows meet, not noticed:\n%s", seed, strings.Join(z.log, "\n"))
			}
			if ok {
				kept++
			} else {
				refused++
			}
		}
		if w := z.wrong(); w != "" {
			t.Fatalf("seed %d: %s:\n%s", seed, w, strings.Join(z.log, "\n"))
		}
	}
	t.Log(kept, "kept,", refused, "mixed")
}

func TestLongMeetIsTrue(t *testing.T) { reliability.AsLong(t, TestMeetIsTrue) }

// A sum of products over a dimension is a sum over all rows, or keeps them, or the rules say that rows are mixed.
func TestContractIsTrue(t *testing.T) {
	var counts [3]int
	for seed := range chains(t, 12000, 40000) {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		b, dims := randomBatch(rng)
		x := newLabelled(b, dims...)
		for range rng.IntN(3) {
			x = x.moved(rng)
		}
		if len(x.dims) < 2 || len(x.labels[0]) > 300 {
			continue
		}
		y := x.partner(rng)
		if r := len(y.dims); r >= 2 && y.dims[r-2] != x.dims[len(x.dims)-1] {
			perm := rng.Perm(r)
			slices.Sort(perm)
			perm[r-1], perm[r-2] = perm[r-2], perm[r-1]
			y = y.next(swapped(y.dims), y.place.Permute(perm), func(at []int, _ int) int { return index(swapped(at), y.dims) })
		}
		if rng.IntN(4) == 0 {
			y = constant(x.dims[len(x.dims)-1], 1+rng.IntN(3))
		}
		if z := contracted(t, seed, x, y, &counts); z != nil && z.wrong() != "" {
			t.Fatalf("seed %d: %s:\n%s", seed, z.wrong(), strings.Join(z.log, "\n"))
		}
	}
	t.Log(counts[Kept], "kept,", counts[Summed], "summed,", counts[Mixed], "mixed")
}

func TestLongContractIsTrue(t *testing.T) { reliability.AsLong(t, TestContractIsTrue) }

func swapped(dims []int) []int {
	out, r := slices.Clone(dims), len(dims)
	out[r-1], out[r-2] = out[r-2], out[r-1]
	return out
}

func contracted(t *testing.T, seed int, x, y *labelled, counts *[3]int) *labelled {
	rx, ry := len(x.dims), len(y.dims)
	if ry < 2 || x.dims[rx-1] != y.dims[ry-2] {
		return nil
	}
	k := x.dims[rx-1]
	out := broadcast(x.dims[:rx-2], y.dims[:ry-2])
	if out == nil && rx > 2 && ry > 2 {
		return nil
	}
	out = append(slices.Clone(out), x.dims[rx-2], y.dims[ry-1])
	if product(out)*k > 1000 {
		return nil
	}
	place, rows, seq := Contract(x.operands(), y.operands(), len(out))
	z := &labelled{dims: out, place: place, batch: x.batch, log: append(x.log, y.log...)}
	for l, c := range [2]Contraction{rows, seq} {
		counts[c]++
		at := make([]int, len(out))
		for range product(out) {
			set, met := map[int]int{}, false
			for i := range k {
				a, b := slices.Clone(at), slices.Clone(at)
				a[len(at)-1], b[len(at)-2] = i, i
				label, same := both(x.at(l, a), y.at(l, b))
				met = met || !same
				set[label]++
			}
			label, wrong := summed(set, Covered{c == Summed, c != Kept}, x.either(y, l), x.sizes()[l])
			if met && c != Mixed {
				wrong = "other rows meet, not noticed"
			}
			if wrong != "" {
				t.Fatalf("seed %d: %s:\n%s", seed, wrong, strings.Join(z.log, "\n"))
			}
			z.labels[l] = append(z.labels[l], label)
			step(at, out)
		}
	}
	return z
}

// either returns where the rows are that a contraction of x and y sums over.
func (x *labelled) either(y *labelled, l int) Spot {
	if s := x.spots()[l]; s.Dims() != 0 {
		return s
	}
	return y.spots()[l]
}

// One row in a product is not a row that is repeated.
func TestContractOneRow(t *testing.T) {
	b := &Batch{N: 1}
	rows := Place{Of: 1}.With(NewSpot(1, Exact, 1), Spot{})
	x, w := Operand{Place: rows, Dims: []int{1, 8}, Batch: b}, Operand{Dims: []int{8, 3}}
	for _, y := range []Operand{w, {Place: Place{Of: 1}, Dims: w.Dims, Batch: b}} {
		if p, r, s := Contract(&x, &y, 2); p != rows || r != Kept || s != Kept {
			t.Error(p, r, s)
		}
	}
}
