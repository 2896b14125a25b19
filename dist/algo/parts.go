package algo

// parts describes where the part of each rank is in a buffer: equal parts of size bytes, counts[i] elements of size bytes, or total
// elements of size bytes in n slices that differ by at most one element.
type parts struct {
	counts   []int
	total, n int
	size     int
}

func even(size int) parts               { return parts{size: size} }
func rows(counts []int, size int) parts { return parts{counts: counts, size: size} }
func cut(total, n, size int) parts      { return parts{total: total, n: n, size: size} }

// start returns where rank i's part begins.
func (p parts) start(i int) int {
	switch {
	case p.counts != nil:
		i = before(p.counts, i)
	case p.n > 0:
		i = p.total * i / p.n
	}
	return i * p.size
}

// bytes returns the length of rank i's part.
func (p parts) bytes(i int) int {
	if p.counts != nil {
		return p.counts[i] * p.size
	}
	return p.start(i+1) - p.start(i)
}

// of returns rank i's part of b.
func (p parts) of(b []byte, i int) []byte {
	lo := p.start(i)
	return b[lo : lo+p.bytes(i)]
}

// longest returns the bytes of the longest of n parts.
func (p parts) longest(n int) int {
	switch {
	case p.n > 0:
		return (p.total + p.n - 1) / p.n * p.size
	case p.counts == nil:
		return p.size
	}
	b := 0
	for i := range n {
		b = max(b, p.bytes(i))
	}
	return b
}

// span returns parts lo to hi of b, without part hi.
func (p parts) span(b []byte, lo, hi int) []byte { return b[p.start(lo):p.start(hi)] }
