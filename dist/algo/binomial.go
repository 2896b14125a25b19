package algo

import (
	"slices"

	"github.com/ringo-ml/ringo/dist/backend"
)

// binomial returns the parent of a place in the binomial tree of n places with root 0 (-1 for the root), and its children, the one with
// the largest subtree first.
func binomial(place, n int) (parent int, children []int) {
	parent, width := -1, place&-place // width of the subtree of place
	if place > 0 {
		parent = place - width
	} else {
		width = 1 << lg(n)
	}
	for d := width / 2; d > 0; d /= 2 {
		if place+d < n {
			children = append(children, place+d)
		}
	}
	return parent, children
}

// tree returns the parent and the children of this rank, children on other hosts first. One rank of each host (the root, or the first
// rank of the host) is in a binomial tree over the hosts. It is also the root of a tree inside its host. So S goes to each host once, on
// whatever hosts the ranks are.
func (m *Messages) tree(root int) (parent int, children []int) {
	h := m.hosts()
	n, first := len(h.ranks), m.at[root]
	head := func(host int) int { // its place in its host
		if host == first {
			return slices.Index(h.ranks[host], root)
		}
		return 0
	}
	ranks, lead := h.mine(), head(h.me)
	parent, inside := binomial((h.at-lead+len(ranks))%len(ranks), len(ranks))
	if parent >= 0 {
		parent = ranks[(parent+lead)%len(ranks)]
	} else {
		up, across := binomial((h.me-first+n)%n, n)
		if up >= 0 {
			host := (up + first) % n
			parent = h.ranks[host][head(host)]
		}
		for _, c := range across {
			host := (c + first) % n
			children = append(children, h.ranks[host][head(host)])
		}
	}
	for _, c := range inside {
		children = append(children, ranks[(c+lead)%len(ranks)])
	}
	return parent, children
}

// binomialBroadcast: ranks that have the buffer send it to half of those that do not have it (the binomial tree of MPICH; Thakur,
// Rabenseifner, Gropp 2005, "Optimization of collective communication operations in MPICH"), first over the hosts, then inside each.
// Bytes: S for each child: root S(⌈lg N⌉+⌈lg g⌉), S(n−1) in all, S(N−1) between hosts. ⌈lg N⌉+⌈lg g⌉ steps, in a pipeline of chunks,
// after all have agreed (disseminate).
func (m *Messages) binomialBroadcast(op *backend.Op) error {
	if err := m.disseminate(); err != nil {
		return err
	}
	parent, children := m.tree(op.Root)
	buf := whole(op.Dst)
	if parent < 0 {
		buf = whole(op.Src)
		if op.Dst.Bytes > 0 {
			copyPart(whole(op.Dst), buf)
		}
	}
	for k := range numChunks(len(buf)) {
		if parent >= 0 {
			if err := m.t.Recv(parent, 0, chunkOf(buf, k)); err != nil {
				return err
			}
		}
		for _, child := range children {
			if err := m.t.Send(child, 0, chunkOf(buf, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// binomialReduce: the same tree in the other direction. Each rank adds what its children send to its input and sends the sum to its
// parent. Bytes: S, root 0; S(N−1) between hosts. ⌈lg N⌉+⌈lg g⌉ steps, in a pipeline of chunks, after all have agreed (disseminate).
// Ranks are counted from the root. A subtree is combined before it is combined with another one.
func (m *Messages) binomialReduce(op *backend.Op) error {
	if err := m.disseminate(); err != nil {
		return err
	}
	parent, children := m.tree(op.Root)
	src, dst := whole(op.Src), whole(op.Dst)
	m.fold.begin(op, m.t.Size())
	for k := range numChunks(len(src)) {
		sum := m.fold.own(chunkOf(src, k))
		to := m.scratch(0, len(sum))
		if parent < 0 {
			to = chunkOf(dst, k)
		}
		for _, child := range slices.Backward(children) {
			in := m.scratch(1, len(sum))
			if err := m.t.Recv(child, 0, in); err != nil {
				return err
			}
			m.fold.add(to, sum, in)
			sum = to
		}
		if parent < 0 {
			copyPart(to, sum)
			m.fold.end(to)
		} else if err := m.t.Send(parent, 0, sum); err != nil {
			return err
		}
	}
	return nil
}
