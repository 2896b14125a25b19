package safetensors

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// MaxHeader is the largest header, in bytes, that the format allows. It does not include the 8 bytes of the length.
const MaxHeader = 100_000_000

// metadataKey is the only key of a header that is not a tensor.
const metadataKey = "__metadata__"

// DType is the type of a tensor's elements, as it is written in the header.
type DType string

// The types that Ringo computes with. Read accepts all types of the format.
const (
	Bool DType = "BOOL"
	U8   DType = "U8"
	I32  DType = "I32"
	I64  DType = "I64"
	F16  DType = "F16"
	BF16 DType = "BF16"
	F32  DType = "F32"
	F64  DType = "F64"
)

var bitsOf = map[DType]int{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	Bool: 8, U8: 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"I16": 16, "U16": 16, F16: 16, BF16: 16,
	I32: 32, "U32": 32, F32: 32,
	F64: 64, I64: 64, "U64": 64, "C64": 64,
}

// Bits returns the size of an element in bits, or 0 if the format does not have the type.
func (d DType) Bits() int { return bitsOf[d] }

// Tensor is an entry of a header.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int
	Start, End int64 // byte range, counted from the end of the header
}

// Len returns the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// bytes returns the size of the data, or an error if the type is unknown or the shape is invalid.
func (t Tensor) bytes() (int64, error) {
	bits := t.DType.Bits()
	if bits == 0 {
		return 0, fmt.Errorf("unknown dtype %s", bounded.Quote(string(t.DType)))
	}
	n := int64(1)
	for _, d := range t.Shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", t.Shape)
		}
		if d > 0 && n > math.MaxInt64/64/int64(d) {
			return 0, fmt.Errorf("the product of shape %v overflows", t.Shape)
		}
		n *= int64(d)
	}
	if n*int64(bits)%8 != 0 {
		return 0, fmt.Errorf("%d elements of %d bits are no whole number of bytes", n, bits)
	}
	return n * int64(bits) / 8, nil
}

// Header lists what a file contains.
type Header struct {
	Metadata map[string]string // nil: none
	Tensors  []Tensor          // in the order of their bytes
	Size     int64             // number of bytes before the data
}

// Error describes an invalid file.
type Error struct {
	File   string
	Tensor string // "": the whole file
	Reason string
}

// Error returns the file, the tensor and the reason.
func (e *Error) Error() string {
	if e.Tensor == "" {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s: tensor %s: %s", e.File, bounded.Quote(e.Tensor), e.Reason)
}

// New returns the header of a file with these tensors, and sets their byte ranges. Tensors with larger elements come
// first, so that all are aligned; tensors of the same size are sorted by name. The reference implementation uses the
// same order. The slice is not changed.
func New(tensors []Tensor, metadata map[string]string) (*Header, error) {
	h := &Header{Metadata: metadata, Tensors: slices.Clone(tensors)}
	slices.SortFunc(h.Tensors, func(a, b Tensor) int {
		return cmp.Or(b.DType.Bits()-a.DType.Bits(), strings.Compare(a.Name, b.Name))
	})
	end, names := int64(0), map[string]bool{}
	for i := range h.Tensors {
		t := &h.Tensors[i]
		n, err := t.bytes()
		if err == nil && end > math.MaxInt64-n-MaxHeader-8 {
			err = fmt.Errorf("the file would be larger than %d bytes", math.MaxInt64)
		}
		if err == nil && (t.Name == metadataKey || !utf8.ValidString(t.Name)) {
			err = fmt.Errorf("the format does not allow this name")
		}
		if err == nil && names[t.Name] {
			err = fmt.Errorf("the name is there twice")
		}
		names[t.Name] = true
		if err != nil {
			return nil, fmt.Errorf("safetensors: tensor %q: %w", t.Name, err)
		}
		t.Start, t.End = end, end+n
		end += n
	}
	h.Size = int64(len(h.Encode()))
	if h.Size > MaxHeader+8 {
		return nil, fmt.Errorf("safetensors: a header of %d bytes; the format allows %d", h.Size-8, MaxHeader)
	}
	return h, nil
}

// DataSize returns the number of bytes after the header.
func (h *Header) DataSize() int64 {
	if len(h.Tensors) == 0 {
		return 0
	}
	return h.Tensors[len(h.Tensors)-1].End
}

// Encode returns the bytes before the data: the length and the JSON text, padded to a multiple of 8.
func (h *Header) Encode() []byte {
	b := append(make([]byte, 8, 64+128*len(h.Tensors)), '{')
	if h.Metadata != nil {
		text, _ := json.Marshal(h.Metadata) // strings: cannot fail
		b = append(append(b, `"`+metadataKey+`":`...), text...)
		b = append(b, ',')
	}
	for _, t := range h.Tensors {
		b = append(appendString(b, t.Name), `:{"dtype":"`...)
		b = append(append(b, t.DType...), `","shape":[`...)
		for i, d := range t.Shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(d), 10)
		}
		b = append(b, `],"data_offsets":[`...)
		b = strconv.AppendInt(b, t.Start, 10)
		b = strconv.AppendInt(append(b, ','), t.End, 10)
		b = append(b, "]},"...)
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b
}

func appendString(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // cannot fail
	return append(b, text...)
}
