package kernel

import "math"

// This file holds the scalar functions behind the elementwise kernels. For float64 they are package math. For
// float32 they are evaluated in float64 by polynomials with a relative error below 2e-9 and rounded to float32 once,
// which keeps the error of Exp, Tanh, Sigmoid, GELU and SiLU below 0.51 ulp and handles
// overflow and subnormal results without special cases.
//
// The functions that the kernels call take and return T and are not inlined: on amd64 the conversion to float64
// merges into its target register, and in a loop it would wait for the result of the previous element.

// expParts returns p and s, a power of two, with exp(x) = s + s*p and |p| < 0.42, for -708 < x < 709: x is reduced to
// |r| <= ln(2)/2, and p = exp(r)-1 is Taylor's series to degree 8 (relative error of p below 6e-10), its even and odd
// powers apart, which halves the chain of dependent operations.
func expParts(x float64) (p, s float64) {
	const shift = 0x1.8p52 // adding it rounds to an integer, found in the low bits
	k := float64(x*math.Log2E) + shift
	n := math.Float64bits(k)
	r := x - float64((k-shift)*math.Ln2)
	q := float64(r * r)
	even := 1 + float64(q*(1.0/6+float64(q*(1.0/120+float64(q*(1.0/5040))))))
	odd := 1.0/2 + float64(q*(1.0/24+float64(q*(1.0/720+float64(q*(1.0/40320))))))
	return r * (even + float64(r*odd)), math.Float64frombits((n + 1023) << 52)
}

// exp is e**x to the precision of T.
func exp[T Float](x float64) float64 {
	if !single[T]() {
		return math.Exp(x)
	}
	if x > 708 {
		return math.Inf(1)
	}
	if x < -708 {
		return 0
	}
	p, s := expParts(x)
	return s + float64(s*p)
}

// expNear is e**x, as the kernels of whole rows compute it: in float32 by the polynomial of Cephes' expf (Moshier 1989), with an
// error below 1 ulp. Results that would be denormal are 0: those of x < -87.
func expNear[T Float](x T) T {
	if !single[T]() {
		return T(math.Exp(float64(x)))
	}
	return T(exp32(float32(x)))
}

func exp32(x float32) float32 {
	const shift = 0x1.8p23 // as in expParts
	if x > 88 {
		return float32(math.Inf(1))
	}
	if x < -87 {
		return 0
	}
	n := float32(x*math.Log2E) + shift
	k := n - shift
	r := x - float32(k*0.693359375) - float32(k*-2.12194440e-4)
	p := float32(r * 1.9875691500e-4)
	p = float32((p + 1.3981999507e-3) * r)
	p = float32((p + 8.3334519073e-3) * r)
	p = float32((p + 4.1665795894e-2) * r)
	p = float32((p+1.6666665459e-1)*r) + 5.0000001201e-1
	y := float32(float32(r*r)*p) + r + 1
	return y * math.Float32frombits((math.Float32bits(n)+127)<<23)
}

// sigmoid is 1/(1+exp(-x)) to the precision of T. A large exponential gives exactly 0, never NaN.
func sigmoid[T Float](x float64) float64 { return 1 / (1 + exp[T](-x)) }

// phi returns the standard normal distribution function and density at x to the precision of T. The distribution
// function has full relative precision in the lower tail too.
func phi[T Float](x float64) (cdf, pdf float64) {
	z := math.Abs(x) * (math.Sqrt2 / 2)
	e := exp[T](-float64(z * z))
	var tail float64 // erfc(z)
	if single[T]() {
		tail = e * erfcx(z)
	} else {
		tail = math.Erfc(z)
	}
	upper := 1 - float64(math.Float64bits(x)>>63) // 1-tail/2 for positive x; signs are random, a branch is slow
	cdf = upper + math.Copysign(0.5*tail, -x)
	return cdf, e * (1 / (math.Sqrt2 * math.SqrtPi))
}

// erfcx approximates exp(z*z)*erfc(z) for 0 <= z < 11 as a polynomial in t = 1/(1+0.35z), times t: a Chebyshev fit with a
// relative error below 4e-10. Beyond 11 it stays positive and bounded.
func erfcx(z float64) float64 {
	t := 1 / (1 + float64(0.35*z))
	q := float64(t * t)
	even := 0.1288106917549816 + float64(q*0.10231660425997344)
	even = 0.007037914850400276 + float64(q*even)
	even = 0.10880677958508976 + float64(q*even)
	even = 0.18452166903312034 + float64(q*even)
	even = 0.19746305174823775 + float64(q*even)
	odd := -0.19669387362568128 + float64(q*(-0.018734149323068286))
	odd = -0.004795261530029037 + float64(q*odd)
	odd = 0.1274861817565086 + float64(q*odd)
	odd = 0.16623347353751447 + float64(q*odd)
	odd = 0.1975469178318557 + float64(q*odd)
	return t * (even + float64(t*odd))
}

//go:noinline
func expOf[T Float](x T) T { return T(exp[T](float64(x))) }

//go:noinline
func sigmoidOf[T Float](x T) T { return T(sigmoid[T](float64(x))) }

// tanhOf is the hyperbolic tangent: with e = exp(2x)-1 it is e/(e+2), without cancellation.
//
//go:noinline
func tanhOf[T Float](x T) T {
	if !single[T]() {
		return T(math.Tanh(float64(x)))
	}
	if x == 0 || x > 10 || x < -10 { // keeps the sign of zero; 1-tanh(10) is below 2**-28
		return max(-1, min(x, 1))
	}
	p, s := expParts(2 * float64(x))
	e := float64(s*p) + (s - 1)
	return T(e / (e + 2))
}

//go:noinline
func geluOf[T Float](x T) T {
	cdf, _ := phi[T](float64(x))
	return T(float64(x) * cdf)
}

// geluSlope is the derivative of geluOf.
//
//go:noinline
func geluSlope[T Float](x T) T {
	cdf, pdf := phi[T](float64(x))
	return T(cdf + float64(float64(x)*pdf))
}

const (
	geluScale = 2 * 0.7978845608028653558798921198687637369517 // 2*sqrt(2/pi)
	geluCubic = 0.044715
)

//go:noinline
func geluTanhOf[T Float](x T) T {
	v := float64(x)
	return T(v * sigmoid[T](geluScale*(v+float64(geluCubic*v*v*v))))
}

// geluTanhSlope is the derivative of geluTanhOf: with u = 2*sqrt(2/pi)*(x + 0.044715*x**3) and s = sigmoid(u), s + x*s*(1-s)*u'.
//
//go:noinline
func geluTanhSlope[T Float](x T) T {
	v := float64(x)
	q := geluCubic * v * v
	s := sigmoid[T](geluScale * (v + float64(q*v)))
	d := s
	if c := s * (1 - s); c > 0 { // a saturated sigmoid has slope 0, also where u' overflows
		d += float64(v * c * geluScale * (1 + float64(3*q)))
	}
	return T(d)
}

//go:noinline
func siluOf[T Float](x T) T { return T(float64(x) * sigmoid[T](float64(x))) }

// siluSlope is the derivative of siluOf.
//
//go:noinline
func siluSlope[T Float](x T) T {
	v := float64(x)
	s := sigmoid[T](v)
	return T(s * (1 + float64(v*(1-s))))
}
