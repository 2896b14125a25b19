package kernel

import "math"

// The optimizers work in place and in T, in PyTorch's order of operations. Hyperparameters, and what is derived from them,
// are computed in float64 and rounded to T once, as PyTorch does with Python scalars.
//
// One thing differs. Arithmetic on denormal numbers is many times slower on some processors, and the moments of parameters
// whose gradient is 0 would sink into them. So gradients, momentum and first moments below 2**-103 (1e-31) in float32,
// and 2**-970 in float64, count as 0, and so do squares and second moments below the smallest normal number: those that are read (a checkpoint may hold them) and those
// that are written.

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
	lr, wd, scale, tiny := T(h.LR), T(h.WeightDecay), T(h.GradScale), negligible[T]()
	if h.Momentum == 0 {
		k := vecSgd(p, g, lr, wd, scale, tiny)
		p = p[k:]
		g = g[k:][:len(p)]
		for i := range p {
			d := T(flush(g[i], tiny)*scale) + T(wd*p[i])
			p[i] -= T(lr * d)
		}
		return
	}
	mu, in := T(h.Momentum), T(1-h.Dampening)
	k := vecSGD(p, g, mom, lr, wd, scale, tiny, mu, in, h)
	p = p[k:]
	g, mom = g[k:][:len(p)], mom[k:][:len(p)]
	for i := range p {
		d := T(flush(g[i], tiny)*scale) + T(wd*p[i])
		m := d
		if !h.First {
			m = T(mu*flush(mom[i], tiny)) + T(in*d)
		}
		m = flush(m, tiny)
		mom[i] = m
		if h.Nesterov {
			m = d + T(mu*m)
		}
		p[i] -= T(lr * m)
	}
}

// vecSGD runs the assembly for the kind of step.
func vecSGD[T Float](p, g, mom []T, lr, wd, scale, tiny, mu, in T, h SGDHyper) int {
	switch {
	case h.First && h.Nesterov:
		return vecMomentumFirstNesterov(p, g, mom, lr, wd, scale, tiny, mu, in)
	case h.First:
		return vecMomentumFirst(p, g, mom, lr, wd, scale, tiny, mu, in)
	case h.Nesterov:
		return vecMomentumNesterov(p, g, mom, lr, wd, scale, tiny, mu, in)
	}
	return vecMomentum(p, g, mom, lr, wd, scale, tiny, mu, in)
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
	t := float64(h.Step)
	step := T(-h.LR / (1 - math.Pow(h.Beta1, t)))
	root := T(math.Sqrt(1 - math.Pow(h.Beta2, t)))
	in1, b2, in2, eps := T(1-h.Beta1), T(h.Beta2), T(1-h.Beta2), T(h.Eps)
	scale, tiny, normal := T(h.GradScale), negligible[T](), smallestNormal[T]()
	least := T(math.Sqrt(2 * float64(normal) / (1 - h.Beta2))) // squares of smaller gradients are denormal
	wd, keep := T(h.WeightDecay), T(1)
	if h.Decoupled {
		wd, keep = 0, T(1-float64(h.LR*h.WeightDecay))
	}
	k := 0
	if in1 < 0.5 { // the two branches of lerp
		k = vecAdam(p, g, m, v, step, root, eps, in1, b2, in2, scale, tiny, least, normal, wd, keep)
	} else {
		k = vecAdamHigh(p, g, m, v, step, root, eps, 1-in1, b2, in2, scale, tiny, least, normal, wd, keep)
	}
	p = p[k:]
	g, m, v = g[k:][:len(p)], m[k:][:len(p)], v[k:][:len(p)]
	for i := range p {
		d := T(flush(g[i], tiny)*scale) + T(wd*p[i])
		x := T(p[i] * keep)
		a := flush(lerp(flush(m[i], tiny), d, in1), tiny)
		d = flush(d, least)
		b := flush(T(flush(v[i], normal)*b2)+T(T(in2*d)*d), normal)
		m[i], v[i] = a, b
		p[i] = x + T(step*a)/(T(math.Sqrt(float64(b)))/root+eps)
	}
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
