package kernel

import (
	"math"
	"unsafe"
)

// Rows maps the elements of a local shard to their place in the whole (one-rank)
// tensor. Random numbers depend on that place, so they are the same under every
// layout.
//
// The local tensor is a sequence of rows of Elems elements (a row is a sample: a
// batch element with all its positions). Local row k begins at element
// First + Stride*k of the whole. It is a sequence of lines of Cols elements, each of
// which begins Line elements behind the one before; Cols divides Elems. The tensor
// may lack the first Skip elements of these rows, and some of the last ones. The
// elements from Break on of a row, a multiple of Cols, begin Jump elements later. A whole
// tensor with rows of n elements has Rows{Stride: n, Elems: n, Cols: n, Line: n}.
type Rows struct{ First, Stride, Elems, Cols, Line, Skip, Break, Jump int }

// Global returns the flat index in the whole tensor of local flat element e.
func (m Rows) Global(e int) int {
	e += m.Skip
	c := e % m.Elems
	i := m.First + m.Stride*(e/m.Elems) + c/m.Cols*m.Line + c%m.Cols
	if c >= m.Break {
		i += m.Jump
	}
	return i
}

// Dropout computes elements lo..hi of dst: x[e]/(1-p) if the element is kept,
// exactly 0 if it is dropped. With i = m.Global(e), the element is kept if 32-bit
// word i%4 of Philox block i/4 under key is at least round(p*2^32). So each is kept
// with probability 1-p, and p = 1 drops all. The scale 1/(1-p) is rounded to T
// once. The gradient is the same function of the upstream gradient.
func Dropout[T Float](dst, x []T, p float64, key uint64, m Rows, lo, hi int) {
	limit, scale := dropLimit[T](p)
	for e := lo; e < hi; {
		end := e + min(hi-e, m.run(e))
		dropRun(dst[e:end], x[e:end], limit, scale, key, uint64(m.Global(e)))
		e = end
	}
}

// dropLimit returns the least random word for which an element is kept, and the
// factor of kept elements.
func dropLimit[T Float](p float64) (limit uint64, scale T) {
	if p < 1 {
		scale = T(1 / (1 - p))
	}
	return uint64(math.RoundToEven(p * 0x1p32)), scale
}

// run is the number of elements from e on that have consecutive global indices.
func (m Rows) run(e int) int {
	c := (e + m.Skip) % m.Elems
	switch {
	case m.Cols != m.Line:
		return m.Cols - c%m.Cols
	case c < m.Break && m.Jump != 0:
		return m.Break - c
	case m.Stride != m.Elems || m.Jump != 0:
		return m.Elems - c
	}
	return math.MaxInt
}

// dropChunk is the largest number of elements for one assembly call.
const dropChunk = asmChunk / 2

// dropRun applies dropout to elements with global indices i, i+1, …; four of them
// use one Philox block.
func dropRun[T Float](dst, x []T, limit uint64, scale T, key, i uint64) {
	if !single[T]() || !active.vectors.complete() || len(dst) < dropStep || limit>>32 != 0 {
		dropSome(dst, x, limit, scale, key, i)
		return
	}
	keys := philoxKeys(key)
	head := int(-i & 3)
	dropSome(dst[:head], x[:head], limit, scale, key, i)
	for dst, x, i = dst[head:], x[head:], i+uint64(head); len(dst) >= dropStep; {
		n := min(dropChunk, len(dst)&^(dropStep-1))
		d, y := dst[:n], x[:n]
		vecDropout(*(*[]float32)(unsafe.Pointer(&d)), *(*[]float32)(unsafe.Pointer(&y)), &keys, float32(scale), uint32(limit), i>>2)
		dst, x, i = dst[n:], x[n:], i+uint64(n)
	}
	dropSome(dst, x, limit, scale, key, i)
}

// dropSome is dropRun in plain Go.
func dropSome[T Float](dst, x []T, limit uint64, scale T, key, i uint64) {
	x = x[:len(dst)]
	var w [4]uint32
	for j := range dst {
		if i&3 == 0 || j == 0 {
			n := i >> 2
			w[0], w[1], w[2], w[3] = philox(key, uint32(n), uint32(n>>32), 0, 0)
		}
		v := T(0)
		if uint64(w[i&3]) >= limit {
			v = x[j] * scale
		}
		dst[j] = v
		i++
	}
}
