package cuda

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// TensorMap describes matrices of 16-bit floats to the copy engine of compute capability 9.0 and later, which copies a box of one of them
// to shared memory (a CUtensorMap). It must be on the heap.
type TensorMap struct {
	bytes     [24]uint64 // a CUtensorMap, from the first multiple of 64 on
	dims      [4]uint64
	strides   [3]uint64 // in bytes
	box, step [4]uint32
}

// HasTensorMaps reports whether the driver can make one (CUDA 12.0).
func (dev *Device) HasTensorMaps() bool { return dev.drv.fn.TensorMapEncode != 0 }

// Set makes m describe dims[2] matrices of dims[1] rows of dims[0] elements, one behind the other from p on, in boxes of box[1] rows of
// box[0] elements: 64 of them, so that a box's rows of 128 bytes are swizzled as wgmma reads them. p, and rows, are multiples of 16 bytes.
// The part of a box outside of the matrix becomes 0. It does not allocate.
func (m *TensorMap) Set(dev *Device, bfloat16 bool, p Ptr, dims [3]int, box [2]int) error {
	m.dims = [4]uint64{uint64(dims[0]), uint64(dims[1]), uint64(dims[2])}
	m.strides = [3]uint64{2 * m.dims[0], 2 * m.dims[0] * m.dims[1]}
	m.box = [4]uint32{uint32(box[0]), uint32(box[1]), 1}
	return m.encode(dev, bfloat16, p, 3, 3) // by 256 bytes to L2
}

// SetHeads makes m describe rows of heads: dims[0] features, which are neighbours, dims[1] rows that are `step` elements apart, dims[2]
// heads behind each other in a row, and dims[3] sequences. A box is `rows` rows of 64 features of a head.
func (m *TensorMap) SetHeads(dev *Device, bfloat16 bool, p Ptr, dims [4]int, step, rows int) error {
	for i, n := range dims {
		m.dims[i] = uint64(n)
	}
	m.strides = [3]uint64{2 * uint64(step), 2 * m.dims[0], 2 * uint64(step) * m.dims[1]}
	m.box = [4]uint32{64, uint32(rows), 1, 1}
	return m.encode(dev, bfloat16, p, 4, 2) // by 128 bytes to L2
}

func (m *TensorMap) encode(dev *Device, bfloat16 bool, p Ptr, rank, l2 uintptr) error {
	const (
		float16, brainFloat16 = 6, 9 // CUtensorMapDataType
		swizzle128            = 3
	)
	typ := uintptr(float16)
	if bfloat16 {
		typ = brainFloat16
	}
	m.step = [4]uint32{1, 1, 1, 1}
	r := dl.Call12(dev.drv.fn.TensorMapEncode, uintptr(m.at()), typ, rank, uintptr(p), uintptr(unsafe.Pointer(&m.dims)),
		uintptr(unsafe.Pointer(&m.strides)), uintptr(unsafe.Pointer(&m.box)), uintptr(unsafe.Pointer(&m.step)), 0, swizzle128, l2, 0)
	return dev.check("cuTensorMapEncodeTiled", r)
}

// at is the address of the CUtensorMap.
func (m *TensorMap) at() unsafe.Pointer {
	p := unsafe.Pointer(&m.bytes)
	return unsafe.Add(p, -uintptr(p)&63)
}

// TensorMap adds a CUtensorMap passed by value.
func (a *Args) TensorMap(m *TensorMap) *Args { return a.Struct(m.at(), 128) }
