package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// sgdNaive is the pseudocode in the documentation of torch.optim.SGD for one parameter.
func sgdNaive(p, g, buf float64, h SGDHyper) (float64, float64) {
	g = g*h.GradScale + h.WeightDecay*p
	if h.Momentum != 0 {
		if h.First {
			buf = g
		} else {
			buf = h.Momentum*buf + (1-h.Dampening)*g
		}
		if h.Nesterov {
			g += h.Momentum * buf
		} else {
			g = buf
		}
	}
	return p - h.LR*g, buf
}

func TestSGD(t *testing.T) { bothFloats(t, testSGD[float32], testSGD[float64]) }

func testSGD[T Float](t *testing.T) {
	for _, h := range []SGDHyper{
		{LR: 0.1, GradScale: 1},
		{LR: 0.1, WeightDecay: 0.01, GradScale: 0.5},
		{LR: 0.1, Momentum: 0.9, GradScale: 1},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 0.5},
		{LR: 0.1, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01, GradScale: 1},
	} {
		for _, n := range testSizes {
			p, mom := normals[T](n, 1), make([]T, n)
			want, wantMom := float64s(p), make([]float64, n)
			Fill(mom, T(math.NaN())) // the first step does not read it
			for step := range 5 {
				h.First = step == 0
				g := normals[T](n, uint64(10+step))
				before := clone(g)
				for i := range want {
					want[i], wantMom[i] = sgdNaive(want[i], float64(g[i]), wantMom[i], h)
				}
				if h.Momentum == 0 {
					SGD(p, g, nil, h)
				} else {
					SGD(p, g, mom, h)
					requireNear(t, wantMom, mom, 1e-6, 1e-14, "momentum")
				}
				requireNear(t, want, p, 1e-6, 1e-14, fmt.Sprintf("%+v", h))
				requireSame(t, before, g, "g is not changed")
			}
		}
	}
}

// adamNaive is the pseudocode in the documentation of torch.optim.Adam and AdamW for one parameter.
func adamNaive(p, g, m, v float64, h AdamHyper) (float64, float64, float64) {
	g *= h.GradScale
	if h.Decoupled {
		p -= h.LR * h.WeightDecay * p
	} else {
		g += h.WeightDecay * p
	}
	m = h.Beta1*m + (1-h.Beta1)*g
	v = h.Beta2*v + (1-h.Beta2)*g*g
	mHat := m / (1 - math.Pow(h.Beta1, float64(h.Step)))
	vHat := v / (1 - math.Pow(h.Beta2, float64(h.Step)))
	return p - h.LR*mHat/(math.Sqrt(vHat)+h.Eps), m, v
}

func TestAdam(t *testing.T) { bothFloats(t, testAdam[float32], testAdam[float64]) }

func testAdam[T Float](t *testing.T) {
	for _, h := range []AdamHyper{
		{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, GradScale: 1},
		{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.25},
		{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Decoupled: true, GradScale: 1},
		{LR: 0.01, Beta1: 0.3, Beta2: 0.95, Eps: 0.1, GradScale: 1}, // the other branch of lerp
	} {
		for _, n := range testSizes {
			p, m, v := normals[T](n, 1), make([]T, n), make([]T, n)
			want, wantM, wantV := float64s(p), make([]float64, n), make([]float64, n)
			for step := range 5 {
				h.Step = step + 1
				g := normals[T](n, uint64(10+step))
				before := clone(g)
				for i := range want {
					want[i], wantM[i], wantV[i] = adamNaive(want[i], float64(g[i]), wantM[i], wantV[i], h)
				}
				Adam(p, g, m, v, h)
				requireNear(t, wantM, m, 1e-6, 1e-14, "first moment")
				requireNear(t, wantV, v, 1e-6, 1e-14, "second moment")
				requireNear(t, want, p, 3e-6, 1e-13, fmt.Sprintf("%+v", h))
				requireSame(t, before, g, "g is not changed")
			}
		}
	}
}

// TestAdamBF16: the bits are those of Adam with a widened gradient, and of a
// rounded copy of its result.
func TestAdamBF16(t *testing.T) {
	for _, h := range []AdamHyper{
		{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.25, Step: 3},
		{LR: 0.01, Beta1: 0.3, Beta2: 0.95, Eps: 0.1, WeightDecay: 0.1, Decoupled: true, GradScale: 1, Step: 1},
	} {
		for _, n := range testSizes {
			g, p, m, v, out := make([]BF16, n), normals[float32](n, 1), normals[float32](n, 2), filled[float32](n, 0.5), make([]BF16, n)
			F32ToBF16(g, normals[float32](n, 3))
			wide, wantP, wantM, wantV, want := make([]float32, n), clone(p), clone(m), clone(v), make([]BF16, n)
			BF16ToF32(wide, g)
			Adam(wantP, wide, wantM, wantV, h)
			F32ToBF16(want, wantP)
			AdamBF16(p, g, m, v, out, h)
			requireSame(t, wantP, p, "parameters")
			requireSame(t, wantM, m, "first moment")
			requireSame(t, wantV, v, "second moment")
			assert.Equal(t, want, out)
		}
	}
}

