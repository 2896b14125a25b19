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
}

// keysOf is the number of keys that count for a head.
func (a *AttentionShape) keysOf(head int) int {
	if a.KeyLengths == nil {
		return a.Keys
	}
	return max(0, min(a.Keys, int(a.KeyLengths[head/a.Heads])))
}

// maskDocuments sets scores s of row r, with keys from j on, to -Inf where the key
// is of another document.
func (w *AttentionWork[T]) maskDocuments(a *AttentionShape, s []T, r, j int) {
	if a.KeyDocs == nil {
		return
	}
	b, unseen := w.head/a.Heads, T(math.Inf(-1))
	own := a.QueryDocs[b*a.Queries+w.i+r]
	for c, doc := range a.KeyDocs[b*a.Keys+j:][:len(s)] {
		if doc != own {
			s[c] = unseen
		}
	}
}

// mayAttend reports whether a query of the block may see one of n keys from j on:
// whether the ranges of their document numbers overlap. With packed documents, most
// blocks do not.
func (w *AttentionWork[T]) mayAttend(a *AttentionShape, j, n int) bool {
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
// documents.
func (a *AttentionShape) seesNoKey(lse float64) bool { return a.KeyDocs != nil && math.IsInf(lse, -1) }
