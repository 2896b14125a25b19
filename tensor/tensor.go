package tensor

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Tensor is a handle of 16 bytes: copy it freely, compare it with ==. The zero Tensor means "none". A handle to step memory is valid until
// the Tape's Reset (or until Backward freed it); using it later panics.
type Tensor struct {
	h   *header
	gen uint32
}

// Shape is a list of dimensions with the element type, as errors print it.
type Shape struct {
	DType DType
	Dims  []int
}

// String returns for example "float32[64,784]".
func (s Shape) String() string {
	var b strings.Builder
	b.WriteString(s.DType.String())
	b.WriteByte('[')
	for i, d := range s.Dims {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, d)
	}
	b.WriteByte(']')
	return b.String()
}

// header is what a Tensor refers to. It has four cache lines; fields that a step seldom uses are in the last one.
type header struct {
	st     *storage // the memory that it refers to: &own, or another header's
	off    int      // bytes from st.ptr
	n      int      // elements
	ld     int      // elements between rows of a 2-D view; 0: contiguous
	tape   *Tape
	base   *leafState // of the parameter that it is or views
	gen    uint32
	ndim   uint8
	dtype  DType
	needs  bool // wants a gradient
	kept   bool // survives Backward
	saved  bool // a gradient rule reads it
	local  bool // made inside a Function and saved by it
	isGrad bool // a gradient, or a contribution to one
	inLoss bool // the loss of the Backward that runs depends on it: see Tape.markLoss
	ty     Types
	at     place  // where the rows are
	uses   uint8  // recorded operations that it is an input of; 2 is many, and spent says that its graph is gone
	part   partOf // of a parameter's gradient
	dims   [MaxNDim]int
	grad   *header  // sum of the settled contributions
	more   *contrib // contributions whose collective still runs
	rows   *Rows    // of a tensor outside a tape
	own    storage  // the memory that it was made with
}

func (h *header) shape() Shape {
	return Shape{h.dtype, append([]int(nil), h.dims[:h.ndim]...)}
}

const maxElems = 1 << 48 // so that the number of bytes fits an int

func (h *header) setDims(dims []int) {
	if len(dims) > MaxNDim {
		fail("shape", nil, "%d dimensions, at most %d", len(dims), MaxNDim)
	}
	h.ndim, h.n = uint8(len(dims)), 1
	for i, d := range dims {
		if d < 0 {
			fail("shape", nil, "dimension %d is %d", i, d)
		}
		h.dims[i] = d
		over, n := bits.Mul64(uint64(h.n), uint64(d))
		if over != 0 || n > maxElems {
			fail("shape", nil, "dimensions 0 to %d have too many elements", i)
		}
		h.n = int(n)
	}
}

// alike reports whether h and x have the same shape.
func (h *header) alike(x *header) bool {
	if h.ndim != x.ndim {
		return false
	}
	for i := range h.ndim {
		if h.dims[i] != x.dims[i] {
			return false
		}
	}
	return true
}

// sizeAs gives h the shape and type of x.
func (h *header) sizeAs(x *header) {
	h.dtype, h.ndim, h.n = x.dtype, x.ndim, x.n
	h.dims = x.dims
}

// span is the number of elements from the first to the last one, including gaps.
func (h *header) span() int {
	if h.ld == 0 || h.n == 0 {
		return h.n
	}
	return (h.dims[0]-1)*h.ld + h.dims[1]
}

func (h *header) ptr() Ptr {
	if h.st != nil && h.st.ptr != nil {
		return unsafe.Add(h.st.ptr, h.off)
	}
	if h.st == nil || !h.st.waitArrival() {
		h.absent()
	}
	return unsafe.Add(h.st.ptr, h.off)
}

// isLeaf reports whether h is a parameter's tensor, not a view of it.
func (h *header) isLeaf() bool { return h.base != nil && (h == &h.base.h || h == h.base.other) }

func (h *header) absent() {
	name := cmp.Or(h.st.wholeName(), "a tensor")
	if h.isLeaf() {
		name = h.base.p.name
	} else if p := h.valueOf(); p != nil {
		fail("use", these(h), "memory of %s is not there: %s gathers the value for a forward pass, and it was changed or freed since, or not "+
			"gathered yet: read Local, this rank's part, or the whole that Full of fsdp.Sharding returns; write Local, and call Changed behind",
			p.name, ownerName(p.owner))
	}
	fail("use", these(h), "memory of %s is not there: never made (call nn.Init or Attach), not gathered, or released by Backward", name)
}

func (x Tensor) hdr() *header {
	if x.h == nil || x.h.gen != x.gen {
		x.invalid()
	}
	return x.h
}

