package cpu

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
)

// RowOffset is the place in Args.I of the number of rows before those of a part, in kernels that are made by ByRows.
const RowOffset = 7

// ByRows are kernels of parts that go by Dim[0] rows of Dim[1] elements, for all floats. kinds has a letter for each operand: o for rows
// that are overwritten, x for rows that are read, w for one row that all rows share, s for a number for each row, or one for all, which is
// not a 16-bit float.
func ByRows(kinds string, f32, f64 Part) [tensor.NumDTypes]tensor.Kernel {
	return withHalf(floats(spread(dim0, dim1, 1, f32), spread(dim0, dim1, 1, f64)), halfRows(kinds, f32))
}

// halfRows makes a kernel for 16-bit floats of a float32 part. It widens a few rows at a time, which stay in the cache, and does not read
// what is overwritten.
func halfRows(kinds string, fn Part) tensor.Kernel {
	run := func(q *Queue, a *tensor.Args, lo, hi, thread int) {
		w, step := q.wideRows(kinds, a, thread), rowsAtATime(a)
		for ; lo < hi; lo += step {
			n := min(step, hi-lo)
			widenRows(kinds, a, w, lo, n)
			fn(q, w, 0, n, thread)
			for i := range kinds[:a.N] {
				if kinds[i] == 'o' {
					narrow(addr(a, i, lo*a.Dim[1]), slice[float32](w, i)[:n*a.Dim[1]], a.DType)
				}
			}
		}
	}
	return func(q tensor.Queue, a *tensor.Args) {
		c := q.(*Queue)
		if c.wides == nil {
			c.wides = make([]tensor.Args, c.pool.n)
		}
		c.wideAt = c.half.get(c.pool.n * wideRowsBytes(kinds, a))
		c.pool.run(c, a, a.Dim[0], (c.pool.grain-1)/max(a.Dim[1], 1)+1, 1, run)
	}
}

// wideRows is a with float32 operands in the thread's memory: room for a few rows, and what all rows share.
func (q *Queue) wideRows(kinds string, a *tensor.Args, thread int) *tensor.Args {
	cols, w := a.Dim[1], &q.wides[thread]
	*w = *a
	w.DType = tensor.Float32
	elems := rowsAtATime(a) * cols
	p := unsafe.Add(q.wideAt, thread*wideRowsBytes(kinds, a))
	for i := range kinds[:a.N] {
		if kinds[i] == 's' || a.X[i] == nil {
			continue
		}
		w.X[i], w.DT[i], w.Len[i] = p, tensor.Float32, elems
		if kinds[i] == 'w' {
			w.Len[i] = cols
			widen(slice[float32](w, i), a.X[i], a.DType)
		}
		p = unsafe.Add(p, 4*elems)
	}
	return w
}

// widenRows makes n rows from lo on the first ones of w.
func widenRows(kinds string, a, w *tensor.Args, lo, n int) {
	cols := a.Dim[1]
	for i := range kinds[:a.N] {
		switch kinds[i] {
		case 'x':
			widen(slice[float32](w, i)[:n*cols], addr(a, i, lo*cols), a.DType)
		case 's':
			if a.Len[i] > 1 {
				w.X[i], w.Len[i] = unsafe.Add(a.X[i], a.DT[i].Size()*lo), n
			}
		}
	}
	w.I[RowOffset] = lo
}

// rowsAtATime is the number of rows that are widened at a time: about two chunks, if there are as many.
func rowsAtATime(a *tensor.Args) int { return max(1, min(a.Dim[0], 2*halfChunk/max(a.Dim[1], 1))) }

// wideRowsBytes is the memory of a thread for halfRows, in whole cache lines.
func wideRowsBytes(kinds string, a *tensor.Args) int {
	return (len(kinds)*4*rowsAtATime(a)*a.Dim[1] + 63) &^ 63
}
