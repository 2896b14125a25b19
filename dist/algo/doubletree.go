package algo

import (
	"math/bits"

	"github.com/ringo-ml/ringo/dist/backend"
)

// treeNode is this rank's place in one of the two trees: its parent (-1 for none) and its children.
type treeNode struct {
	parent   int
	children []int
}

// treeParent returns the parent of place i in a binary tree of n places, numbered in order; -1 if it has none. Odd places are leaves, and
// place 0 is the root, with one child.
func treeParent(i, n int) int {
	if i == 0 {
		return -1
	}
	low := i & -i
	if up := i&^low | low<<1; up < n {
		return up
	}
	return i &^ low
}

// twoTrees returns the places of rank among n in the two trees. The second tree is the mirror image of the first, or, if n is odd, the
// first one shifted by one rank. So a rank with two children in one tree has none in the other, except next to the root.
func twoTrees(rank, n int) [2]treeNode {
	mirror := func(i int) int { return n - 1 - i }
	back := mirror
	if n%2 == 1 {
		mirror, back = func(r int) int { return (r - 1 + n) % n }, func(i int) int { return (i + 1) % n }
	}
	same := func(i int) int { return i }
	var trees [2]treeNode
	for t, to := range [2][2]func(int) int{{same, same}, {mirror, back}} {
		place, rankOf := to[0](rank), to[1]
		trees[t].parent = -1
		if up := treeParent(place, n); up >= 0 {
			trees[t].parent = rankOf(up)
		}
		for i := range n {
			if treeParent(i, n) == place {
				trees[t].children = append(trees[t].children, rankOf(i))
			}
		}
	}
	return trees
}

// doubleTree: each half of the buffer is reduced to the root of its own binary tree and broadcast from there, in a pipeline of chunks. An
// inner rank of one tree is a leaf of the other (Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan"). Bytes: for each tree half of S to the parent, and half to each child: 2S at most, 2S(n−1) in all. About 4·lg n steps. A
// rank's input is combined with the results of its children, the lower one first.
//
// There is no deadlock. All ranks go through chunks, phases and trees in the same order. A rank waits only for something earlier in this
// order, or for ranks deeper (in the second phase higher) in one tree.
func (m *Messages) doubleTree(op *backend.Op) error {
	n := m.t.Size()
	trees, at := twoTrees(m.t.Rank(), n), m.slices(op, 2)
	src, dst := whole(op.Src), whole(op.Dst)
	m.fold.begin(op, n)
	count := pieces(at.longest(2))
	behind := 2 * bits.Len(uint(n)) // steps of a chunk up and down
	for k := range count + behind {
		for t := range trees {
			if k >= count {
				break
			}
			if err := m.treeUp(&trees[t], piece(at.of(dst, t), k), piece(at.of(src, t), k)); err != nil {
				return err
			}
		}
		for t := range trees {
			if k < behind {
				break
			}
			if err := m.treeDown(&trees[t], piece(at.of(dst, t), k-behind)); err != nil {
				return err
			}
		}
	}
	return nil
}

// treeUp adds what the children send to src and sends the sum to the parent; the root keeps it.
func (m *Messages) treeUp(x *treeNode, dst, src []byte) error {
	sum := m.fold.own(src)
	to := m.scratch(0, linearChunk)[:len(src)]
	for _, child := range x.children {
		in := m.scratch(1, linearChunk)[:len(src)]
		if err := m.t.Recv(child, 0, in); err != nil {
			return err
		}
		m.fold.add(to, sum, in)
		sum = to
	}
	if x.parent >= 0 {
		return m.t.Send(x.parent, 0, sum)
	}
	copyPart(dst, sum)
	m.fold.end(dst)
	return nil
}

// treeDown sends the result to the children.
func (m *Messages) treeDown(x *treeNode, dst []byte) error {
	if x.parent >= 0 {
		if err := m.t.Recv(x.parent, 0, dst); err != nil {
			return err
		}
	}
	for _, child := range x.children {
		if err := m.t.Send(child, 0, dst); err != nil {
			return err
		}
	}
	return nil
}
