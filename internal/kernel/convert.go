package kernel

import "unsafe"

// Convert computes dst = D(src). Float to integer truncates towards zero and
// saturates at the limits of D; NaN becomes 0. Integer to a narrower integer keeps
// the low bits. Other conversions round to nearest, ties to even. dst and src may
// share memory only if D and S have the same size.
func Convert[D, S Number](dst []D, src []S) {
	src = src[:len(dst)]
	if isFloat[S]() && !isFloat[D]() {
		floatToInt(dst, src)
		return
	}
	for i := range dst {
		dst[i] = D(src[i])
	}
}

// floatToInt is Convert from a float type S to an integer type D.
func floatToInt[D, S Number](dst []D, src []S) {
	lo, hi, end := intRange[D]()
	for i, s := range src[:len(dst)] {
		v := float64(s)
		switch {
		case v >= end:
			dst[i] = hi
		case v >= float64(lo): // exact: the lower limits are powers of two, or 0
			dst[i] = D(s)
		case v != v:
			dst[i] = 0
		default:
			dst[i] = lo
		}
	}
}

// intRange returns the limits of the integer type T, and its largest value plus one as a float64.
func intRange[T Number]() (lo, hi T, end float64) {
	var zero T
	bits := 8 * int(unsafe.Sizeof(zero))
	if zero-1 > 0 { // unsigned
		return 0, zero - 1, float64(uint64(1) << bits)
	}
	end = float64(uint64(1) << (bits - 1))
	for range bits - 1 {
		hi = hi*2 + 1
	}
	return -hi - 1, hi, end
}

// FromBool computes dst = 1 where src is true and 0 elsewhere.
func FromBool[D Number](dst []D, src []bool) {
	src = src[:len(dst)]
	for i := range dst {
		var v D
		if src[i] {
			v = 1
		}
		dst[i] = v
	}
}

// ToBool computes dst = (src != 0); NaN is true.
func ToBool[S Number](dst []bool, src []S) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = src[i] != 0
	}
}
