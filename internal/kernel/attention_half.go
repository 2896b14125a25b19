package kernel

// AttentionHalf holds 16-bit keys and values, instead of K and V, for
// [AttentionForward]. A block of them is widened when it is needed, so they are
// never widened as a whole. Each block of queries widens them again, so this is for
// few queries: those of the next tokens of a text.
type AttentionHalf[T Float] struct {
	K16, V16 []uint16 // nil: use K and V
	Widen    func(dst []T, src []uint16)
}

// Grow makes room for keys or values that are widened. The functions that use w do so,
// too; before, it can be done for all threads, of which each may get its first part at
// any time.
func (w *AttentionWork[T]) Grow(a *Attention[T]) {
	if n := attnCols * a.HeadDim; a.K16 != nil && len(w.wide) < n {
		w.wide = make([]T, n)
	}
}

// block returns n rows of the head's x, or of half, from position j on, and the
// distance between two rows.
func (w *AttentionWork[T]) block(a *Attention[T], x []T, half []uint16, j, n int) (rows []T, step int) {
	if half == nil {
		return a.keys(x, w.head, j), a.KVStep
	}
	w.Grow(a)
	w.touched += touch(half[a.keyAt(w.head, j):], n, a.HeadDim, a.KVStep)
	for r := range n {
		a.Widen(w.wide[r*a.HeadDim:][:a.HeadDim], half[a.keyAt(w.head, j+r):][:a.HeadDim])
	}
	return w.wide, a.HeadDim
}

// touch reads a word of each cache line of n rows that are step apart, so that the
// processor loads several lines at once. Without it, the loop that widens rows
// would wait for each. The sum is returned so that the compiler keeps the reads.
func touch(x []uint16, n, dim, step int) (sum uint16) {
	for r := range n {
		row := x[r*step:][:dim]
		for i := 0; i < len(row); i += 32 {
			sum += row[i]
		}
	}
	return sum
}
