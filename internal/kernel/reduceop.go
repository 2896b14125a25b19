package kernel

// The kernels in this file compute dst = dst op src for the reductions of collectives.

// SumInto computes dst += src.
func SumInto[T Number](dst, src []T) { addTo(dst, src) }

// ProdInto computes dst *= src.
func ProdInto[T Number](dst, src []T) { productOf(dst, dst, src) }

// MinInto computes dst = min(dst, src); NaN wins.
func MinInto[T Number](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = min(dst[i], src[i])
	}
}

// MaxInto computes dst = max(dst, src); NaN wins.
func MaxInto[T Number](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = max(dst[i], src[i])
	}
}

// BAndInto computes the bitwise dst &= src.
func BAndInto[T Int](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] &= src[i]
	}
}

// BOrInto computes the bitwise dst |= src.
func BOrInto[T Int](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] |= src[i]
	}
}

// BXorInto computes the bitwise dst ^= src.
func BXorInto[T Int](dst, src []T) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] ^= src[i]
	}
}

// ScaleInto computes dst *= s, with s rounded to T first.
func ScaleInto[T Float](dst []T, s float64) { scaled(dst, dst, T(s)) }

// AndBoolInto computes dst = dst && src, which is Prod, Min and BAnd for bools.
func AndBoolInto(dst, src []bool) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = dst[i] && src[i]
	}
}

// OrBoolInto computes dst = dst || src, which is Max and BOr for bools. It is also
// Sum, whose result stays a bool, as in PyTorch (NCCL has no bool type).
func OrBoolInto(dst, src []bool) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = dst[i] || src[i]
	}
}

// XorBoolInto computes dst = (dst != src), which is BXor for bools.
func XorBoolInto(dst, src []bool) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = dst[i] != src[i]
	}
}
