package shard

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor"
)

// A transposed parameter (tensor.Param.Transposed) is a matrix [out, in] in memory and [in, out] in the file. A flat
// range in memory is not a flat range in the file, but it consists of a few rectangles, and these are rectangles in the
// file too.

// patch is a rectangle of a matrix, and where its rows are in a part that contains it.
type patch struct {
	box    tensor.Box
	at     int // first element of the rectangle in the part
	stride int // elements from one row to the next
}

func (p patch) rows() int { return p.box.Hi[0] - p.box.Lo[0] }

func (p patch) cols() int { return p.box.Hi[1] - p.box.Lo[1] }

// patches divides a part of a matrix into rectangles. For each box these are: the rest of a row, whole rows, the
// beginning of a row.
func (p Part) patches() (list []patch) {
	skip, at := p.Lo, 0
	for _, b := range p.Boxes {
		v := b.Len()
		if skip >= v {
			skip -= v
			continue
		}
		width := b.Hi[1] - b.Lo[1]
		for end := min(v, skip+p.Len()-at); skip < end; {
			row, col := skip/width, skip%width
			rows, cols := (end-skip)/width, width
			if col > 0 || rows == 0 {
				rows, cols = 1, min(width-col, end-skip)
			}
			box := tensor.Box{Lo: []int{b.Lo[0] + row, b.Lo[1] + col}, Hi: []int{b.Lo[0] + row + rows, b.Lo[1] + col + cols}}
			list = append(list, patch{box, at, cols})
			skip, at = skip+rows*cols, at+rows*cols
		}
		skip = 0
	}
	return list
}

// Transposed returns the same elements as a part of the transposed matrix, in another order.
func (p Part) Transposed() Part {
	q := WholePart([]int{p.Shape[1], p.Shape[0]})
	if p.Len() == 0 {
		q.Hi = 0
		return q
	}
	q.Boxes, q.Hi = nil, p.Len()
	for _, x := range p.patches() {
		q.Boxes = append(q.Boxes, tensor.Box{Lo: []int{x.box.Lo[1], x.box.Lo[0]}, Hi: []int{x.box.Hi[1], x.box.Hi[0]}})
	}
	return q
}

// ToFile returns the elements of p, of the given size, in the order of p.Transposed.
func (p Part) ToFile(mem []byte, size int) []byte {
	file := make([]byte, len(mem))
	at := 0
	for _, x := range p.patches() {
		transpose(file[at*size:], mem[x.at*size:], x.rows(), x.cols(), x.rows(), x.stride, size)
		at += x.rows() * x.cols()
	}
	return file
}

// FromFile is the inverse of ToFile.
func (p Part) FromFile(mem, file []byte, size int) {
	at := 0
	for _, x := range p.patches() {
		transpose(mem[x.at*size:], file[at*size:], x.cols(), x.rows(), x.stride, x.rows(), size)
		at += x.rows() * x.cols()
	}
}

// transpose writes the transpose of src, a matrix of rows and cols, to dst. Strides are in elements, from one row to
// the next. size is that of an element in bytes.
func transpose(dst, src []byte, rows, cols, dstStride, srcStride, size int) {
	switch size {
	case 1:
		transposeOf[uint8](dst, src, rows, cols, dstStride, srcStride)
	case 2:
		transposeOf[uint16](dst, src, rows, cols, dstStride, srcStride)
	case 4:
		transposeOf[uint32](dst, src, rows, cols, dstStride, srcStride)
	default:
		transposeOf[uint64](dst, src, rows, cols, dstStride, srcStride)
	}
}

func transposeOf[E any](dst, src []byte, rows, cols, dstStride, srcStride int) {
	const block = 16 // rows and columns that stay in the cache
	d, s := elements[E](dst), elements[E](src)
	for r0 := 0; r0 < rows; r0 += block {
		for c0 := 0; c0 < cols; c0 += block {
			for c := c0; c < min(cols, c0+block); c++ {
				for r := r0; r < min(rows, r0+block); r++ {
					d[c*dstStride+r] = s[r*srcStride+c]
				}
			}
		}
	}
}

func elements[E any](b []byte) []E {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}
