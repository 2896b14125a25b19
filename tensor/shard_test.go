package tensor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// shardCase is a parameter of the model, divided over ranks.
type shardCase struct {
	name   string
	global []int
	dims   func(rank, n int) []int
	boxes  func(rank, n int) []Box
}

func box(lohi ...int) Box {
	b := Box{}
	for i := 0; i < len(lohi); i += 2 {
		b.Lo, b.Hi = append(b.Lo, lohi[i]), append(b.Hi, lohi[i+1])
	}
	return b
}

var shardCases = []shardCase{
	{"stacked experts", []int{4, 2, 3}, func(_, n int) []int { return []int{4 / n, 2, 3} },
		func(r, n int) []Box { return []Box{box(4*r/n, 4*(r+1)/n, 0, 2, 0, 3)} }},
	{"fused q, k and v by heads", []int{24, 8}, func(_, n int) []int { return []int{24 / n, 8} },
		func(r, n int) (b []Box) {
			for k := range 3 {
				b = append(b, box(8*k+8*r/n, 8*k+8*(r+1)/n, 0, 8))
			}
			return b
		}},
	{"rows", []int{6, 8}, func(_, n int) []int { return []int{6, 8 / n} }, func(r, n int) []Box { return []Box{box(0, 6, 8*r/n, 8*(r+1)/n)} }},
	{"bias", []int{12}, func(_, n int) []int { return []int{12 / n} }, func(r, n int) []Box { return []Box{box(12*r/n, 12*(r+1)/n)} }},
	{"the middle of three dimensions", []int{3, 4, 5}, func(_, n int) []int { return []int{3, 4 / n, 5} },
		func(r, n int) []Box { return []Box{box(0, 3, 4*r/n, 4*(r+1)/n, 0, 5)} }},
	{"inner corners", []int{4, 4, 4}, func(_, n int) []int { return []int{8 / n, 4} },
		func(r, n int) []Box {
			return []Box{box(1, 3, 4*r/n, 4*(r+1)/n, 1, 3), box(0, 1, 4*r/n, 4*(r+1)/n, 0, 4)}
		}},
}

// elements is the oracle of Runs: it computes the index in the whole of each element of boxes.
func elements(global []int, boxes []Box) (out []int) {
	for _, b := range boxes {
		at := append([]int(nil), b.Lo...)
		for range b.Len() {
			k := 0
			for i, n := range global {
				k = k*n + at[i]
			}
			out = append(out, k)
			for i := len(at) - 1; i >= 0; i-- {
				if at[i]++; at[i] < b.Hi[i] {
					break
				}
				at[i] = b.Lo[i]
			}
		}
	}
	return out
}

// A part begins with the bits that its elements have in the whole, also if it is filled piece by piece (fsdp).
func TestCutFillsByGlobalIndex(t *testing.T) {
	for _, c := range shardCases {
		for _, n := range []int{1, 2, 4} {
			for r := range n {
				boxes := c.boxes(r, n)
				whole, part := NewParam(NormalInit(0, 1), c.global...), NewParam(NormalInit(0, 1), c.global...)
				whole.SetName("w")
				part.SetName("w")
				whole.Make(hostDevice, Float64, 3)
				total := 0
				for _, b := range boxes {
					total += b.Len()
				}
				dims := c.dims(r, n)
				if product(dims) != total {
					dims = []int{total}
				}
				part.Cut(dims, boxes...)
				all, index := Floats(whole.Value), elements(c.global, boxes)
				want := make([]float64, len(index))
				for i, k := range index {
					want[i] = all[k]
				}
				what := fmt.Sprintf("%s, rank %d of %d", c.name, r, n)
				assert.Equal(t, []any{dims, total, c.global}, []any{part.Dims(), part.Len(), part.Global()}, what)
				part.Make(hostDevice, Float64, 3)
				assert.Equal(t, want, Floats(part.Value), what)
				for lo := 0; lo < total; lo += 5 {
					hi := min(lo+5, total)
					x := New(hostDevice, Float64, hi-lo)
					part.Fill(x, 3, lo)
					assert.Equal(t, want[lo:hi], Floats(x), what)
				}
				part.SetValue(New(hostDevice, Float64, dims...))
				part.SetValue(whole.Value)
				assert.Equal(t, want, Floats(part.Local), "%s: its part of the model's tensor", what)
			}
		}
	}
}

