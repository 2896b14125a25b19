package kernel

// AttentionHalf are keys and values of 16 bits, in place of K and V, for [AttentionForward]. A block of them is widened when queries
// meet it, so that they are never in memory as a whole; as each block of queries does it anew, this is for few queries: those of the
// next tokens of a text.
type AttentionHalf[T Float] struct {
	K16, V16 []uint16 // nil: K and V count
	Widen    func(dst []T, src []uint16)
}

// block returns n rows that the head meets of x, or of half, from position j on, and the distance of two.
func (w *AttentionWork[T]) block(a *Attention[T], x []T, half []uint16, j, n int) (rows []T, step int) {
	if half == nil {
		return a.keys(x, w.head, j), a.KVStep
	}
	if len(w.wide) < attnCols*a.HeadDim {
		w.wide = make([]T, attnCols*a.HeadDim)
	}
	w.touched += touch(half[a.keyAt(w.head, j):], n, a.HeadDim, a.KVStep)
	for r := range n {
		a.Widen(w.wide[r*a.HeadDim:][:a.HeadDim], half[a.keyAt(w.head, j+r):][:a.HeadDim])
	}
	return w.wide, a.HeadDim
}

// touch reads a word of each cache line of n rows that lie step apart: the processor fetches several of them at once, and when rows are
// widened one by one it would wait for each. The sum is there to be kept, or the compiler would leave the reading out.
func touch(x []uint16, n, dim, step int) (sum uint16) {
	for r := range n {
		row := x[r*step:][:dim]
		for i := 0; i < len(row); i += 32 {
			sum += row[i]
		}
	}
	return sum
}
