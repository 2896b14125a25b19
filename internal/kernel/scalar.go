package kernel

import "math"

// This file holds the scalar functions of the elementwise kernels. For float64 they
// use package math. For float32 they are evaluated in float32, by polynomials and
// without fused products, so that 16 elements fit a register and every machine
// computes the same bits. doc.go has the bounds of their errors.
//
// The functions that kernels call take and return T and are not inlined: otherwise
// a result would wait in a register for the conversion of the next element.

// expParts returns p and s, a power of two, with exp(x) = s + s*p and |p| < 0.42,
// for -708 < x < 709. x is reduced to |r| <= ln(2)/2. p = exp(r)-1 is the Taylor
// series to degree 8 (relative error of p below 6e-10). Its even and odd powers are
// summed separately, which halves the chain of dependent operations.
func expParts(x float64) (p, s float64) {
	const shift = 0x1.8p52 // adding it rounds to an integer, which is in the low bits
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

// expNear is e**x for the kernels of whole rows. In float32 it is a polynomial as
// in Cephes' expf (Moshier 1989), with an error below 1 ulp. Results that would be
// subnormal are 0: those for x < -87.
func expNear[T Float](x T) T {
	if !single[T]() {
		return T(math.Exp(float64(x)))
	}
	return T(exp32(float32(x)))
}

func exp32(x float32) float32 {
	if x > 88 {
		return float32(math.Inf(1))
	}
	if x < -87 {
		return 0
	}
	p, n := expParts32(x)
	return (p + 1) * pow2(math.Float32bits(n))
}

// expParts32 returns p and n with exp(x) = (1+p) * pow2(bits of n): |p| < 0.42, relative error of p about 1 ulp. The polynomial,
// r + r*r*q(r), is a minimax fit; its own error is below 3.2e-9.
func expParts32(x float32) (p, n float32) {
	const shift = 0x1.8p23 // as in expParts
	n = float32(x*math.Log2E) + shift
	k := n - shift
	r := x - float32(k*0.693145751953125) - float32(k*1.4286197256296873e-6) // ln(2); the products are exact
	p = float32(r * 0.0013818939)
	p = float32((p + 0.008368704) * r)
	p = float32((p + 0.04166829) * r)
	p = float32((p+0.16666521)*r) + 0.49999994
	return float32(float32(r*r)*p) + r, n
}

// pow2 is 2**n for the low bits of n, between -126 and 127.
func pow2(n uint32) float32 { return math.Float32frombits((n + 127) << 23) }

// expAll32 is exp32 with subnormal results, which need two powers of two.
func expAll32(x float32) float32 {
	const shift = 0x1.8p23
	if x > 89 {
		x = 89
	}
	if x < -104 {
		x = -104
	}
	p, n := expParts32(x)
	h := math.Float32bits(float32((n-shift)*0.5) + shift)
	return float32((p+1)*pow2(h)) * pow2(math.Float32bits(n)-h)
}

// sigmoid is 1/(1+exp(-x)) to the precision of T. A large exponential gives exactly 0, never NaN.
func sigmoid[T Float](x float64) float64 { return 1 / (1 + exp[T](-x)) }

// normal32 returns the standard normal distribution function at x, and exp(-x*x/2).
// The lower tail is computed without cancellation.
func normal32(x float32) (cdf, e float32) {
	e = exp32(x * x * -0.5)
	tail := float32(float32(e*erfcx32(float32(math.Abs(float64(x))))) * 0.5)
	if x > 0 {
		return 1 - tail, e
	}
	return tail, e
}

// erfcx32 approximates exp(z*z)*erfc(z) with z = x/sqrt(2), 0 <= z < 9.5, by a
// polynomial in t = 1/(1+0.45z), times t. It is a minimax fit with a relative error
// below 1.3e-8. For larger z the result stays positive and bounded.
func erfcx32(x float32) float32 {
	t := 1 / (float32(x*(0.45/math.Sqrt2)) + 1)
	p := float32(t*-0.032755406018) + 0.14456699416
	p = float32(p*t) - 0.19458848507
	p = float32(p*t) + 0.0052612187794
	p = float32(p*t) + 0.087353537216
	p = float32(p*t) + 0.063872716317
	p = float32(p*t) + 0.19350162931
	p = float32(p*t) + 0.22463680719
	p = float32(p*t) + 0.25428433653
	p = float32(p*t) + 0.25386663951
	return p * t
}

//go:noinline
func expOf[T Float](x T) T {
	if !single[T]() {
		return T(math.Exp(float64(x)))
	}
	return T(expAll32(float32(x)))
}

//go:noinline
func sigmoidOf[T Float](x T) T { return 1 / (1 + expNear(-x)) }

// tanhOf is the hyperbolic tangent: with e = exp(2|x|)-1 it is e/(e+2), without cancellation.
//
//go:noinline
func tanhOf[T Float](x T) T {
	if !single[T]() {
		return T(math.Tanh(float64(x)))
	}
	a := float32(math.Abs(float64(x)))
	if a > 10 { // 1-tanh(10) is below 2**-28
		a = 10
	}
	p, n := expParts32(a + a)
	s := pow2(math.Float32bits(n))
	e := float32(s*p) + (s - 1)
	return T(math.Copysign(float64(e/(e+2)), float64(x)))
}

//go:noinline
func geluOf[T Float](x T) T {
	if !single[T]() {
		return T(0.5 * float64(x) * math.Erfc(-float64(x)*(math.Sqrt2/2)))
	}
	cdf, _ := normal32(float32(x))
	return x * T(cdf)
}

// geluSlope is the derivative of geluOf: Phi(x) + x*Phi'(x).
//
//go:noinline
func geluSlope[T Float](x T) T {
	const density = 1 / (math.Sqrt2 * math.SqrtPi)
	if !single[T]() {
		v := float64(x)
		pdf := math.Exp(-float64(v*v)/2) * density
		return T(float64(0.5*math.Erfc(-v*(math.Sqrt2/2))) + float64(v*pdf))
	}
	cdf, e := normal32(float32(x))
	return T(cdf) + T(x*T(e*density))
}

const (
	geluScale = 2 * 0.7978845608028653558798921198687637369517 // 2*sqrt(2/pi)
	geluCubic = 0.044715
)

// geluTanhOf is x*sigmoid(u) with u = x*(geluScale + geluScale*geluCubic*x*x).
//
//go:noinline
func geluTanhOf[T Float](x T) T {
	w := T(x*x*(-geluScale*geluCubic)) - geluScale
	return x / (1 + expNear(x*w))
}

// within limits x to [-near, near] in float32, and to [-far, far] in float64. NaN
// stays NaN.
func within[T Float](x T, near, far float64) T {
	if !single[T]() {
		near = far
	}
	if x > T(near) {
		x = T(near)
	}
	if x < -T(near) {
		x = -T(near)
	}
	return x
}

// geluTanhSlope is the derivative of geluTanhOf: s + x*s*(1-s)*u' with s = sigmoid(u), where 1-s is exp(-u)*s. Beyond 10 it
// is as at 10, 0 or 1 but for less than 1e-34 (float64: 20 and 1e-250), so that exp(-u) stays finite.
//
//go:noinline
func geluTanhSlope[T Float](x T) T {
	x = within(x, 10, 20)
	q := T(x * x)
	e := expNear(x * (T(q*(-geluScale*geluCubic)) - geluScale))
	s := 1 / (1 + e)
	du := T(q*(3*geluScale*geluCubic)) + geluScale
	return s + T(T(T(x*s)*T(e*s))*du)
}

//go:noinline
func siluOf[T Float](x T) T { return x / (1 + expNear(-x)) }

// siluSlope is the derivative of siluOf: s + x*s*(1-s) with s = sigmoid(x), where 1-s is exp(-x)*s. Beyond 80 it is as at 80,
// 0 or 1 but for less than 1e-32 (float64: 700 and 1e-300).
//
//go:noinline
func siluSlope[T Float](x T) T {
	x = within(x, 80, 700)
	e := expNear(-x)
	s := 1 / (1 + e)
	return s + T(T(x*s)*T(e*s))
}
