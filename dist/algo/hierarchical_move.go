package algo

import "github.com/ringo-ml/ringo/dist/backend"

// hierarchicalBroadcast: a chain through all ranks, host by host, the root's host first. Bytes: S, the last rank 0. Each other host gets
// S once: S(N−1) between hosts in all. n+s−2 steps for s chunks, after all have agreed (disseminate).
func (m *Messages) hierarchicalBroadcast(op *backend.Op) error {
	h := m.hosts()
	var order []int
	for d := range h.ranks {
		ranks := h.ranks[(m.at[op.Root]+d)%len(h.ranks)]
		if d == 0 {
			order = append(order, op.Root)
		}
		for _, r := range ranks {
			if r != op.Root {
				order = append(order, r)
			}
		}
	}
	return m.chainAlong(op, order)
}

// proxy returns the rank of a host that represents rank r there: r itself on its own host; on other hosts the ranks take turns.
func (m *Messages) proxy(h *hosts, host, r int) int {
	place := 0
	for _, peer := range h.ranks[m.at[r]] {
		if peer == r {
			break
		}
		place++
	}
	ranks := h.ranks[host]
	return ranks[place%len(ranks)]
}

// proxied returns the ranks that this rank of its host represents, in order.
func (m *Messages) proxied(h *hosts, rank int) []int {
	var out []int
	for r := range m.at {
		if m.proxy(h, h.me, r) == rank {
			out = append(out, r)
		}
	}
	return out
}

// hierarchicalAllGather: every rank sends its part to one rank of each other host; then the ranks of a host exchange what they got.
// Bytes: to other hosts the rank's part × (N−1), which is (S/n)(N−1); inside, the parts of the ranks that it represents × (g−1), which is
// S(g−1)/g for hosts of equal size. N−1 steps, then one for each part and peer.
func (m *Messages) hierarchicalAllGather(op *backend.Op) error {
	at := even(op.Count * op.DType.Size())
	if op.Kind == backend.AllGatherV {
		at = rows(op.DstCounts, op.DType.Size())
	}
	h, rank, dst := m.hosts(), m.t.Rank(), whole(op.Dst)
	copyPart(at.of(dst, rank), whole(op.Src))
	n := len(h.ranks)
	for s := 1; s < n; s++ {
		to, from := m.proxy(h, (h.me+s)%n, rank), h.ranks[(h.me-s+n)%n]
		sent := false
		for _, r := range from {
			if m.proxy(h, h.me, r) != rank {
				continue
			}
			var err error
			if sent {
				err = m.t.Recv(r, 0, at.of(dst, r))
			} else {
				err = m.t.SendRecv(to, at.of(dst, rank), r, at.of(dst, r), 0)
			}
			if err != nil {
				return err
			}
			sent = true
		}
		if !sent {
			if err := m.t.Send(to, 0, at.of(dst, rank)); err != nil {
				return err
			}
		}
	}
	return m.gatherInside(h, dst, at)
}

// gatherInside sends the parts of the ranks that it represents to the other ranks of this host.
func (m *Messages) gatherInside(h *hosts, dst []byte, at parts) error {
	lists, most := m.lists(h)
	for s := 1; s < len(h.mine()); s++ {
		to, from := h.neighbors(s)
		mine, theirs := lists[h.at], lists[from]
		for i := range most {
			if err := m.t.SendRecv(h.mine()[to], partAt(dst, at, mine, i), h.mine()[from], partAt(dst, at, theirs, i), 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// lists returns the ranks that each rank of this host represents, and the length of the longest list. Each peer gets so many messages;
// those after the end of a list are empty.
func (m *Messages) lists(h *hosts) (lists [][]int, most int) {
	for _, rank := range h.mine() {
		list := m.proxied(h, rank)
		lists, most = append(lists, list), max(most, len(list))
	}
	return lists, most
}

// partAt returns the part of ranks[i], and nothing after the last.
func partAt(b []byte, at parts, ranks []int, i int) []byte {
	if i >= len(ranks) {
		return nil
	}
	return at.of(b, ranks[i])
}

// hierarchicalReduceScatter: inside a host, each rank adds up the parts of the ranks that it represents; then the sums go to their owners
// on other hosts. Bytes: all parts but the rank's own, S(n−1)/n for equal parts. Of these, S(N−1)/N for each host go to other hosts; the
// other algorithms send g times as much there. A step for each part and peer inside, then N−1, in a pipeline of chunks.
func (m *Messages) hierarchicalReduceScatter(op *backend.Op) error {
	at := even(op.Count * op.DType.Size())
	if op.Kind == backend.ReduceScatterV {
		at = rows(op.SrcCounts, op.DType.Size())
	}
	h := m.hosts()
	lists, most := m.lists(h)
	m.fold.begin(op, m.t.Size())
	for k := range numChunks(at.longest(m.t.Size())) {
		sums, err := m.sumInside(h, whole(op.Src), at, lists, most, k)
		if err != nil {
			return err
		}
		if err := m.sumAcross(h, chunkOf(whole(op.Dst), k), lists[h.at], sums); err != nil {
			return err
		}
	}
	return nil
}

// sumInside returns the host's sums of chunk k of the parts of the ranks that this rank represents.
func (m *Messages) sumInside(h *hosts, src []byte, at parts, lists [][]int, most, k int) ([][]byte, error) {
	mine := lists[h.at]
	memory, sums := m.scratch(0, len(mine)*chunkBytes), make([][]byte, most)
	for i := range mine {
		in := m.fold.own(chunkOf(partAt(src, at, mine, i), k))
		sums[i] = memory[i*chunkBytes:][:len(in)]
		m.copy(sums[i], in)
	}
	for s := 1; s < len(h.mine()); s++ {
		to, from := h.neighbors(s)
		for i := range most {
			out := m.fold.own(chunkOf(partAt(src, at, lists[to], i), k))
			if err := m.addExchange(h.mine()[to], out, h.mine()[from], sums[i]); err != nil {
				return nil, err
			}
		}
	}
	return sums, nil
}

// sumAcross sends the sums to their owners and adds up this rank's result from those that come. In each step a rank sends to all ranks
// that it represents on one host, and receives once, with the first of them. There is no circular wait: a rank sends to a second rank
// only if that rank's host is larger than its own.
func (m *Messages) sumAcross(h *hosts, result []byte, mine []int, sums [][]byte) error {
	rank, n := m.t.Rank(), len(h.ranks)
	for i, r := range mine {
		if r == rank {
			m.copy(result, sums[i])
		}
	}
	for s := 1; s < n; s++ {
		to, from := (h.me+s)%n, m.proxy(h, (h.me-s+n)%n, rank)
		taken := false
		for i, r := range mine {
			var err error
			switch {
			case m.at[r] != to:
				continue
			case taken:
				err = m.t.Send(r, 0, sums[i])
			default:
				err, taken = m.addExchange(r, sums[i], from, result), true
			}
			if err != nil {
				return err
			}
		}
		if taken {
			continue
		}
		in := m.scratch(1, len(result))
		if err := m.t.Recv(from, 0, in); err != nil {
			return err
		}
		m.fold.add(result, result, in)
	}
	m.fold.end(result)
	return nil
}
