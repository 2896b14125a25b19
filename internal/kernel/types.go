package kernel

import "unsafe"

// Float is the element type of kernels that are defined for real numbers.
type Float interface{ ~float32 | ~float64 }

// Int is the element type of integer kernels. Arithmetic wraps around.
type Int interface{ ~int32 | ~int64 | ~uint8 }

// Number is any arithmetic element type. BF16 and F16 are storage formats, not numbers:
// convert them to float32 first.
type Number interface{ Float | Int }

// isFloat reports whether T is a floating-point type. It is a constant in every instantiation.
func isFloat[T Number]() bool {
	var one, two T = 1, 2
	return one/two != 0
}

// single reports whether T is a 32-bit float. It is a constant in every instantiation.
func single[T Float]() bool {
	var z T
	return unsafe.Sizeof(z) == 4
}
