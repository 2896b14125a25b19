package kernel

import "math"

// AttentionMasks hide keys from queries, in addition to Causal. A nil mask hides
// none.
type AttentionMasks struct {
	// KeyLengths [batch] says how many keys of each sequence count, from the first
	// on. The others are never read; their gradient is 0.
	KeyLengths []int64
	// QueryDocs [batch, Queries] and KeyDocs [batch, Keys] are numbers of
	// documents. A query sees only keys of its own document.
	QueryDocs, KeyDocs []int64
	// Starts [batch+1] is for sequences of several lengths that lie one behind the
	// other, queries like keys: where each one starts, and the end of the last one.
	// Queries and Keys are the length of the longest one. There are no documents.
	Starts []int64
}

// keysOf is the number of keys that count for a head.
func (a *AttentionShape) keysOf(head int) int {
	if a.KeyLengths == nil {
		return a.positions(head, a.Keys)
	}
	return max(0, min(a.Keys, int(a.KeyLengths[head/a.Heads])))
}

// positions is how many of n positions a head's sequence has.
func (a *AttentionShape) positions(head, n int) int {
	if a.Starts == nil {
		return n
	}
	b := head / a.Heads
	return int(a.Starts[b+1] - a.Starts[b])
}

// start is where a head's sequence starts, if each has n positions.
func (a *AttentionShape) start(head, n int) int {
	if a.Starts == nil {
		return head / a.Heads * n
	}
	return int(a.Starts[head/a.Heads])
}

// sums is where the logarithmic sums of a head's queries begin.
func (a *AttentionShape) sums(head int) int {
	return a.start(head, a.Queries)*a.Heads + head%a.Heads*a.positions(head, a.Queries)
}

// hideKeys sets scores s of row r, with keys from j on, to -Inf where the key is
// before the window, or of another document.
func (w *AttentionWork[T]) hideKeys(a *AttentionShape, s []T, r, j int) {
	unseen := T(math.Inf(-1))
	Fill(s[:a.before(w.i+r, j, len(s))], unseen)
	if a.KeyDocs == nil {
		return
	}
	b := w.head / a.Heads
	own := a.QueryDocs[b*a.Queries+w.i+r]
	for c, doc := range a.KeyDocs[b*a.Keys+j:][:len(s)] {
		if doc != own {
			s[c] = unseen
		}
	}
}

// before is the number of keys from j on, of n, that are before the window of query i.
func (a *AttentionShape) before(i, j, n int) int {
	if a.Window == 0 {
		return 0
	}
	return max(0, min(n, i+a.Offset+1-a.Window-j))
}

// softCap replaces scores s by limit·tanh(s/limit), and sets slopes, if not nil, to the
// derivatives. With a limit of 0 it does nothing.
func softCap[T Float](limit float64, s, slopes []T) {
	if limit == 0 {
		return
	}
	scaled(s, s, T(1/limit))
	Tanh(s, s)
	for i := range min(len(s), len(slopes)) {
		slopes[i] = 1 - T(s[i]*s[i])
	}
	scaled(s, s, T(limit))
}

// mayAttend reports whether a query of the block may see one of n keys from j on:
// whether some are in the window of the first query, and the ranges of their document
// numbers overlap. With windows or packed documents, most blocks do not.
func (w *AttentionWork[T]) mayAttend(a *AttentionShape, j, n int) bool {
	if a.before(w.i, j, n) == n {
		return false
	}
	if a.KeyDocs == nil {
		return true
	}
	b := w.head / a.Heads
	qLo, qHi := rangeOf(a.QueryDocs[b*a.Queries+w.i:][:w.n])
	kLo, kHi := rangeOf(a.KeyDocs[b*a.Keys+j:][:n])
	return qLo <= kHi && kLo <= qHi
}

func rangeOf(x []int64) (lo, hi int64) {
	lo, hi = x[0], x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// seesNoKey reports whether a query with logarithmic sum lse had only keys of other
// documents, or before its window.
func (a *AttentionShape) seesNoKey(lse float64) bool {
	return (a.KeyDocs != nil || a.Window != 0) && math.IsInf(lse, -1)
}
