package tensor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/layout"
	. "github.com/ringo-ml/ringo/tensor"
)

// placeCases are parameters of the model, divided over ranks, and the boxes that a rank has.
var placeCases = []struct {
	name   string
	global []int
	cut    layout.Division
	boxes  func(rank, n int) []Box
}{
	{"stacked experts", []int{4, 2, 3}, layout.Division{}, func(r, n int) []Box { return []Box{box(4*r/n, 4*(r+1)/n, 0, 2, 0, 3)} }},
	{"fused q, k and v by heads", []int{24, 8}, layout.Division{Parts: []int{8, 8, 8}, Unit: 2},
		func(r, n int) (b []Box) {
			for k := range 3 {
				b = append(b, box(8*k+8*r/n, 8*k+8*(r+1)/n, 0, 8))
			}
			return b
		}},
	{"rows", []int{6, 8}, layout.Division{Dim: 1}, func(r, n int) []Box { return []Box{box(0, 6, 8*r/n, 8*(r+1)/n)} }},
	{"bias", []int{12}, layout.Division{}, func(r, n int) []Box { return []Box{box(12*r/n, 12*(r+1)/n)} }},
	{"the middle of three dimensions", []int{3, 4, 5}, layout.Division{Dim: 1},
		func(r, n int) []Box { return []Box{box(0, 3, 4*r/n, 4*(r+1)/n, 0, 5)} }},
}

func box(lohi ...int) Box {
	b := Box{}
	for i := 0; i < len(lohi); i += 2 {
		b.Lo, b.Hi = append(b.Lo, lohi[i]), append(b.Hi, lohi[i+1])
	}
	return b
}

func axis(rank, ranks int) layout.Axis { return layout.Axis{Axes: 1, Rank: rank, Ranks: ranks} }

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
func TestPlaceFillsByGlobalIndex(t *testing.T) {
	for _, c := range placeCases {
		for _, n := range []int{1, 2, 4} {
			for r := range n {
				whole, part := NewParam(NormalInit(0, 1), c.global...), NewParam(NormalInit(0, 1), c.global...)
				whole.SetName("w")
				part.SetName("w")
				whole.Make(hostDevice, Float64, 3)
				part.Place(axis(r, n), c.cut)
				all, index := Floats(whole.Value), elements(c.global, c.boxes(r, n))
				want := make([]float64, len(index))
				for i, k := range index {
					want[i] = all[k]
				}
				what, total := fmt.Sprintf("%s, rank %d of %d", c.name, r, n), part.Len()
				assert.Equal(t, []any{len(want), c.global, n > 1}, []any{total, part.Global(), part.IsCut()}, what)
				part.Make(hostDevice, Float64, 3)
				assert.Equal(t, want, Floats(part.Value), what)
				for lo := 0; lo < total; lo += 5 {
					hi := min(lo+5, total)
					x := New(hostDevice, Float64, hi-lo)
					part.Fill(x, 3, lo)
					assert.Equal(t, want[lo:hi], Floats(x), what)
				}
				part.SetValue(New(hostDevice, Float64, part.Dims()...))
				part.SetValue(whole.Value)
				assert.Equal(t, want, Floats(part.Local), "%s: its part of the model's tensor", what)
			}
		}
	}
}

// Experts 2 and 3 have the values of these experts in the model, and are not copies of 0 and 1.
func TestStackedExperts(t *testing.T) {
	p := NewParam(UniformInit(-1, 1), 4, 2, 3)
	p.Place(axis(1, 2), layout.Division{})
	whole := FromSlice([]float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, 4, 2, 3)
	p.SetValue(whole)
	assert.Equal(t, []float64{12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}, Floats(p.Value))
	assert.Equal(t, []int{2, 2, 3}, p.Value.Shape().Dims)
}

func TestPlaceRefuses(t *testing.T) {
	for want, first := range map[string]func(p *Param){
		"Place w: [4 6]: it has a value already":                                func(p *Param) { p.Make(hostDevice, Float32, 1) },
		"Place w: [4 6]: its gradient belongs to ddp already":                   func(p *Param) { _ = p.Own(named{}, 0) },
		"axis 0: w[2 6]: it is cut over this axis already":                      func(p *Param) { p.Place(axis(0, 2), layout.Division{}) },
		"axis 0: w[4 6]: its gradient is summed over this axis, on whose ranks": func(p *Param) { p.SumOver(1) },
		"w: [4 6]: this rank has elements 1 to 3 of it already":                 func(p *Param) { p.Shard(1, 3) },
	} {
		p := NewParam(Constant(0), 4, 6)
		p.SetName("w")
		first(p)
		assert.ErrorContains(t, Try(func() { p.Place(axis(1, 2), layout.Division{Dim: 1}) }), want)
	}
	p := NewParam(Constant(0), 2, 6)
	p.SetName("w")
	err := Try(func() { p.Place(axis(0, 2), layout.Division{Dim: 2}) })
	assert.ErrorContains(t, err, "Place w: [2 6]: dimension 2 of shape [2 6] for rank 0 of 2")
	p.Place(axis(2, 3), layout.Division{}) // a rank without an expert
	p.Make(hostDevice, Float32, 1)
	assert.ErrorContains(t, Try(func() { p.SetValue(New(hostDevice, Float32, 5)) }), "w has shape [0 6] here and [2 6] in the model")
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
