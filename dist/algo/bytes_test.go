package algo_test

import (
	"math/bits"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
)

// slice returns the bytes of slice i when count elements are cut into n.
func slice(count, size, n, i int) int { return (count*(i+1)/n - count*i/n) * size }

// allReduceBytes compares what each rank sent with the formula of the algorithm, and the sum with 2S(n−1).
func (w *world) allReduceBytes(name string, x reduction, count int, sent []uint64) {
	n, size := len(sent), x.dt.Size()
	sum, factors := uint64(0), 0
	for r := range n {
		want := w.allReduceFormula(name, r, count, size)
		if name == "direct" && x.red == backend.PreMulSum {
			want += 8 * (n - 1)
			factors += 8 * (n - 1)
		}
		require.Equal(w.t, uint64(want), sent[r], "%s of %d × %d bytes, rank %d of %d", name, count, size, r, n)
		if name == "double-tree" {
			require.LessOrEqual(w.t, want, (2*count+1)*size, "no rank sends more than 2S, but for the odd element")
		}
		sum += sent[r]
	}
	require.Equal(w.t, uint64(2*(n-1)*count*size+factors), sum, "%s: sum over ranks", name)
}

func (w *world) allReduceFormula(name string, r, count, size int) int {
	n := len(w.at)
	s, own := count*size, slice(count, size, n, r)
	switch name {
	case "direct":
		return s - own + own*(n-1)
	case "ring":
		return s - own + s - slice(count, size, n, (r+1)%n)
	case "hierarchical":
		return w.hierarchicalFormula(r, count, size)
	case "halving-doubling":
		return halvingFormula(n, r, count, size)
	case "double-tree":
		return treeFormula(n, r, count, size)
	}
	panic(name)
}

func halvingFormula(n, r, count, size int) int {
	p := 1 << (bits.Len(uint(n)) - 1)
	extra, s := n-p, count*size
	place, total := r-extra, 0
	if r < 2*extra {
		if r%2 == 0 {
			return s
		}
		place, total = r/2, s
	}
	total += s - slice(count, size, p, place)
	for d := 1; d < p; d *= 2 {
		for i := place / d * d; i < place/d*d+d; i++ {
			total += slice(count, size, p, i)
		}
	}
	return total
}

// treeFormula counts the edges of rank r: in each tree it sends half to the parent and half to each child.
func treeFormula(n, r, count, size int) int {
	if n == 1 {
		return 0
	}
	paired := n &^ 1
	block := 2
	for r|(4*block-1) < paired {
		block *= 4
	}
	total := 0
	for t, place := range [2]int{r, r ^ (block - 1)} {
		messages := 0
		switch {
		case r == paired: // a leaf of the first tree, and the root of the second
			messages = 1
		case place == 0 && (t == 1 || n == paired): // one child, and in the second tree of an odd number a parent
			messages = 1 + n%2
		case place == 0:
			messages = 2
		case place%2 == 1:
			messages = 1 // a leaf's parent
		case place+1 < paired:
			messages = 3
		default:
			messages = 2
		}
		total += slice(count, size, 2, t) * messages
	}
	return total
}
