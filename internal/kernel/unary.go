package kernel

import "math"

// Fill sets every element of dst to v.
func Fill[T any](dst []T, v T) {
	for i := range dst {
		dst[i] = v
	}
}

// Affine computes dst = a*x + b; the product is rounded before the addition.
func Affine[T Float](dst, x []T, a, b T) {
	k := vecAffine(dst, x, a, b)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = T(a*x[i]) + b
	}
}

// Neg computes dst = -x.
func Neg[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = -x[i]
	}
}

// Abs computes dst = |x|.
func Abs[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Abs(float64(x[i])))
	}
}

// Exp computes dst = e**x.
func Exp[T Float](dst, x []T) {
	k := vecExp(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = expOf(x[i])
	}
}

// Log computes the natural logarithm dst = ln(x); NaN for x < 0, -Inf for 0.
func Log[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Log(float64(x[i])))
	}
}

// Sqrt computes the correctly rounded square root of x; NaN for x < 0.
func Sqrt[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Sqrt(float64(x[i])))
	}
}

// Square computes dst = x*x.
func Square[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * x[i]
	}
}

// Recip computes dst = 1/x.
func Recip[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = 1 / x[i]
	}
}

// Sin computes dst = sin(x), x in radians.
func Sin[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Sin(float64(x[i])))
	}
}

// Cos computes dst = cos(x), x in radians.
func Cos[T Float](dst, x []T) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Cos(float64(x[i])))
	}
}

// Tanh computes dst = tanh(x).
func Tanh[T Float](dst, x []T) {
	k := vecTanh(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = tanhOf(x[i])
	}
}

// Sigmoid computes the logistic function dst = 1/(1+exp(-x)); it never overflows to NaN.
func Sigmoid[T Float](dst, x []T) {
	k := vecSigmoid(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = sigmoidOf(x[i])
	}
}

// ReLU computes dst = max(x, 0); NaN stays NaN.
func ReLU[T Float](dst, x []T) {
	k := vecGate(dst, x, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = max(x[i], 0)
	}
}

// GELU computes the Gaussian error linear unit x*Phi(x) with the exact normal distribution function Phi
// (Hendrycks and Gimpel 2016; PyTorch's approximate="none").
func GELU[T Float](dst, x []T) {
	k := vecGelu(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = geluOf(x[i])
	}
}

// GELUTanh computes 0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3))), PyTorch's approximate="tanh" and the GELU of GPT-2,
// in the equal form x*sigmoid(2*sqrt(2/pi)*(x + 0.044715*x**3)).
func GELUTanh[T Float](dst, x []T) {
	k := vecGeluTanh(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = geluTanhOf(x[i])
	}
}

// SiLU computes dst = x*sigmoid(x), also called swish.
func SiLU[T Float](dst, x []T) {
	k := vecSilu(dst, x)
	dst = dst[k:]
	x = x[k:][:len(dst)]
	for i := range dst {
		dst[i] = siluOf(x[i])
	}
}