func (x Tensor) invalid() {
	if x.h == nil {
		fail("use", nil, "the zero Tensor")
	}
	if x.h.tape == nil {
		fail("use", these(x.h), "a batch that was kept: its memory has another one now. Use it before the next iteration, or copy it: "+
			"tensor.FromSlice(tensor.Floats(x), dims...).WithRows(x.Rows())")
	}
	fail("use", these(x.h), "used after Tape.Reset, or after Backward released it (see Tape.Keep)")
}

// New returns a tensor of zeros on dev that belongs to no tape, for example a batch. Its memory counts as memory.Other.
func New(dev Device, dtype DType, dims ...int) Tensor {
	return NewFor(memory.Other, dev, dtype, dims...)
}

// NewFor is New for memory for the given use.
func NewFor(use memory.Use, dev Device, dtype DType, dims ...int) Tensor {
	return newNamed("", use, dev, dtype, dims)
}

func newNamed(param string, use memory.Use, dev Device, dtype DType, dims []int) Tensor {
	h := &header{dtype: dtype}
	h.setDims(dims)
	newStorage(dev, use, h, param)
	return Tensor{h, 0}
}

// FromSlice returns a tensor on the memory of data, in row-major order. len(data) must be the product of dims.
func FromSlice[T Elem](data []T, dims ...int) Tensor {
	h := &header{dtype: DTypeOf[T]()}
	h.setDims(dims)
	if h.n != len(data) {
		fail("FromSlice", these(h), "%d elements given, the shape has %d", len(data), h.n)
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	h.st = &storage{ptr: p, bytes: len(data) * h.dtype.Size(), refs: 1, dev: hostDevice}
	if p == nil {
		h.st.ptr, h.st.heap = alignedBytes(1)
	}
	return Tensor{h, 0}
}

// FromPtr returns a tensor on memory that the caller owns on dev: shared memory, or a buffer of another library. The memory must live as
// long as the tensor is used. It is not counted (see Raw.Count).
func FromPtr(dev Device, p Ptr, dtype DType, dims ...int) Tensor {
	h := &header{dtype: dtype}
	h.setDims(dims)
	h.st = &storage{ptr: p, bytes: h.n * dtype.Size(), refs: 1, dev: dev}
	return Tensor{h, 0}
}

// Data returns x's memory as a slice; with a leading stride it includes the gaps. The memory must be the host's (see ToHost). The slice of
// a tape's tensor is valid as long as the tensor is.
func Data[T Elem](x Tensor) []T {
	h := x.hdr()
	h.mustNotBePart("Data")
	if DTypeOf[T]() != h.dtype {
		fail("Data", these(h), "read as %v", DTypeOf[T]())
	}
	if !h.st.dev.Host() {
		fail("Data", these(h), "memory of %v is not the host's: copy it with ToHost", h.st.dev)
	}
	return unsafe.Slice((*T)(h.ptr()), h.span())
}

// Bytes returns the raw memory of a contiguous tensor in host memory (see ToHost).
func (x Tensor) Bytes() []byte {
	h := x.hdr()
	h.mustNotBePart("Bytes")
	if !h.st.dev.Host() || h.ld != 0 {
		fail("Bytes", these(h), "not contiguous host memory (it is on %v; see ToHost)", h.st.dev)
	}
	return unsafe.Slice((*byte)(h.ptr()), h.n*h.dtype.Size())
}

// IsZero reports whether x is the zero Tensor, "none".
func (x Tensor) IsZero() bool { return x.h == nil }

// Valid reports whether x may be used: not the zero Tensor and not released.
func (x Tensor) Valid() bool { return x.h != nil && x.h.gen == x.gen }

// Ptr returns the address of the first element.
func (x Tensor) Ptr() Ptr { return x.hdr().ptr() }

// DType returns the element type.
func (x Tensor) DType() DType { return x.hdr().dtype }

// NDim returns the number of dimensions.
func (x Tensor) NDim() int { return int(x.hdr().ndim) }

// Dim returns the size of dimension i; a negative i counts from the end.
func (x Tensor) Dim(i int) int {
	h := x.hdr()
	return h.dims[h.axis("Dim", i)]
}

// Shape returns a copy of the element type and dimensions.
func (x Tensor) Shape() Shape { return x.hdr().shape() }

// Len returns the number of elements.
func (x Tensor) Len() int { return x.hdr().n }

// Contiguous reports whether the elements lie one after another.
func (x Tensor) Contiguous() bool { return x.hdr().ld == 0 }

// Device returns the device of x's memory.
func (x Tensor) Device() Device { return x.hdr().st.dev }

// Tape returns the tape that x belongs to, or nil.
func (x Tensor) Tape() *Tape { return x.hdr().tape }

// NeedsGrad reports whether x was computed from parameters that are not frozen, or from a Leaf.
func (x Tensor) NeedsGrad() bool { return x.hdr().needs }

// Item returns the only element of x as a float64. On a device it waits for the computation. On the host it does not allocate. Of a loss it
// is this rank's part: before a program decides by it, it adds up the parts of all ranks (dist.Group.SumFloats).
func (x Tensor) Item() float64 {
	h := x.hdr()
	if h.n != 1 {
		fail("Item", these(h), "has %d elements, not one", h.n)
	}
	var one [1]float64
	return appendFloats(one[:0], x)[0]
}

// Floats returns a copy of x's elements as float64, in row-major order. It allocates: do not use it in training steps.
func Floats(x Tensor) []float64 { return appendFloats(make([]float64, 0, x.hdr().n), x) }

func appendFloats(out []float64, x Tensor) []float64 {
	h := ToHost(x).h
	h.mustNotBePart("Floats")
	p := h.ptr()
	h.mustBeFree("Floats", p, false)
	cols, ld := h.n, h.n
	if h.ld != 0 {
		cols, ld = h.dims[1], h.ld
	}
	for r := 0; len(out) < h.n; r++ {
		for c := range cols {
			out = append(out, loadFloat(p, h.dtype, r*ld+c))
		}
	}
	return out
}

func loadFloat(p Ptr, d DType, i int) float64 {
	q := unsafe.Add(p, i*d.Size())
	switch d {
	case Float32:
		return float64(*(*float32)(q))
	case Float64:
		return *(*float64)(q)
	case BFloat16:
		return float64((*(*BF16)(q)).Float32())
	case Float16:
		return float64((*(*F16)(q)).Float32())
	case Int32:
		return float64(*(*int32)(q))
	case Int64:
		return float64(*(*int64)(q))
	}
	return float64(*(*uint8)(q))
}

func storeFloat(p Ptr, d DType, i int, v float64) {
	q := unsafe.Add(p, i*d.Size())
	switch d {
	case Float32:
		*(*float32)(q) = float32(v)
	case Float64:
		*(*float64)(q) = v
	case BFloat16:
		*(*BF16)(q) = kernel.ToBF16(float32(v))
	case Float16:
		*(*F16)(q) = kernel.ToF16(float32(v))
	case Int32:
		*(*int32)(q) = int32(v)
	case Int64:
		*(*int64)(q) = int64(v)
	default:
		*(*uint8)(q) = uint8(v)
	}
}

// View returns x's memory with other dimensions of the same number of elements. x must be contiguous and belong to no tape. On a tape, use
// Reshape, which is differentiable.
func (x Tensor) View(dims ...int) Tensor {
	h := x.hdr()
	v := &header{dtype: h.dtype, st: h.st, off: h.off, rows: h.rows, ty: h.ty, part: h.part}
	v.setDims(dims)
	if h.tape != nil || h.ld != 0 || v.n != h.n {
		fail("View", these(h, v), "needs a contiguous tensor outside a tape, of the same number of elements")
	}
	return Tensor{v, 0}
}

// Range returns elements lo to hi of x, in row-major order, as a one-dimensional view: a gradient in a bucket, a shard. x must be
// contiguous and belong to no tape.
func (x Tensor) Range(lo, hi int) Tensor {
	h := x.hdr()
	if h.tape != nil || h.ld != 0 || lo < 0 || hi < lo || hi > h.n {
		fail("Range", these(h), "elements %d to %d", lo, hi)
	}
	v := &header{dtype: h.dtype, st: h.st, off: h.off, part: h.part}
	if v.setDims([]int{hi - lo}); v.n > 0 { // see Slice
		v.off += lo * h.dtype.Size()
	}
	return Tensor{v, 0}
}

const printed = 6 // elements that String shows at each end of a dimension, similar to PyTorch

// String returns the type, the shape and the elements, without those in the middle if there are many.
func (x Tensor) String() string {
	if x.h == nil {
		return "tensor(none)"
	}
	h := x.hdr()
	var b strings.Builder
	b.WriteString(h.shape().String())
	b.WriteByte(' ')
	v := Floats(x.ToLocal())
	writeDim(&b, v, h.dims[:h.ndim], h.dtype)
	return b.String()
}

func writeDim(b *strings.Builder, v []float64, dims []int, d DType) {
	if len(dims) == 0 {
		b.WriteString(formatElem(v[0], d))
		return
	}
	step := 1
	for _, n := range dims[1:] {
		step *= n
	}
	b.WriteByte('[')
	for i := 0; i < dims[0]; i++ {
		if i > 0 {
			b.WriteByte(' ')
		}
		if dims[0] > 2*printed && i == printed {
			b.WriteString("… ")
			i = dims[0] - printed
		}
		writeDim(b, v[i*step:], dims[1:], d)
	}
	b.WriteByte(']')
}

func formatElem(v float64, d DType) string {
	switch {
	case d == Bool:
		return fmt.Sprint(v != 0)
	case !d.IsFloat(), v == math.Trunc(v) && math.Abs(v) < 1e6:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
