package kernel

import "math"

// MSE computes the elementwise squared difference dst = (x-y)**2.
func MSE[T Float](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		d := x[i] - y[i]
		dst[i] = d * d
	}
}

// MSEGrad computes the gradient of [MSE] with respect to x, dst = g*2*(x-y). g may be a scalar (length 1).
func MSEGrad[T Float](dst, g, x, y []T) {
	step := min(1, len(g)-1) // 0 for a scalar
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = g[i*step] * (2 * (x[i] - y[i]))
	}
}

// BCEWithLogits computes the binary cross-entropy of logits x and targets y in [0, 1],
// dst = max(x,0) - x*y + ln(1+exp(-|x|)), which does not overflow.
func BCEWithLogits[T Float](dst, x, y []T) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		u, t := float64(x[i]), float64(y[i])
		dst[i] = T(max(u, 0) - float64(u*t) + math.Log1p(exp[T](-math.Abs(u))))
	}
}

// BCEWithLogitsGrad computes the gradient of [BCEWithLogits] with respect to x, dst = g*(sigmoid(x)-y). g may be a
// scalar (length 1).
func BCEWithLogitsGrad[T Float](dst, g, x, y []T) {
	step := min(1, len(g)-1) // 0 for a scalar
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = g[i*step] * T(sigmoid[T](float64(x[i]))-float64(y[i]))
	}
}
