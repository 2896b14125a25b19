package kernel

import "math"

// The optimizers work in place and in T, in PyTorch's order of operations.
// Hyperparameters, and numbers derived from them, are computed in float64 and
// rounded to T once, as PyTorch does with Python scalars.
//
// One thing differs from PyTorch. Arithmetic on subnormal numbers is many times
// slower on some processors, and the moments of parameters with a gradient of 0
// would become subnormal. So gradients, momentum and first moments below 2**-103
// (1e-31) in float32, and below 2**-970 in float64, count as 0. So do squares and
// second moments below the smallest normal number. This is so for numbers that are
// read (a checkpoint may hold them) and for those that are written.

// SGDHyper holds the hyperparameters of one step of [SGD].
type SGDHyper struct {
	LR          float64 // learning rate
	Momentum    float64 // 0 for plain SGD
	Dampening   float64 // the gradient enters the momentum times 1-Dampening
	WeightDecay float64 // L2: WeightDecay*p is added to the gradient
	Nesterov    bool
	First       bool    // the first step: the momentum starts as the gradient
	GradScale   float64 // multiplies the gradient first (clipping); 1 for none
}

// SGD makes one step of torch.optim.SGD on parameters p with gradients g:
//
//	g = GradScale*g + WeightDecay*p
//	mom = Momentum*mom + (1-Dampening)*g     (First: mom = g)
//	p -= LR*mom                              (Nesterov: p -= LR*(g + Momentum*mom))
//
// Without momentum it is p -= LR*g, and mom may be nil. g is not changed.
func SGD[T Float](p, g, mom []T, h SGDHyper) {
	s := sgdScalarsOf[T](h)
	k := 0
	if h.Momentum == 0 {
		k = vecSgd(p, g, s.lr, s.wd, s.scale, s.tiny)
		mom = nil
	} else {
		k = vecSGD(p, g, mom, s, h)
		mom = mom[k:]
	}
	p = p[k:]
	g = g[k:][:len(p)]
	for i := range p {
		p[i] = s.next(p[i], g[i], mom, i, h)
	}
}

// SGDBF16 is [SGD] for parameters in bfloat16 with masters in float32: g is widened, and the new p is rounded to out.
func SGDBF16(p []float32, g []BF16, mom []float32, out []BF16, h SGDHyper) {
	s := sgdScalarsOf[float32](h)
	k := 0
	if h.Momentum == 0 {
		k = vecSgdBF16(p, g, out, s.lr, s.wd, s.scale, s.tiny)
		mom = nil
	} else {
		k = vecSGDBF16(p, g, mom, out, s, h)
		mom = mom[k:]
	}
	p = p[k:]
	g, out = g[k:][:len(p)], out[k:][:len(p)]
	for i := range p {
		p[i] = s.next(p[i], g[i].Float32(), mom, i, h)
		out[i] = ToBF16(p[i])
	}
}

// sgdScalars holds the numbers that are the same for all elements of a step of SGD.
type sgdScalars[T Float] struct {
	lr, wd, scale, tiny T
	mu, in              T
}

func sgdScalarsOf[T Float](h SGDHyper) sgdScalars[T] {
	return sgdScalars[T]{lr: T(h.LR), wd: T(h.WeightDecay), scale: T(h.GradScale), tiny: negligible[T](), mu: T(h.Momentum),
		in: T(1 - h.Dampening)}
}

// next is the step of one element, which updates element i of mom if that is not nil.
func (s *sgdScalars[T]) next(p, g T, mom []T, i int, h SGDHyper) T {
	d := T(flush(g, s.tiny)*s.scale) + T(s.wd*p)
	if mom == nil {
		return p - T(s.lr*d)
	}
	m := d
	if !h.First {
		m = T(s.mu*flush(mom[i], s.tiny)) + T(s.in*d)
	}
	m = flush(m, s.tiny)
	mom[i] = m
	if h.Nesterov {
		m = d + T(s.mu*m)
	}
	return p - T(s.lr*m)
}