// TestSGDBF16: the bits are those of SGD with a widened gradient, and of a rounded copy of its result.
func TestSGDBF16(t *testing.T) {
	for _, h := range []SGDHyper{
		{LR: 0.1, WeightDecay: 0.01, GradScale: 0.5},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 1},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 0.5, First: true},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 0.5, Nesterov: true},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 0.5, Nesterov: true, First: true},
	} {
		for _, n := range testSizes {
			g, p, mom, out := make([]BF16, n), normals[float32](n, 1), normals[float32](n, 2), make([]BF16, n)
			F32ToBF16(g, normals[float32](n, 3))
			wide, wantP, wantMom, want := make([]float32, n), clone(p), clone(mom), make([]BF16, n)
			BF16ToF32(wide, g)
			SGD(wantP, wide, wantMom, h)
			F32ToBF16(want, wantP)
			SGDBF16(p, g, mom, out, h)
			requireSame(t, wantP, p, "parameters")
			requireSame(t, wantMom, mom, "momentum")
			assert.Equal(t, want, out)
		}
	}
}

// TestAdamOrder checks one float32 step against bits computed one operation at a
// time, in PyTorch's order.
func TestAdamOrder(t *testing.T) {
	f := func(x float64) float32 { return float32(x) }
	p, g, m, v := f(0.7), f(0.3), f(0.11), f(0.013)
	gotP, gotM, gotV := []float32{p}, []float32{m}, []float32{v}
	Adam(gotP, []float32{g}, gotM, gotV,
		AdamHyper{LR: 0.003, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, Decoupled: true, Step: 7, GradScale: 1})
	p = f(float64(p) * float64(f(1-0.003*0.1)))                     // p.mul_(1 - lr*weight_decay)
	diff := f(float64(g) - float64(m))                              // m.lerp_(g, 1-beta1)
	m = f(float64(m) + float64(f(float64(f(1-0.9))*float64(diff)))) // rounded twice, as in the kernel
	v = f(float64(v) * float64(f(0.999)))                           // v.mul_(beta2)
	w := f(float64(f(1-0.999)) * float64(g))                        // .addcmul_(g, g, value=1-beta2)
	v = f(float64(v) + float64(f(float64(w)*float64(g))))
	root := f(math.Sqrt(1 - math.Pow(0.999, 7)))
	denom := f(float64(f(float64(f(math.Sqrt(float64(v))))/float64(root))) + float64(f(1e-8)))
	num := f(float64(f(-0.003/(1-math.Pow(0.9, 7)))) * float64(m)) // p.addcdiv_(m, denom, value=-step_size)
	p = f(float64(p) + float64(f(float64(num)/float64(denom))))
	assert.Equal(t, []float32{m, v, p}, []float32{gotM[0], gotV[0], gotP[0]})
}

// TestNoDenormals lets moments decay with a zero gradient, and uses gradients of
// all small sizes: no stored number is subnormal, and without a gradient all decay
// to 0.
func TestNoDenormals(t *testing.T) { bothFloats(t, testNoDenormals[float32], testNoDenormals[float64]) }

func testNoDenormals[T Float](t *testing.T) {
	normal, tiny := smallestNormal[T](), negligible[T]()
	require.Equal(t, float64(ulp[T](0)), float64(normal)*float64(ulp[T](1)), "the smallest normal number")
	require.Equal(t, float64(normal), ulp[T](float64(tiny)), "the last place of the smallest number kept")
	var g []T
	for x := normal / 16; x < 1; x *= 3 {
		g = append(g, x, -x)
	}
	n := len(g)
	p, m, v, mom := normals[T](n, 1), make([]T, n), make([]T, n), make([]T, n)
	step := func(k int) {
		Adam(p, g, m, v, AdamHyper{LR: 0.1, Beta1: 0.9, Beta2: 0.9, Eps: 1e-8, Step: k, GradScale: 1})
		SGD(p, g, mom, SGDHyper{LR: 0.1, Momentum: 0.9, GradScale: 1})
		for _, x := range [][]T{m, v, mom} {
			for _, u := range x {
				if u != 0 && -normal < u && u < normal {
					require.Failf(t, "denormal", "step %d: %g", k, u)
				}
			}
		}
	}
	for k := range 10 {
		step(k + 1)
	}
	clear(g)
	for k := range 8000 {
		step(k + 11)
	}
	for _, x := range [][]T{m, v, mom} {
		require.Equal(t, make([]T, n), x)
	}
}

