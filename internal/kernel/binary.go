package kernel

import "math"

// In the binary kernels, an operand of length 1 is a scalar, repeated len(dst)
// times. Otherwise it has len(dst) elements.

// Add computes dst = a + b.
func Add[T Number](dst, a, b []T) {
	if len(a) != len(dst) {
		a, b = b, a // addition commutes: now only b can be the scalar, unless both are
	}
	switch n := len(dst); {
	case len(a) != n:
		Fill(dst, a[0]+b[0])
	case len(b) == n:
		sumOf(dst, a, b)
	default:
		s := b[0]
		k := vecAffine(dst, a, 1, s)
		dst = dst[k:]
		a = a[k:][:len(dst)]
		for i := range dst {
			dst[i] = a[i] + s
		}
	}
}

// sumOf computes dst = a + b for slices of the same length.
func sumOf[T Number](dst, a, b []T) {
	k := vecAdd(dst, a, b)
	dst = dst[k:]
	a, b = a[k:][:len(dst)], b[k:][:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

// Sub computes dst = a - b.
func Sub[T Number](dst, a, b []T) {
	switch n := len(dst); {
	case len(a) == n && len(b) == n:
		k := vecSub(dst, a, b)
		dst = dst[k:]
		a, b = a[k:][:len(dst)], b[k:][:len(dst)]
		for i := range dst {
			dst[i] = a[i] - b[i]
		}
	case len(a) == n:
		s := b[0]
		k := vecAffine(dst, a, 1, -s)
		dst = dst[k:]
		a = a[k:][:len(dst)]
		for i := range dst {
			dst[i] = a[i] - s
		}
	case len(b) == n:
		s := a[0]
		k := vecAffine(dst, b, -T(1), s)
		dst = dst[k:]
		b = b[k:][:len(dst)]
		for i := range dst {
			dst[i] = s - b[i]
		}
	default:
		Fill(dst, a[0]-b[0])
	}
}

// Mul computes dst = a * b.
func Mul[T Number](dst, a, b []T) {
	if len(a) != len(dst) {
		a, b = b, a
	}
	switch n := len(dst); {
	case len(a) != n:
		Fill(dst, a[0]*b[0])
	case len(b) == n:
		productOf(dst, a, b)
	default:
		scaled(dst, a, b[0])
	}
}

// productOf computes dst = a * b for slices of the same length.
func productOf[T Number](dst, a, b []T) {
	k := vecMul(dst, a, b)
	dst = dst[k:]
	a, b = a[k:][:len(dst)], b[k:][:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

// scaled computes dst = s * x.
func scaled[T Number](dst, x []T, s T) {
	var zero T
	k := vecAffine(dst, x, s, -zero) // adding -0 changes nothing
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = x[i] * s
	}
}

// Div computes dst = a / b. Integer division truncates towards zero; integer division by zero gives 0.
func Div[T Number](dst, a, b []T) {
	switch n := len(dst); {
	case len(a) == n && len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = quot(a[i], b[i])
		}
	case len(a) == n:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = quot(a[i], s)
		}
	case len(b) == n:
		s, b := a[0], b[:n]
		for i := range dst {
			dst[i] = quot(s, b[i])
		}
	default:
		Fill(dst, quot(a[0], b[0]))
	}
}

// quot is x/y, and 0 for integer division by zero.
func quot[T Number](x, y T) T {
	if y == 0 && !isFloat[T]() {
		return 0
	}
	return x / y
}

// Max computes the larger of a and b. If one is NaN, the result is NaN; +0 is
// larger than -0.
func Max[T Number](dst, a, b []T) {
	if len(a) != len(dst) {
		a, b = b, a
	}
	switch n := len(dst); {
	case len(a) != n:
		Fill(dst, max(a[0], b[0]))
	case len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	default:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = max(a[i], s)
		}
	}
}

// Min computes the smaller of a and b. If one is NaN, the result is NaN; -0 is
// smaller than +0.
func Min[T Number](dst, a, b []T) {
	if len(a) != len(dst) {
		a, b = b, a
	}
	switch n := len(dst); {
	case len(a) != n:
		Fill(dst, min(a[0], b[0]))
	case len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = min(a[i], b[i])
		}
	default:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = min(a[i], s)
		}
	}
}

// Pow computes dst = a**b with the special cases of math.Pow.
func Pow[T Float](dst, a, b []T) {
	switch n := len(dst); {
	case len(a) == n && len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = T(math.Pow(float64(a[i]), float64(b[i])))
		}
	case len(a) == n:
		a, s := a[:n], float64(b[0])
		for i := range dst {
			dst[i] = T(math.Pow(float64(a[i]), s))
		}
	case len(b) == n:
		s, b := float64(a[0]), b[:n]
		for i := range dst {
			dst[i] = T(math.Pow(s, float64(b[i])))
		}
	default:
		Fill(dst, T(math.Pow(float64(a[0]), float64(b[0]))))
	}
}
