package kernel

// ReduceMax computes dst[j] = the largest of the n >= 1 elements of output j and,
// if idx is not nil, idx[j] = its position in 0..n. Of equal elements the first is
// taken. NaN is larger than all numbers.
func ReduceMax[T Number](dst []T, idx []int64, x []T, n, inner, lo, hi int) {
	if inner == 1 {
		for j := lo; j < hi; j++ {
			at := argMax(x[j*n : (j+1)*n])
			dst[j] = x[j*n+at]
			if idx != nil {
				idx[j] = int64(at)
			}
		}
		return
	}
	for lo < hi {
		o, i := lo/inner, lo%inner
		w := min(inner-i, hi-lo)
		d, p := extremeStart(dst, idx, x[o*n*inner+i:], lo, lo+w)
		for r := 1; r < n; r++ {
			for k, v := range x[(o*n+r)*inner+i:][:w] {
				if v > d[k] || v != v && d[k] == d[k] {
					d[k] = v
					if p != nil {
						p[k] = int64(r)
					}
				}
			}
		}
		lo += w
	}
}

// argMax returns the position of the first largest element of x, or of the first NaN.
func argMax[T Number](x []T) int {
	best, at := x[0], 0
	for i, v := range x {
		if !(v <= best) && best == best {
			best, at = v, i
		}
	}
	return at
}

// ReduceMin computes dst[j] = the smallest of the n >= 1 elements of output j and,
// if idx is not nil, idx[j] = its position in 0..n. Of equal elements the first is
// taken. NaN is smaller than all numbers.
func ReduceMin[T Number](dst []T, idx []int64, x []T, n, inner, lo, hi int) {
	if inner == 1 {
		for j := lo; j < hi; j++ {
			at := argMin(x[j*n : (j+1)*n])
			dst[j] = x[j*n+at]
			if idx != nil {
				idx[j] = int64(at)
			}
		}
		return
	}
	for lo < hi {
		o, i := lo/inner, lo%inner
		w := min(inner-i, hi-lo)
		d, p := extremeStart(dst, idx, x[o*n*inner+i:], lo, lo+w)
		for r := 1; r < n; r++ {
			for k, v := range x[(o*n+r)*inner+i:][:w] {
				if v < d[k] || v != v && d[k] == d[k] {
					d[k] = v
					if p != nil {
						p[k] = int64(r)
					}
				}
			}
		}
		lo += w
	}
}

// argMin returns the position of the first smallest element of x, or of the first NaN.
func argMin[T Number](x []T) int {
	best, at := x[0], 0
	for i, v := range x {
		if !(v >= best) && best == best {
			best, at = v, i
		}
	}
	return at
}

// extremeStart starts outputs lo..hi at position 0 and returns their values and positions.
func extremeStart[T Number](dst []T, idx []int64, x []T, lo, hi int) ([]T, []int64) {
	d := dst[lo:hi]
	copy(d, x)
	if idx == nil {
		return d, nil
	}
	p := idx[lo:hi]
	clear(p)
	return d, p
}