// TestDenormalSquare: a square that would be subnormal is not added to the second
// moment.
func TestDenormalSquare(t *testing.T) {
	normal := smallestNormal[float32]()
	h := AdamHyper{LR: 0.1, Beta1: 0.9, Beta2: 0.5, Eps: 1e-8, Step: 1, GradScale: 1}
	for _, c := range []struct{ square, want float32 }{{0.75, 2}, {4, 4}} { // in units of the smallest normal number
		g := []float32{float32(math.Sqrt(float64(c.square) * float64(normal)))}
		v := []float32{4 * normal}
		Adam([]float32{1}, g, []float32{0}, v, h)
		assert.InEpsilon(t, c.want*normal, v[0], 1e-6, "square of %g", g[0])
	}
}

// TestDenormalMoments: moments that are subnormal when they are read, as from a
// checkpoint, count as 0.
func TestDenormalMoments(t *testing.T) {
	normal := smallestNormal[float32]()
	g, m, v := []float32{float32(math.Sqrt(4 * float64(normal)))}, []float32{normal / 2}, []float32{normal / 2}
	Adam([]float32{1}, g, m, v, AdamHyper{LR: 0.1, Beta1: 0.9, Beta2: 0.5, Eps: 1e-8, Step: 1, GradScale: 1})
	assert.InEpsilon(t, 2*normal, v[0], 1e-6)
	assert.InEpsilon(t, 0.1*g[0], m[0], 1e-6)
}

func TestLerpIsExactAtBothEnds(t *testing.T) {
	assert.Equal(t, float32(1e8), lerp[float32](1e8, 0.1, 0))
	assert.Equal(t, float32(0.1), lerp[float32](1e8, 0.1, 1))
	assert.Equal(t, float32(2), lerp[float32](1, 3, 0.5))
}

// The kernels may replace the division by the root by a product with its inverse and
// a correction. The bits are those of the division, for all mantissas of the second
// moment's root: with some roots, or many in the long runs.
func TestAdamDividesByTheRoot(t *testing.T) {
	roots := []float32{0.0316227766}
	if reliability.Long(t) {
		roots = append(roots, 0.99999994, 0.7071068)
		rng := rand.New(rand.NewPCG(1, 2))
		for len(roots) < 1000 {
			roots = append(roots, float32(math.Exp2(-6*rng.Float64())))
		}
	}
	for _, s := range isas[:len(isas)-1] {
		withISA(s, func() {
			next, wrong := atomic.Int64{}, atomic.Int64{}
			var workers sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				workers.Go(func() {
					for i := next.Add(1) - 1; i < int64(len(roots)); i = next.Add(1) - 1 {
						wrong.Add(int64(quotientsThatDiffer(roots[i])))
					}
				})
			}
			workers.Wait()
			require.Zero(t, wrong.Load(), s.name)
		})
	}
}

func TestLongAdamDividesByTheRoot(t *testing.T) { reliability.AsLong(t, TestAdamDividesByTheRoot) }

// quotientsThatDiffer compares steps of Adam with divisions, for all 2**23 mantissas.
// A quotient is in [1, 2), and a step is 1/(quotient-1), which shows its last bit.
func quotientsThatDiffer(root float32) (differ int) {
	const chunk = 1 << 13
	s := adamScalarsOf[float32](AdamHyper{Step: 1, GradScale: 1})
	s.step, s.root, s.inverse, s.eps, s.in1, s.b2, s.in2 = 1, root, 1/root, -1, 0, 1, 0
	p, g, m, v := make([]float32, chunk), make([]float32, chunk), filled[float32](chunk, 1), make([]float32, chunk)
	roots := make([]float32, chunk)
	_, exponent := math.Frexp(float64(root))
	scale := float32(math.Ldexp(1, exponent-1))
	for mantissa := uint32(0); mantissa < 1<<23; mantissa += chunk {
		for i := range v {
			a := scale * math.Float32frombits(0x3f800000+mantissa+uint32(i))
			if a < root {
				a *= 2
			}
			roots[i], v[i] = a, a*a
		}
		clear(p)
		vecAdam(p, g, m, v, s.step, s.root, s.inverse, s.eps, s.in1, s.b2, s.in2, s.scale, s.tiny, s.least, s.normal, s.wd, s.keep)
		for i, a := range roots {
			if 1/(a/root-1) != p[i] {
				differ++
			}
		}
	}
	return differ
}
