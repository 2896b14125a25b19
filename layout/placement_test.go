package layout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
)

// job is a random grid of ranks. Each of its axes cuts a dimension of a tensor, keeps a range of it, or has copies.
type job struct {
	shape []int
	sizes []int
	cuts  map[int]layout.Division // by axis
	keeps int                     // the axis that divides what is left; -1: none
}

func randomJob(r *rand.Rand) job {
	j := job{cuts: map[int]layout.Division{}, keeps: -1}
	for range 1 + r.IntN(4) {
		j.shape = append(j.shape, 1+r.IntN(6))
	}
	whole := map[int]bool{} // dimensions that are not cut yet
	for d := range j.shape {
		whole[d] = true
	}
	for a := range r.IntN(5) {
		j.sizes = append(j.sizes, 1+r.IntN(3))
		switch k := r.IntN(4); {
		case k < 2:
			c := layout.Division{Dim: r.IntN(len(j.shape))}
			switch n := j.shape[c.Dim]; {
			case !whole[c.Dim]: // this axis divides what the one before leaves
			case r.IntN(2) == 0 && c.Dim == 0:
				first := r.IntN(n + 1)
				c.Parts = []int{first, n - first}
			case r.IntN(2) == 0:
				c.Unit = 1 + r.IntN(2)
				j.shape[c.Dim] = c.Unit * (j.sizes[a] + r.IntN(3))
			}
			j.cuts[a], whole[c.Dim] = c, false
		case k == 2 && j.keeps < 0:
			j.keeps = a
		}
	}
	return j
}

// place returns what the rank at these coordinates has.
func (j job) place(t *testing.T, at []int) layout.Placement {
	p, err := layout.Whole(j.shape...), error(nil)
	for a, size := range j.sizes {
		if c, ok := j.cuts[a]; ok {
			p, err = p.Place(layout.Axis{Axes: 1 << a, Rank: at[a], Ranks: size}, c)
			require.NoError(t, err, "%+v", j)
		}
	}
	if j.keeps >= 0 {
		lo, hi := p.Range()
		p = p.Shard(layout.Share(hi-lo, at[j.keeps], j.sizes[j.keeps]))
	}
	return p
}

func (j job) ranks() [][]int {
	all := [][]int{{}}
	for _, n := range j.sizes {
		var next [][]int
		for _, at := range all {
			for i := range n {
				next = append(next, append(slices.Clone(at), i))
			}
		}
		all = next
	}
	return all
}

// elements lists what a placement leaves, one by one.
func elements(p layout.Placement) (all []int) {
	lo, hi := p.Range()
	for first, n := range p.Runs(lo, hi) {
		for i := range n {
			all = append(all, first+i)
		}
	}
	return all
}

// Over the ranks of the axes that divide a tensor, each element is in one place. Over the job, each counts once, also if copies are divided
// elsewhere. On every rank, boxes one after another are a tensor of Dims.
func TestPlacementsPartition(t *testing.T) {
	r, copies := rand.New(rand.NewPCG(7, 8)), 0
	jobs := 1000
	if reliability.Long(t) {
		jobs = 3000
	}
	for range jobs {
		j := randomJob(r)
		total := layout.WholeBox(j.shape).Len()
		held, counts := make([]int, total), make([]int, total)
		var all [][]int
		var kept []layout.Held[string]
		for _, at := range j.ranks() {
			p := j.place(t, at)
			boxes := 0
			for _, b := range p.Boxes() {
				require.NoError(t, b.Within(j.shape))
				boxes += b.Len()
			}
			require.Equal(t, layout.WholeBox(p.Dims()).Len(), boxes, "%+v at %v: %v", j, at, p)
			require.True(t, p.Equal(j.place(t, at)))
			mine := elements(p)
			require.Len(t, mine, p.Len())
			copied := false
			for a := range j.sizes {
				if _, cut := j.cuts[a]; !cut && a != j.keeps {
					copied = copied || at[a] > 0
				}
			}
			if copied {
				copies++
				n := layout.WholeBox(p.Dims()).Len()
				p = p.Shard(0, n) // another copy
				if j.keeps >= 0 {
					p = p.Shard(layout.Share(n, j.sizes[j.keeps]-1-at[j.keeps], j.sizes[j.keeps]))
				}
				mine = elements(p)
			}
			for _, i := range mine {
				if !copied {
					held[i]++
				}
			}
			lo, hi := p.Range()
			all, kept = append(all, mine), append(kept, layout.Held[string]{Of: fmt.Sprint(p.Boxes()), Lo: lo, Hi: hi})
		}
		for i, counted := range layout.Counted(kept) {
			for _, k := range all[i] {
				if counted {
					counts[k]++
				}
			}
		}
		once := slices.Repeat([]int{1}, total)
		require.Equal(t, once, held, "%+v", j)
		require.Equal(t, once, counts, "%+v", j)
	}
	require.Greater(t, copies, 1000)
}

