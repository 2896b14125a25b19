package shard

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
)

// naive lists the places of a part's elements one by one.
func (p Part) naive() []int {
	var all []int
	for _, b := range p.Boxes {
		at := append([]int(nil), b.Lo...)
		for range b.Len() {
			flat := 0
			for i, x := range at {
				flat = flat*p.Shape[i] + x
			}
			all = append(all, flat)
			for i := len(at) - 1; i >= 0; i-- {
				if at[i]++; at[i] < b.Hi[i] {
					break
				}
				at[i] = b.Lo[i]
			}
		}
	}
	return all[p.Lo:p.Hi]
}

func randomPart(t *testing.T, r *rand.Rand, shape []int) Part {
	var boxes []tensor.Box
	n := 0
	for range r.IntN(4) {
		b := tensor.Box{Lo: make([]int, len(shape)), Hi: make([]int, len(shape))}
		for i, d := range shape {
			b.Lo[i] = r.IntN(d + 1)
			b.Hi[i] = b.Lo[i] + r.IntN(d+1-b.Lo[i])
			if r.IntN(2) == 0 {
				b.Lo[i], b.Hi[i] = 0, d
			}
		}
		boxes = append(boxes, b)
		n += b.Len()
	}
	if len(boxes) == 0 {
		n = Product(shape)
	}
	lo := r.IntN(n + 1)
	p, err := NewPart(shape, boxes, [2]int{lo, lo + r.IntN(n+1-lo)})
	require.NoError(t, err)
	return p
}

// TestTransposed compares random parts of matrices element by element: the file gets the elements in memory, and
// reading the file restores them.
func TestTransposed(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		rows, cols := r.IntN(40), r.IntN(40)
		p := randomPart(t, r, []int{rows, cols})
		q := p.Transposed()
		if p.Whole() {
			require.True(t, q.Whole())
		}
		size := 1 << r.IntN(4)
		mem := make([]byte, p.Len()*size)
		for i := range mem {
			mem[i] = byte(r.Uint32())
		}
		file := p.ToFile(mem, size)
		at := map[int][][]byte{} // elements of the matrix; boxes may overlap
		for i, k := range p.naive() {
			at[k] = append(at[k], mem[i*size:(i+1)*size])
		}
		for i, k := range q.naive() {
			here := k%rows*cols + k/rows
			require.Contains(t, at[here], file[i*size:(i+1)*size])
		}
		back := make([]byte, len(mem))
		p.FromFile(back, file, size)
		require.Equal(t, mem, back)
	}
}

// TestRuns compares the runs of random parts with their elements one by one.
func TestRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		shape := make([]int, r.IntN(5))
		for i := range shape {
			shape[i] = r.IntN(5)
		}
		p := randomPart(t, r, shape)
		var got []int
		for at, n := range p.Runs() {
			require.Positive(t, n)
			for i := range n {
				got = append(got, at+i)
			}
		}
		require.Equal(t, append([]int(nil), p.naive()...), got, "%+v", p)
	}
}

// TestTile compares the result for random parts with a count of every element.
func TestTile(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	good := 0
	for range 3000 {
		shape := []int{1 + r.IntN(3), 1 + r.IntN(3)}
		var parts []Part
		counts := make([]int, Product(shape))
		for range 1 + r.IntN(3) {
			p := randomPart(t, r, shape)
			if r.IntN(2) == 0 { // whole rows, because random parts seldom fit together
				lo := r.IntN(shape[0])
				var err error
				p, err = NewPart(shape, []tensor.Box{{Lo: []int{lo, 0}, Hi: []int{lo + 1 + r.IntN(shape[0]-lo), shape[1]}}}, [2]int{})
				require.NoError(t, err)
			}
			parts = append(parts, p)
			for _, at := range p.naive() {
				counts[at]++
			}
		}
		once := true
		for _, n := range counts {
			once = once && n == 1
		}
		err := Tile(shape, parts)
		if err == nil {
			good++
			require.True(t, once, "%v", parts)
		} else if once { // tile may only refuse parts of boxes that no other part has
			require.ErrorContains(t, err, "nobody has elements")
		}
	}
	require.Greater(t, good, 100)
}

// An exact name wins over patterns, and the last pattern over others.
func TestRules(t *testing.T) {
	rules := Rules{"a.*.weight": {Dim: 0}, "a.*": {Dim: 1}, "a.qkv.weight": {Dim: 2}}
	require.Equal(t, 2, rules.Find("a.qkv.weight").Dim)
	require.Equal(t, 0, rules.Find("a.out.weight").Dim)
	require.Equal(t, 1, rules.Find("a.x").Dim)
	require.Nil(t, rules.Find("b"))
}
