package tensor

import (
	"fmt"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// DType is the element type of a Tensor, known at run time.
type DType uint8

// The element types. Float32 is the zero value. 16-bit floats are computed in float32 and stored in 16 bits.
const (
	Float32 DType = iota
	Float64
	BFloat16
	Float16
	Int32
	Int64
	Uint8
	Bool
	// NumDTypes is the number of element types.
	NumDTypes = 8
)

// BF16 is the storage of one BFloat16 element.
type BF16 = kernel.BF16

// F16 is the storage of one Float16 (IEEE binary16) element.
type F16 = kernel.F16

// ToBF16 rounds x to the nearest BFloat16, ties to even.
func ToBF16(x float32) BF16 { return kernel.ToBF16(x) }

// ToF16 rounds x to the nearest Float16, ties to even; magnitudes from 65520 on become infinity.
func ToF16(x float32) F16 { return kernel.ToF16(x) }

// Elem is the set of Go types that hold one element.
type Elem interface {
	float32 | float64 | BF16 | F16 | int32 | int64 | uint8 | bool
}

var dtypes = [NumDTypes]struct {
	name string
	size int
}{{"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float16", 2}, {"int32", 4}, {"int64", 8}, {"uint8", 1}, {"bool", 1}}

// String returns PyTorch's name of the type, such as "float32".
func (d DType) String() string {
	if d >= NumDTypes {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size returns the bytes of one element.
func (d DType) Size() int {
	if d >= NumDTypes {
		d.unknown()
	}
	return dtypes[d].size
}

func (d DType) unknown() { fail("use", nil, "%v is not an element type", d) }

// IsFloat reports whether d is one of the four floating-point types.
func (d DType) IsFloat() bool { return d <= Float16 }

// IsHalf reports whether d is a 16-bit float.
func (d DType) IsHalf() bool { return d == BFloat16 || d == Float16 }

// ParseDType returns the type with the given name, as String writes it.
func ParseDType(name string) (DType, error) {
	for i, d := range dtypes {
		if d.name == name {
			return DType(i), nil
		}
	}
	return 0, fmt.Errorf("tensor: unknown dtype %q (float32, float64, bfloat16, float16, int32, int64, uint8, bool)", name)
}

// DTypeOf returns the DType that stores T.
func DTypeOf[T Elem]() DType {
	var z T
	switch any(z).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case BF16:
		return BFloat16
	case F16:
		return Float16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	}
	return Bool
}
