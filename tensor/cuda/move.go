package cuda

import (
	"math/bits"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// units are the C++ types of the kernels that only move elements, by the logarithm of their size.
var units = [5]string{"u8", "u16", "u32", "u64", "vec16"}

// unitOf is the index in units for a size.
func unitOf(size int) int { return bits.TrailingZeros(uint(size)) }

// movers makes the kernels of one name in move.cu for the first n units.
func movers(name string, n int) (k [5]*kernel) {
	for i, u := range units[:n] {
		k[i] = newKernel("move.cu", name, u)
	}
	return k
}

// moving makes the row of an operation that moves elements of any type.
func moving(name string, launch launcher) (r [tensor.NumDTypes]tensor.Kernel) {
	ks := movers(name, 4)
	for d := range tensor.DType(tensor.NumDTypes) {
		r[d] = cell(ks[unitOf(d.Size())], launch)
	}
	return r
}

var (
	stridedCopies = movers("strided_copy", 5)
	transposes    = movers("transpose", 5)
	rowGathers    = movers("gather_rows", 5)
	repeats       = movers("fill_from", 4)
)

const (
	tile     = 32 // TILE and TILE_ROWS of move.cu
	tileRows = 8
)

// copyStrided copies operand 1 to operand 0: with the copy engine, by tiles, or element by element.
func copyStrided(q *Queue, _ *kernel, a *tensor.Args) {
	s, size := &q.s, a.DT[0].Size()
	s.set(a, 2)
	if s.n == 0 {
		return
	}
	if s.rank == 1 && s.stride[0][0] == 1 && s.stride[1][0] == 1 {
		q.flatCopy(devPtr(a.X[0]), devPtr(a.X[1]), int(s.n)*size)
		return
	}
	if s.repeats() {
		n := int(s.n)
		q.ptrs(a, 2).i64(n).spread(repeats[unitOf(size)], (n*size+15)/16)
		return
	}
	for n := 16 / size; n > 1; n /= 2 { // larger units if lines are multiples of them
		if s.dim[0]%int64(n) == 0 && s.lines(0, a.X[0], size, n, false) && s.lines(1, a.X[1], size, n, false) {
			s.group(n)
			size *= n
			break
		}
	}
	if i, j := s.unit(0), s.unit(1); i >= 0 && j >= 0 && i != j && s.dim[i] >= tileRows && s.dim[j] >= tileRows {
		q.transpose(transposes[unitOf(size)], a, i, j)
		return
	}
	q.ptrs(a, 2).places().spread(stridedCopies[unitOf(size)], int(s.n))
}

// repeats reports whether operand 0 is contiguous, and operand 1 one element: the gradient of a sum.
func (s *strided) repeats() bool {
	n := int64(1)
	for d := range int(s.rank) {
		if s.stride[0][d] != n || s.stride[1][d] != 0 {
			return false
		}
		n *= s.dim[d]
	}
	return true
}

// flatCopy copies n bytes on the stream.
func (q *Queue) flatCopy(dst, src cuda.Ptr, n int) {
	q.fixed("a copy")
	q.checkFailed()
	if err := q.stream.Copy(dst, src, n); err != nil {
		q.retry(err, func() error { return q.stream.Copy(dst, src, n) })
	}
}

// group makes one element of n elements of the innermost dimension.
func (s *strided) group(n int) {
	s.n /= int64(n)
	s.dim[0] /= int64(n)
	for j := range 2 {
		for d := 1; d < int(s.rank); d++ {
			s.stride[j][d] /= int64(n)
		}
	}
}

// unit returns the dimension in which operand j has stride 1, or -1.
func (s *strided) unit(j int) int {
	for d := range int(s.rank) {
		if s.stride[j][d] == 1 {
			return d
		}
	}
	return -1
}

// transpose launches k with columns along dimension i, in which operand 0 has stride 1, and rows along dimension j, in which operand 1 has
// stride 1.
func (q *Queue) transpose(k *kernel, a *tensor.Args, i, j int) {
	s := &q.s
	rows, cols, ldy, ldx := s.dim[j], s.dim[i], s.stride[0][j], s.stride[1][i]
	s.n /= rows * cols
	s.drop(max(i, j))
	s.drop(min(i, j))
	q.ptrs(a, 2).places()
	q.args.I64(rows).I64(cols).I64(ldy).I64(ldx)
	tiles := int(s.n * ((rows + tile - 1) / tile) * ((cols + tile - 1) / tile))
	q.run(k, cuda.Dim{X: tiles}, cuda.Dim{X: tile, Y: tileRows}, 0)
}

// fill launches k(y, n, value), with the bits of the value.
func fill(q *Queue, k *kernel, a *tensor.Args) {
	v, n := a.F[0], a.Len[0]
	q.ptr(a, 0).i64(n)
	switch a.DT[0] {
	case tensor.Float32:
		q.args.F32(float32(v))
	case tensor.Float64:
		q.args.F64(v)
	case tensor.BFloat16:
		q.args.U32(uint32(tensor.ToBF16(float32(v))))
	case tensor.Float16:
		q.args.U32(uint32(tensor.ToF16(float32(v))))
	case tensor.Int32:
		q.args.U32(uint32(int32(v)))
	case tensor.Int64:
		q.args.I64(int64(v))
	case tensor.Uint8:
		q.args.U32(uint32(uint8(v)))
	default:
		q.args.U32(truth(v != 0))
	}
	q.spread(k, vecItems(a, 0, n))
}

func truth(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func where(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 4).i64(a.Len[0]).spread(k, vecItems(a, 0, a.Len[0]))
}

// embedding copies rows, in units of up to 16 bytes.
func embedding(q *Queue, _ *kernel, a *tensor.Args) {
	n, cols, size := a.Dim[0], a.Dim[1], a.DT[0].Size()
	rows := a.Len[1] / max(cols, 1)
	for cols%2 == 0 && size < 16 && (uintptr(a.X[0])|uintptr(a.X[1]))%uintptr(2*size) == 0 {
		cols, size = cols/2, size*2
	}
	q.ptrs(a, 3).i64(n).i64(cols).i64(rows).check().spread(rowGathers[unitOf(size)], n*cols)
}

func gather(q *Queue, k *kernel, a *tensor.Args) {
	q.ptrs(a, 3).i64(a.Dim[0]).i64(a.Dim[1]).i64(a.Dim[2]).i64(a.Dim[3]).check().spread(k, a.Len[0])
}

// anyType makes a row of the table from a launcher that finds its kernels itself.
func anyType(launch launcher) (r [tensor.NumDTypes]tensor.Kernel) {
	for d := range r {
		r[d] = cell(nil, launch)
	}
	return r
}

var moveKernels = map[tensor.Op][tensor.NumDTypes]tensor.Kernel{
	tensor.OpCopy:   anyType(copyStrided),
	tensor.OpFill:   moving("fill", fill),
	ops.OpWhere:     moving("where", where),
	ops.OpEmbedding: anyType(embedding),
	ops.OpGather:    moving("gather", gather),
	tensor.OpCast:   castKernels(),
}

// castKernels has a kernel for each pair of types.
func castKernels() (r [tensor.NumDTypes]tensor.Kernel) {
	for from := range tensor.DType(tensor.NumDTypes) {
		var to [tensor.NumDTypes]*kernel
		for d := range to {
			to[d] = newKernel("cast.cu", "cast_to_"+tensor.DType(d).String(), elems[from])
		}
		r[from] = cell(nil, func(q *Queue, _ *kernel, a *tensor.Args) {
			q.ptrs(a, 2).i64(a.Len[0]).spread(to[a.DT[0]], max(vecItems(a, 0, a.Len[0]), vecItems(a, 1, a.Len[0])))
		})
	}
	return r
}
