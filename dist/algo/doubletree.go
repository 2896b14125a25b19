package algo

import (
	"math/bits"

	"github.com/ringo-ml/ringo/dist/backend"
)

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

// mirror turns around the largest block of 2·4^k ranks around i, of an even number n: even ones become odd.
func mirror(i, n int) int {
	block := 2
	for i|(4*block-1) < n {
		block *= 4
	}
	return i ^ (block - 1)
}

// treeUp returns the parent of rank in one of two trees over n ranks (-1: it is the root), and the color of the edge to it. In tree 0 a
// rank's place is its number, in tree 1 the mirrored one. The last of an odd number of ranks is a second child of the root of tree 0, and
// the root of tree 1, with the root over the others as its child.
//
// A color is 1 if the number of ones in the child's place is even. So the edges to a rank's two children differ: with the lowest one of
// the rank's place left out, their places have one more and two more. And so do the edges to its two parents: mirror changes an odd number
// of bits.
func treeUp(tree, rank, n int) (parent, color int) {
	paired := n &^ 1
	if rank == paired {
		return -tree, 1
	}
	place := rank
	if tree == 1 {
		place = mirror(rank, paired)
	}
	parent = treeParent(place, paired)
	switch {
	case tree == 1 && parent >= 0:
		parent = mirror(parent, paired)
	case tree == 1 && paired < n:
		parent = paired
	}
	return parent, 1 - bits.OnesCount(uint(place))%2
}

// treeHeight returns how many edges are between a root of the two trees and the lowest ranks.
func treeHeight(n int) int { return lg(n&^1) + n%2 }

// treeEdge is an edge of a rank to a parent or child.
type treeEdge struct {
	peer  int // -1: there is none
	tree  int
	depth int // of the child
}

// twoTrees is a double-tree all-reduce on one rank.
type twoTrees struct {
	*Messages
	parents, children [2]treeEdge // by color
	inner             int         // the tree in which this rank has children
	root              bool        // of that tree
	height            int
	chunks            int
	src, dst          [2][]byte // by tree: its half
}

// connect finds the edges of this rank.
func (x *twoTrees) connect() {
	n, rank := x.t.Size(), x.t.Rank()
	none := treeEdge{peer: -1}
	x.parents, x.children = [2]treeEdge{none, none}, [2]treeEdge{none, none}
	x.height = treeHeight(n)
	for tree := range 2 {
		depth := 0
		for up, _ := treeUp(tree, rank, n); up >= 0; up, _ = treeUp(tree, up, n) {
			depth++
		}
		if up, color := treeUp(tree, rank, n); up >= 0 {
			x.parents[color] = treeEdge{up, tree, depth}
		}
		for child := range n {
			if up, color := treeUp(tree, child, n); up == rank {
				x.children[color] = treeEdge{child, tree, depth + 1}
				x.inner, x.root = tree, depth == 0
			}
		}
	}
}

// doubleTree: each half of the buffer is reduced to the root of its own binary tree and broadcast from there, in a pipeline of chunks. An
// inner rank of one tree is a leaf of the other (Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan"). Bytes: for each tree half of S to the parent, and half to each child: 2S at most, 2S(n−1) in all. A rank's input is combined
// with the results of its children, that of color 0 first.
//
// In a tick, a rank at depth d of a tree of height h sends chunk tick−h+d to its parent, and chunk tick−h−d+1 to its children. A tick has
// four turns: up and down, each in two colors. In a turn a rank exchanges a chunk with a parent in one tree, and one with a child in the
// other. There is no deadlock: ranks wait only for others in the same turn. Half of S takes 2h−2 ticks more than it has chunks, a small
// buffer about 2·lg n + 2 steps.
func (m *Messages) doubleTree(op *backend.Op) error {
	m.fold.begin(op, m.t.Size())
	if m.t.Size() == 1 {
		m.fold.copy(whole(op.Dst), whole(op.Src))
		return nil
	}
	at := m.slices(op, 2)
	x := twoTrees{Messages: m, chunks: numChunks(at.longest(2))}
	x.connect()
	for tree := range 2 {
		x.src[tree], x.dst[tree] = at.of(whole(op.Src), tree), at.of(whole(op.Dst), tree)
	}
	for tick := range x.chunks + 2*x.height - 2 {
		for color := range 2 {
			if err := x.sendUp(tick, color); err != nil {
				return err
			}
		}
		for color := range 2 {
			if err := x.sendDown(tick, color); err != nil {
				return err
			}
		}
	}
	return nil
}

// part returns the peer of an edge, and chunk k of the edge's half of b; −1 if the edge or the chunk does not exist.
func (x *twoTrees) part(e *treeEdge, b *[2][]byte, k int) (peer int, part []byte) {
	if e.peer < 0 || k < 0 || k >= x.chunks {
		return -1, nil
	}
	return e.peer, chunkOf(b[e.tree], k)
}

// sendUp sends a sum to the parent of a color, and adds what the child of that color sends to the sum that is made in dst.
func (x *twoTrees) sendUp(tick, color int) error {
	parent, child := &x.parents[color], &x.children[color]
	to, out := x.part(parent, &x.dst, tick-x.height+parent.depth)
	if parent.tree != x.inner {
		_, out = x.part(parent, &x.src, tick-x.height+parent.depth)
		out = x.fold.own(out)
	}
	from, sum := x.part(child, &x.dst, tick-x.height+child.depth)
	in := x.scratch(0, len(sum))
	if err := x.exchange(to, out, from, in); err != nil || from < 0 {
		return err
	}
	mine := sum
	if color == 0 || x.children[0].peer < 0 {
		_, mine = x.part(child, &x.src, tick-x.height+child.depth)
		mine = x.fold.own(mine)
	}
	x.fold.add(sum, mine, in)
	if x.root && (color == 1 || x.children[1].peer < 0) {
		x.fold.end(sum)
	}
	return nil
}

// sendDown receives a result from the parent of a color, and sends another to the child of that color.
func (x *twoTrees) sendDown(tick, color int) error {
	parent, child := &x.parents[color], &x.children[color]
	to, out := x.part(child, &x.dst, tick-x.height-child.depth+2)
	from, in := x.part(parent, &x.dst, tick-x.height-parent.depth+2)
	return x.exchange(to, out, from, in)
}

// exchange sends and receives at the same time; −1 is nobody.
func (m *Messages) exchange(to int, out []byte, from int, in []byte) error {
	switch {
	case to < 0 && from < 0:
		return nil
	case from < 0:
		return m.t.Send(to, 0, out)
	case to < 0:
		return m.t.Recv(from, 0, in)
	}
	return m.t.SendRecv(to, out, from, in, 0)
}