func TestLongPlacementsPartition(t *testing.T) { reliability.AsLong(t, TestPlacementsPartition) }

// The elements are those that plain loops over the tensor find.
func TestPlacementByLoops(t *testing.T) {
	p, err := layout.Whole(10, 4, 3).Place(layout.Axis{Axes: 1, Rank: 1, Ranks: 2}, layout.Division{Parts: []int{6, 4}, Unit: 1})
	require.NoError(t, err)
	p, err = p.Place(layout.Axis{Axes: 6, Rank: 2, Ranks: 3}, layout.Division{Dim: 2})
	require.NoError(t, err)
	require.Equal(t, []int{5, 4, 1}, p.Dims())
	require.Equal(t, layout.Axes(7), p.Divided())
	require.Equal(t, layout.Axes(8), p.SumOver(8).Summed())
	var want []int
	for _, row := range []int{3, 4, 5, 8, 9} {
		for col := range 4 {
			want = append(want, (row*4+col)*3+2)
		}
	}
	require.Equal(t, want, elements(p))
	require.Equal(t, want[3:9], elements(p.Shard(3, 9)))
	require.Empty(t, elements(p.Shard(0, 0)))
}

func TestPlaceRefuses(t *testing.T) {
	two := layout.Axis{Axes: 1, Rank: 1, Ranks: 2}
	cut, err := layout.Whole(8, 6).Place(two, layout.Division{})
	require.NoError(t, err)
	for _, c := range []struct {
		want string
		p    layout.Placement
		axis layout.Axis
		cut  layout.Division
	}{
		{"dimension 2 of shape [8 6]", layout.Whole(8, 6), two, layout.Division{Dim: 2}},
		{"a group of 2 ranks that is no axis of the job: make the first Mesh", layout.Whole(8, 6), layout.Axis{Rank: 1, Ranks: 2},
			layout.Division{}},
		{"this rank has elements 2 to 5 of it already", layout.Whole(8, 6).Shard(2, 5), two, layout.Division{}},
		{"3 units of 2 do not divide over 5 ranks", layout.Whole(6), layout.Axis{Axes: 1, Rank: 1, Ranks: 5}, layout.Division{Unit: 2}},
		{"only dimension 0 can have parts", layout.Whole(8, 6), two, layout.Division{Dim: 1, Parts: []int{2, 4}}},
		{"only dimension 0 can have parts, and before it is divided", cut, layout.Axis{Axes: 2, Ranks: 2}, layout.Division{Parts: []int{4, 4}}},
		{"4 ranks of one axis would have the same of 8 elements in units of 4", layout.Whole(8, 6), layout.Axis{Axes: 1, Ranks: 4},
			layout.Division{Unit: 4}},
		{"8 elements do not divide into units of 3", layout.Whole(8, 6), two, layout.Division{Unit: 3}},
	} {
		_, err := c.p.Place(c.axis, c.cut)
		require.ErrorContains(t, err, c.want)
	}
	p, err := layout.Whole(8, 6).Place(layout.Axis{Ranks: 1}, layout.Division{})
	require.NoError(t, err)
	require.Empty(t, p.Divisions(), "one rank has all")
}