// Experts 2 and 3 have the values of these experts in the model, and are not copies of 0 and 1.
func TestStackedExperts(t *testing.T) {
	p := NewParam(UniformInit(-1, 1), 4, 2, 3)
	p.Cut([]int{2, 2, 3}, box(2, 4, 0, 2, 0, 3))
	whole := FromSlice([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, 4, 2, 3)
	p.SetValue(whole)
	assert.Equal(t, []float64{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, Floats(p.Value))
	assert.Equal(t, []int{2, 2, 3}, p.Value.Shape().Dims)
	assert.True(t, p.Shard.Counts)
}

func TestCutRefuses(t *testing.T) {
	for _, c := range []struct {
		want  string
		dims  []int
		boxes []Box
		first func(p *Param)
	}{
		{"Cut w: [4 6] to [2 6]: it has a value already", []int{2, 6}, []Box{box(0, 2, 0, 6)}, func(p *Param) { p.Make(hostDevice, Float32, 1) }},
		{"its gradient belongs to ddp already", []int{2, 6}, []Box{box(0, 2, 0, 6)}, func(p *Param) { _ = p.Own(named{}) }},
		{"it is cut already", []int{1, 6}, []Box{box(0, 1, 0, 6)}, func(p *Param) { p.Cut([]int{2, 6}, box(0, 2, 0, 6)) }},
		{"no boxes", []int{4, 6}, nil, nil},
		{"the box from [3 0] to [5 6] is not in shape [4 6]", []int{2, 6}, []Box{box(3, 5, 0, 6)}, nil},
		{"the box from [-1 0] to [1 6] is not in shape [4 6]", []int{2, 6}, []Box{box(-1, 1, 0, 6)}, nil},
		{"the box from [2 0] to [1 6] is not in shape [4 6]", []int{2, 6}, []Box{box(2, 1, 0, 6)}, nil},
		{"the box from [0] to [2] is not in shape [4 6]", []int{2}, []Box{box(0, 2)}, nil},
		{"overlap", []int{4, 6}, []Box{box(0, 2, 0, 6), box(1, 3, 0, 6)}, nil},
		{"the boxes have 12 elements, the part 18", []int{3, 6}, []Box{box(0, 2, 0, 6)}, nil},
		{"the boxes have 12 elements, the part 12", []int{-2, -6}, []Box{box(0, 2, 0, 6)}, nil},
	} {
		p := NewParam(Constant(0), 4, 6)
		p.SetName("w")
		if c.first != nil {
			c.first(p)
		}
		assert.ErrorContains(t, Try(func() { p.Cut(c.dims, c.boxes...) }), c.want)
	}
	p := NewParam(Constant(0), 4, 6)
	p.SetName("w")
	p.Cut([]int{0, 6}, box(4, 4, 0, 6)) // a rank without an expert
	p.Make(hostDevice, Float32, 1)
	assert.ErrorContains(t, Try(func() { p.SetValue(New(hostDevice, Float32, 5)) }), "w has shape [0 6] here and [4 6] in the model")
}

// Counts can become false, but never true again.
func TestNarrowCounts(t *testing.T) {
	p := NewParam(Constant(0), 4)
	assert.Nil(t, p.Shard.Global)
	p.NarrowCounts(true)
	assert.Equal(t, Shard{Global: []int{4}, Counts: true}, p.Shard)
	p.NarrowCounts(false)
	p.NarrowCounts(true)
	assert.False(t, p.Shard.Counts)
	p.Cut([]int{2}, box(2, 4))
	assert.False(t, p.Shard.Counts)
}

// A parameter goes through its Function at each use.
func TestThrough(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float32}
	p := ps.add("p", Constant(0.5), 1)
	p.Through(nowScale{})
	tape := NewTape(hostDevice)
	tape.Backward(tape.Use(p).Add(tape.Use(p)).Sum())
	assert.Equal(t, 4.0, p.Grad.Item())
	assert.ErrorContains(t, Try(func() { p.Through(identity{}) }), "p goes through now_scale already; identity cannot be added")
	assert.ErrorContains(t, Try(func() { p.Through(nil) }), "p: there is no Function")
}