// vecSGD runs the assembly for the kind of step with momentum.
func vecSGD[T Float](p, g, mom []T, s sgdScalars[T], h SGDHyper) int {
	switch {
	case h.First && h.Nesterov:
		return vecMomentumFirstNesterov(p, g, mom, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
	case h.First:
		return vecMomentumFirst(p, g, mom, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
	case h.Nesterov:
		return vecMomentumNesterov(p, g, mom, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
	}
	return vecMomentum(p, g, mom, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
}

func vecSGDBF16(p []float32, g []BF16, mom []float32, out []BF16, s sgdScalars[float32], h SGDHyper) int {
	switch {
	case h.First && h.Nesterov:
		return vecMomentumFirstNesterovBF16(p, g, mom, out, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
	case h.First:
		return vecMomentumFirstBF16(p, g, mom, out, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
	case h.Nesterov:
		return vecMomentumNesterovBF16(p, g, mom, out, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
	}
	return vecMomentumBF16(p, g, mom, out, s.lr, s.wd, s.scale, s.tiny, s.mu, s.in)
}

// AdamHyper holds the hyperparameters of one step of [Adam].
type AdamHyper struct {
	LR           float64 // learning rate
	Beta1, Beta2 float64 // decay rates of the moments
	Eps          float64
	WeightDecay  float64
	Decoupled    bool    // AdamW: the decay acts on the parameters, not on the gradient
	Step         int     // the number of this step, from 1
	GradScale    float64 // multiplies the gradient first (clipping); 1 for none
}

// Adam makes one step of torch.optim.Adam (Kingma and Ba 2015), or of AdamW (Loshchilov and Hutter 2019) if Decoupled, on parameters p
// with gradients g and moments m and v:
//
//	g = GradScale*g + WeightDecay*p          (Decoupled: g = GradScale*g, p *= 1 - LR*WeightDecay)
//	m += (1-Beta1)*(g-m)
//	v = Beta2*v + (1-Beta2)*g*g
//	p -= LR/(1-Beta1**Step) * m / (sqrt(v)/sqrt(1-Beta2**Step) + Eps)
//
// g is not changed.
func Adam[T Float](p, g, m, v []T, h AdamHyper) {
	s := adamScalarsOf[T](h)
	k := 0
	if s.in1 < 0.5 { // the two branches of lerp
		k = vecAdam(p, g, m, v, s.step, s.root, s.inverse, s.eps, s.in1, s.b2, s.in2, s.scale, s.tiny, s.least, s.normal, s.wd, s.keep)
	} else {
		k = vecAdamHigh(p, g, m, v, s.step, s.root, s.inverse, s.eps, 1-s.in1, s.b2, s.in2, s.scale, s.tiny, s.least, s.normal, s.wd, s.keep)
	}
	p = p[k:]
	g, m, v = g[k:][:len(p)], m[k:][:len(p)], v[k:][:len(p)]
	for i := range p {
		p[i], m[i], v[i] = s.next(p[i], g[i], m[i], v[i])
	}
}

// AdamBF16 is [Adam] for parameters in bfloat16 with masters in float32: g is widened, and the new p is rounded to out.
func AdamBF16(p []float32, g []BF16, m, v []float32, out []BF16, h AdamHyper) {
	s := adamScalarsOf[float32](h)
	k := 0
	if s.in1 < 0.5 {
		k = vecAdamBF16(p, g, m, v, out, s.step, s.root, s.inverse, s.eps, s.in1, s.b2, s.in2, s.scale, s.tiny, s.least, s.normal, s.wd, s.keep)
	} else {
		k = vecAdamHighBF16(p, g, m, v, out, s.step, s.root, s.inverse, s.eps, 1-s.in1, s.b2, s.in2, s.scale, s.tiny, s.least, s.normal,
			s.wd, s.keep)
	}
	p = p[k:]
	g, m, v, out = g[k:][:len(p)], m[k:][:len(p)], v[k:][:len(p)], out[k:][:len(p)]
	for i := range p {
		p[i], m[i], v[i] = s.next(p[i], g[i].Float32(), m[i], v[i])
		out[i] = ToBF16(p[i])
	}
}

// adamScalars holds the numbers that are the same for all elements of a step of
// Adam.
type adamScalars[T Float] struct {
	step, root, eps     T
	inverse             T // 1/root
	in1, b2, in2        T
	scale, wd, keep     T
	tiny, least, normal T
}

func adamScalarsOf[T Float](h AdamHyper) adamScalars[T] {
	t, normal := float64(h.Step), smallestNormal[T]()
	s := adamScalars[T]{
		step: T(-h.LR / (1 - math.Pow(h.Beta1, t))), root: T(math.Sqrt(1 - math.Pow(h.Beta2, t))), eps: T(h.Eps),
		in1: T(1 - h.Beta1), b2: T(h.Beta2), in2: T(1 - h.Beta2),
		scale: T(h.GradScale), wd: T(h.WeightDecay), keep: 1,
		tiny: negligible[T](), normal: normal,
		least: T(math.Sqrt(2 * float64(normal) / (1 - h.Beta2))), // squares of smaller gradients are subnormal
	}
	s.inverse = 1 / s.root
	if h.Decoupled {
		s.wd, s.keep = 0, T(1-float64(h.LR*h.WeightDecay))
	}
	return s
}

// next is the step of one element.
func (s *adamScalars[T]) next(p, g, m, v T) (T, T, T) {
	d := T(flush(g, s.tiny)*s.scale) + T(s.wd*p)
	x := T(p * s.keep)
	m = flush(lerp(flush(m, s.tiny), d, s.in1), s.tiny)
	d = flush(d, s.least)
	v = flush(T(flush(v, s.normal)*s.b2)+T(T(s.in2*d)*d), s.normal)
	return x + T(s.step*m)/(T(math.Sqrt(float64(v)))/s.root+s.eps), m, v
}

// lerp is a + w*(b-a), PyTorch's linear interpolation, which is exact at both ends.
func lerp[T Float](a, b, w T) T {
	if w < 0.5 {
		return a + T(w*(b-a))
	}
	return b - T((b-a)*(1-w))
}

// flush returns x, or 0 if |x| < limit.
func flush[T Float](x, limit T) T {
	if -limit < x && x < limit {
		return 0
	}
	return x
}

// smallestNormal returns the smallest positive number of T that is not denormal.
func smallestNormal[T Float]() T {
	if single[T]() {
		return T(0x1p-126)
	}
	return T(math.Float64frombits(1 << 52))
}

// negligible returns the smallest number whose last place is not denormal, so that differences of larger numbers are not
// either.
func negligible[T Float]() T {
	if single[T]() {
		return T(0x1p-103)
	}
	return T(math.Ldexp(1, -970))
}
