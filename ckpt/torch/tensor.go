package torch

import (
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// maxDims is the largest number of dimensions, as in PyTorch.
const maxDims = 64

// Tensor is a tensor in a file. It is an io.ReaderAt of its elements: row-major, little endian and without gaps,
// whatever the order in the file.
type Tensor struct {
	DType  safetensors.DType
	Shape  []int
	n      int // elements
	chunks []*chunk
	last   int // index of the chunk that find returned last
	mu     sync.Mutex
}

// storage is a range of a file with elements of one type.
type storage struct {
	r     io.ReaderAt
	dtype safetensors.DType
	bytes int64
}

// chunk is a box of a tensor, and where its elements are in a storage. A tensor of torch.save has one chunk.
type chunk struct {
	offset, size, stride []int // strides count elements
	start                int   // first element in the storage
	lo, hi               int   // range of the storage that contains all its elements
	store                *storage
	span                 []byte // elements lo to hi, kept while a scattered tensor is read
}

// product returns the number of elements.
func product(shape []int) (int, error) {
	n := 1
	for _, d := range shape {
		if d > 0 && n > math.MaxInt/64/d {
			return 0, fmt.Errorf("the product of the shape %v overflows", shape)
		}
		n *= d
	}
	return n, nil
}

// newTensor returns a tensor, or an error if it does not lie within its storage.
func newTensor(store *storage, d safetensors.DType, start int, size, stride []int) (*Tensor, error) {
	n, err := product(size)
	if err != nil {
		return nil, err
	}
	if len(stride) != len(size) {
		return nil, fmt.Errorf("%d sizes and %d strides", len(size), len(stride))
	}
	elements := int(store.bytes / int64(d.Bits()/8))
	c := &chunk{offset: make([]int, len(size)), size: size, stride: stride, start: start, lo: start, hi: start, store: store}
	if n > 0 && start <= elements {
		c.hi++
		for i, s := range size {
			if s > 1 && stride[i] > elements/(s-1) || c.hi > elements {
				c.hi = elements + 1
				break
			}
			c.hi += (s - 1) * stride[i]
		}
	}
	if c.hi > elements {
		return nil, fmt.Errorf("sizes %v, strides %v and offset %d lead out of the storage of %d elements", size, stride, start, elements)
	}
	if n > elements {
		return nil, fmt.Errorf("%d elements of a storage of %d: expanded tensors are not read", n, elements)
	}
	return &Tensor{DType: d, Shape: size, n: n, chunks: []*chunk{c}}, nil
}

// Bytes returns the size of the tensor in bytes.
func (t *Tensor) Bytes() int64 { return int64(t.n) * int64(t.DType.Bits()/8) }

// ReadAt implements io.ReaderAt; off and len(b) must be multiples of the element's size.
func (t *Tensor) ReadAt(b []byte, off int64) (n int, err error) {
	size := t.DType.Bits() / 8
	if off < 0 || off%int64(size) != 0 || len(b)%size != 0 {
		return 0, fmt.Errorf("%d bytes at %d are no whole elements of %s", len(b), off, t.DType)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for n < len(b) && off+int64(n) < t.Bytes() {
		at := int((off + int64(n)) / int64(size))
		var index [maxDims]int
		for d, rest := len(t.Shape)-1, at; d >= 0; d-- {
			index[d], rest = rest%t.Shape[d], rest/t.Shape[d]
		}
		c := t.find(index[:len(t.Shape)])
		if c == nil {
			return n, fmt.Errorf("element %v is in no chunk", index[:len(t.Shape)])
		}
		from, run := c.run(index[:len(t.Shape)], t.Shape)
		part := b[n:min(len(b), n+run*size)]
		if err := c.read(part, from, size); err != nil {
			return n, err
		}
		n += len(part)
	}
	if off+int64(n) >= t.Bytes() {
		for _, c := range t.chunks {
			c.span = nil
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// find returns the chunk that has an element, or nil. It tries the last chunk first, because neighbours are mostly in
// one chunk.
func (t *Tensor) find(index []int) *chunk {
	for k := range t.chunks {
		i := (t.last + k) % len(t.chunks)
		if t.chunks[i].has(index) {
			t.last = i
			return t.chunks[i]
		}
	}
	return nil
}

func (c *chunk) has(index []int) bool {
	for d, i := range index {
		if i < c.offset[d] || i >= c.offset[d]+c.size[d] {
			return false
		}
	}
	return true
}

// run returns an element's place in the storage, and how many elements from there on are consecutive both in the
// storage and in the tensor.
func (c *chunk) run(index, shape []int) (from, n int) {
	from = c.start
	block, at, open := 1, 0, true
	for d := len(index) - 1; d >= 0; d-- {
		i := index[d] - c.offset[d]
		from += i * c.stride[d]
		if open = open && (c.size[d] == 1 || c.stride[d] == block); open {
			at += i * block
			block *= c.size[d]
			open = c.size[d] == shape[d]
		}
	}
	return from, block - at
}

// scattered reports whether the elements of a row are not consecutive in the storage.
func (c *chunk) scattered() bool {
	for d := len(c.size) - 1; d >= 0; d-- {
		if c.size[d] > 1 {
			return c.stride[d] != 1
		}
	}
	return false
}

// read reads elements from the storage. If the chunk is scattered, it reads the whole range once and keeps it until the
// end of the tensor: reading each element on its own would take minutes.
func (c *chunk) read(b []byte, from, size int) error {
	if !c.scattered() {
		return readFull(c.store.r, b, int64(from)*int64(size))
	}
	if c.span == nil {
		span := make([]byte, (c.hi-c.lo)*size)
		if err := readFull(c.store.r, span, int64(c.lo)*int64(size)); err != nil {
			return err
		}
		c.span = span
	}
	copy(b, c.span[(from-c.lo)*size:])
	return nil
}

func readFull(r io.ReaderAt, b []byte, off int64) error {
	if n, err := r.ReadAt(b, off); n < len(b) {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// rebuild is _rebuild_tensor and _rebuild_tensor_v2: storage, offset, sizes, strides, requires_grad, hooks, metadata.
func rebuild(m *machine, a Tuple) (any, error) {
	if len(a) != 4 && len(a) != 6 && len(a) != 7 {
		return nil, fmt.Errorf("%d arguments", len(a))
	}
	store, ok := a[0].(*storage)
	if !ok {
		return nil, fmt.Errorf("%s where a storage should be", kindOf(a[0]))
	}
	return tensorOf(m, store, store.dtype, a, 6)
}

// rebuildTyped is _rebuild_tensor_v3: as rebuild, with a dtype before the metadata.
func rebuildTyped(m *machine, a Tuple) (any, error) {
	if len(a) != 7 && len(a) != 8 {
		return nil, fmt.Errorf("%d arguments", len(a))
	}
	store, ok1 := a[0].(*storage)
	name, ok2 := a[6].(Name)
	if !ok1 || !ok2 || name.Module != "torch" || types[name.Name] == "" {
		return nil, fmt.Errorf("%s and %s where a storage and a dtype should be", kindOf(a[0]), kindOf(a[6]))
	}
	return tensorOf(m, store, types[name.Name], a, 7)
}

func tensorOf(m *machine, store *storage, d safetensors.DType, a Tuple, meta int) (any, error) {
	if len(a) > meta {
		if m, ok := a[meta].(*Dict); a[meta] != nil && (!ok || len(m.Keys) > 0) {
			return nil, fmt.Errorf("a view that is conjugated or negated is not read")
		}
	}
	start, ok := a[1].(int64)
	if !ok || start < 0 || int64(int(start)) != start {
		return nil, fmt.Errorf("an offset is %s", show(a[1]))
	}
	size, err := ints(a[2])
	if err != nil {
		return nil, err
	}
	stride, err := ints(a[3])
	if err != nil {
		return nil, err
	}
	if err := m.budget.Take(int64(tensorBytes + 24*len(size))); err != nil {
		return nil, err
	}
	t, err := newTensor(store, d, int(start), size, stride)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// rebuildParameter takes a tensor, requires_grad and hooks.
func rebuildParameter(_ *machine, a Tuple) (any, error) {
	if len(a) == 3 {
		if t, ok := a[0].(*Tensor); ok {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%d arguments that are not a tensor, requires_grad and hooks", len(a))
}
