package kernel

// The comparisons follow Go and IEEE 754: every comparison with NaN is false, except Ne, which is true.
// Operands of length 1 are scalars.

// Eq computes dst = (a == b).
func Eq[T Number](dst []bool, a, b []T) {
	if len(a) != len(dst) {
		a, b = b, a
	}
	switch n := len(dst); {
	case len(a) != n:
		Fill(dst, a[0] == b[0])
	case len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = a[i] == b[i]
		}
	default:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = a[i] == s
		}
	}
}

// Ne computes dst = (a != b).
func Ne[T Number](dst []bool, a, b []T) {
	if len(a) != len(dst) {
		a, b = b, a
	}
	switch n := len(dst); {
	case len(a) != n:
		Fill(dst, a[0] != b[0])
	case len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = a[i] != b[i]
		}
	default:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = a[i] != s
		}
	}
}

// Lt computes dst = (a < b).
func Lt[T Number](dst []bool, a, b []T) {
	switch n := len(dst); {
	case len(a) == n && len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = a[i] < b[i]
		}
	case len(a) == n:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = a[i] < s
		}
	case len(b) == n:
		s, b := a[0], b[:n]
		for i := range dst {
			dst[i] = s < b[i]
		}
	default:
		Fill(dst, a[0] < b[0])
	}
}

// Le computes dst = (a <= b).
func Le[T Number](dst []bool, a, b []T) {
	switch n := len(dst); {
	case len(a) == n && len(b) == n:
		a, b = a[:n], b[:n]
		for i := range dst {
			dst[i] = a[i] <= b[i]
		}
	case len(a) == n:
		a, s := a[:n], b[0]
		for i := range dst {
			dst[i] = a[i] <= s
		}
	case len(b) == n:
		s, b := a[0], b[:n]
		for i := range dst {
			dst[i] = s <= b[i]
		}
	default:
		Fill(dst, a[0] <= b[0])
	}
}

// Gt computes dst = (a > b).
func Gt[T Number](dst []bool, a, b []T) { Lt(dst, b, a) }

// Ge computes dst = (a >= b).
func Ge[T Number](dst []bool, a, b []T) { Le(dst, b, a) }

// Where computes dst = a where cond is true and b elsewhere. cond, a and b of length 1 are scalars.
func Where[T any](dst []T, cond []bool, a, b []T) {
	n := len(dst)
	if len(cond) != n {
		if !cond[0] {
			a = b
		}
		if len(a) == n {
			copy(dst, a)
		} else {
			Fill(dst, a[0])
		}
		return
	}
	cond = cond[:n]
	if len(a) == n && len(b) == n {
		a, b = a[:n], b[:n]
		for i := range dst {
			v := b[i]
			if cond[i] {
				v = a[i]
			}
			dst[i] = v
		}
		return
	}
	whereScalar(dst, cond, a, b)
}

// whereScalar is Where with a scalar among a and b.
func whereScalar[T any](dst []T, cond []bool, a, b []T) {
	sa, sb := min(1, len(a)-1), min(1, len(b)-1) // index steps: 0 for a scalar
	for i, c := range cond {
		if c {
			dst[i] = a[i*sa]
		} else {
			dst[i] = b[i*sb]
		}
	}
}
