package kernel

import "math"

// The gradients compute dst = g*f'(x), where g is the upstream gradient. They take the input x or the output y = f(x),
// whichever is cheaper.

// SqrtGrad computes dst = g/(2y).
func SqrtGrad[T Float](dst, g, y []T) {
	g, y = g[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = g[i] / (2 * y[i])
	}
}

// SquareGrad computes dst = g*2x.
func SquareGrad[T Float](dst, g, x []T) {
	g, x = g[:len(dst)], x[:len(dst)]
	for i := range dst {
		dst[i] = g[i] * (2 * x[i])
	}
}

// RecipGrad computes dst = -g*y*y.
func RecipGrad[T Float](dst, g, y []T) {
	g, y = g[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = -g[i] * (y[i] * y[i])
	}
}

// AbsGrad computes dst = g*sign(x), with sign(0) = 0; NaN where x is NaN.
func AbsGrad[T Float](dst, g, x []T) {
	g, x = g[:len(dst)], x[:len(dst)]
	for i := range dst {
		v := g[i]
		switch {
		case x[i] < 0:
			v = -v
		case x[i] == 0:
			v = 0
		case x[i] != x[i]:
			v = x[i]
		}
		dst[i] = v
	}
}

// SinGrad computes dst = g*cos(x).
func SinGrad[T Float](dst, g, x []T) {
	g, x = g[:len(dst)], x[:len(dst)]
	for i := range dst {
		dst[i] = g[i] * T(math.Cos(float64(x[i])))
	}
}

// CosGrad computes dst = -g*sin(x).
func CosGrad[T Float](dst, g, x []T) {
	g, x = g[:len(dst)], x[:len(dst)]
	for i := range dst {
		dst[i] = -g[i] * T(math.Sin(float64(x[i])))
	}
}

// TanhGrad computes dst = g*(1-y*y).
func TanhGrad[T Float](dst, g, y []T) {
	g, y = g[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = g[i] * (1 - T(y[i]*y[i]))
	}
}

// SigmoidGrad computes dst = g*(1-y)*y.
func SigmoidGrad[T Float](dst, g, y []T) {
	g, y = g[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = g[i] * (1 - y[i]) * y[i]
	}
}

// ReLUGrad computes dst = g where y > 0 (or NaN) and 0 elsewhere; y may be the input or the output of ReLU.
func ReLUGrad[T Float](dst, g, y []T) {
	k := vecGate(dst, g, y)
	dst = dst[k:]
	g, y = g[k:][:len(dst)], y[k:][:len(dst)]
	for i := range dst {
		v := g[i]
		if y[i] <= 0 {
			v = 0
		}
		dst[i] = v
	}
}

// GELUGrad computes dst = g*(Phi(x) + x*Phi'(x)), the gradient of [GELU].
func GELUGrad[T Float](dst, g, x []T) {
	k := vecGeluGrad(dst, g, x)
	dst = dst[k:]
	g, x = g[k:][:len(dst)], x[k:][:len(dst)]
	for i := range dst {
		dst[i] = g[i] * geluSlope(x[i])
	}
}

// GELUTanhGrad computes g times the derivative of [GELUTanh] at x.
func GELUTanhGrad[T Float](dst, g, x []T) {
	k := vecGeluTanhGrad(dst, g, x)
	dst = dst[k:]
	g, x = g[k:][:len(dst)], x[k:][:len(dst)]
	for i := range dst {
		dst[i] = g[i] * geluTanhSlope(x[i])
	}
}

// SiLUGrad computes the gradient of [SiLU]: with s = sigmoid(x), dst = g*s*(1 + x*(1-s)).
func SiLUGrad[T Float](dst, g, x []T) {
	k := vecSiluGrad(dst, g, x)
	dst = dst[k:]
	g, x = g[k:][:len(dst)], x[k:][:len(dst)]
	for i := range dst {
		dst[i] = g[i] * siluSlope(x[i])
	}
}
