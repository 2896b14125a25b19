package algo

// parts describes where the part of each rank is in a buffer: equal parts of size bytes, or counts[i] elements of size bytes.
type parts struct {
	counts []int
	size   int
}

func even(size int) parts               { return parts{nil, size} }
func rows(counts []int, size int) parts { return parts{counts, size} }

// bytes returns the length of rank i's part.
func (p parts) bytes(i int) int {
	if p.counts == nil {
		return p.size
	}
	return p.counts[i] * p.size
}

// of returns rank i's part of b.
func (p parts) of(b []byte, i int) []byte {
	lo := i * p.size
	if p.counts != nil {
		lo = before(p.counts, i) * p.size
	}
	return b[lo : lo+p.bytes(i)]
}

// longest returns the bytes of the longest of n parts.
func (p parts) longest(n int) int {
	b := 0
	for i := range n {
		b = max(b, p.bytes(i))
	}
	return b
}

// span returns parts lo to hi of b, without part hi.
func (p parts) span(b []byte, lo, hi int) []byte {
	from := before(p.counts, lo) * p.size
	return b[from : from+(before(p.counts, hi)-before(p.counts, lo))*p.size]
}
