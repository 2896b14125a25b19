package cuda

import (
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
)

// OpQuantize8 makes 8-bit codes of a matrix (operand 3), and their scales from its largest magnitudes, whose inverses are operand 2.
// Operand 0 are the codes and operand 1 the codes transposed; one of them may be missing. There is one scale for the whole, or one for each
// line: then a row for codes as they are, a column for transposed ones.

const (
	quantizeTile    = 64 // TILE of float8.cu
	quantizeParts   = 64 // parts of a column
	quantizeStep    = 4096
	quantizeRowMost = 4096 // packs of a row that a block keeps in registers
)

// quantizer has the kernels for one type.
type quantizer struct {
	absmax, both, absmaxCols, scalesOfCols, cols *kernel
	rows                                         [4]*kernel
}

func quantizers() (r [tensor.NumDTypes]tensor.Kernel) {
	for _, t := range float8Types {
		of := func(name string) *kernel { return newKernel("float8.cu", name, elems[t]) }
		z := &quantizer{absmax: of("absmax_parts"), both: of("quantize_both"), absmaxCols: of("absmax_cols"),
			scalesOfCols: of("scales_of_cols"), cols: of("quantize_cols"),
			rows: [...]*kernel{of("quantize_rows_1"), of("quantize_rows_2"), of("quantize_rows_4"), of("quantize_rows_long")}}
		r[t] = cell(of("quantize_whole"), func(q *Queue, whole *kernel, a *tensor.Args) {
			switch {
			case a.Dim[0]*a.Dim[1] == 0:
			case a.I[1] == 0:
				z.whole(q, whole, a)
			case a.X[0] != nil:
				z.byRow(q, a)
			default:
				z.byColumn(q, a)
			}
		})
	}
	return r
}

// whole makes one scale. A maximum does not depend on the order, so the number of parts may depend on the device.
func (z *quantizer) whole(q *Queue, whole *kernel, a *tensor.Args) {
	n := a.Dim[0] * a.Dim[1]
	blocks := min(tilesOf(n, quantizeStep), 8*q.dev.sms)
	part, x := q.aligned(a, 3, blocks*4)
	q.args.Reset().Ptr(part).Ptr(x)
	q.i64(n).run(z.absmax, cuda.Dim{X: blocks}, cuda.Dim{X: threads}, 0)
	q.args.Reset()
	if a.X[1] == nil {
		q.ptr(a, 0).ptr(a, 2).args.Ptr(x).Ptr(part).I32(blocks)
		q.i64(n).args.I32(a.I[0])
		q.run(whole, cuda.Dim{X: blocks}, cuda.Dim{X: threads}, 0)
		return
	}
	q.ptrs(a, 3).args.Ptr(x).Ptr(part).I32(blocks)
	q.tiles(z.both, a)
}

// byRow keeps a row in the registers of a block between its maximum and its codes, unless it is too long.
func (z *quantizer) byRow(q *Queue, a *tensor.Args) {
	packs := a.Dim[1] * a.DType.Size() / 16
	each, k := 1, z.rows[0]
	switch {
	case packs > quantizeRowMost:
		each, k = packs/1024, z.rows[3]
	case packs > 1024:
		each, k = 4, z.rows[2]
	case packs > 128:
		each, k = 2, z.rows[1]
	}
	_, x := q.aligned(a, 3, 0)
	q.args.Reset()
	q.ptr(a, 0).ptr(a, 2).args.Ptr(x)
	q.i64(a.Dim[1]).args.I32(a.I[0])
	q.run(k, cuda.Dim{X: a.Dim[0]}, cuda.Dim{X: min((tilesOf(packs, each)+31)&^31, 1024)}, 0)
}

// byColumn finds the maxima of parts of columns, and then codes tiles.
func (z *quantizer) byColumn(q *Queue, a *tensor.Args) {
	height, width := a.Dim[0], a.Dim[1]
	parts := min(quantizeParts, height)
	part, x := q.aligned(a, 3, (parts+1)*width*4)
	scale := part + cuda.Ptr(parts*width*4)
	q.args.Reset().Ptr(part).Ptr(x)
	q.i64(height).i64(width).i64(tilesOf(height, parts))
	q.run(z.absmaxCols, cuda.Dim{X: tilesOf(width*a.DType.Size()/16, 32), Y: parts}, cuda.Dim{X: 32, Y: 8}, 0)
	q.args.Reset().Ptr(scale)
	q.ptr(a, 2).args.Ptr(part).I32(parts)
	q.i64(width).args.I32(a.I[0])
	q.spread(z.scalesOfCols, width)
	q.args.Reset()
	q.ptr(a, 1).args.Ptr(x).Ptr(scale)
	q.tiles(z.cols, a)
}

// tiles launches k, whose last parameters are the sizes and the format, on the tiles of the matrix.
func (q *Queue) tiles(k *kernel, a *tensor.Args) {
	q.i64(a.Dim[0]).i64(a.Dim[1]).args.I32(a.I[0])
	tiles := tilesOf(a.Dim[0], quantizeTile) * tilesOf(a.Dim[1], quantizeTile)
	q.run(k, cuda.Dim{X: min(tiles, 8*q.dev.sms)}, cuda.Dim{X: threads}, 0)
}

// aligned returns n bytes of scratch memory, and operand i: a copy of it behind them if it is not aligned to 16 bytes.
func (q *Queue) aligned(a *tensor.Args, i, n int) (work, x cuda.Ptr) {
	size := 0
	if x = devPtr(a.X[i]); x%16 != 0 {
		n, size = (n+15)&^15, a.Len[i]*a.DType.Size()
	}
	if n+size > 0 {
		work = q.scratch(n + size)
	}
	if size > 0 {
		x = work + cuda.Ptr(n)
		q.flatCopy(x, devPtr(a.X[i]), size)
	}
	return work, x
}
