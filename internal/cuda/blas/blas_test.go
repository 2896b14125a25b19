package blas_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// rig is an emulated device with a handle, a stream, and memory for matrices.
type rig struct {
	t    *testing.T
	dev  *cuda.Device
	h    *blas.Handle
	s    *cuda.Stream
	pool *cuda.Pool
	rnd  *rand.Rand
}

func newRig(t *testing.T) *rig {
	dev, err := emu.Start(t, emu.Config{}).Open(0)
	require.NoError(t, err)
	require.NoError(t, dev.Lock())
	lib, err := blas.Load()
	require.NoError(t, err)
	r := &rig{t: t, dev: dev, pool: dev.NewPool("test"), rnd: rand.New(rand.NewPCG(1, 2))}
	r.h, err = lib.New(dev, r.pool)
	require.NoError(t, err)
	r.s, err = dev.NewStream("compute", 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.h.Close())
		require.NoError(t, r.pool.Close())
		require.NoError(t, r.s.Close())
		dev.Unlock()
	})
	return r
}

// vec holds numbers on the device, and their values rounded to the type.
type vec struct {
	r    *rig
	t    blas.Type
	v    []float64
	ptr  cuda.Ptr // of v[0]
	base cuda.Ptr
}

// vec makes n numbers, skew elements after an aligned address.
func (r *rig) vec(t blas.Type, n, skew int) *vec {
	v := &vec{r: r, t: t, v: make([]float64, n)}
	for i := range v.v {
		v.v[i] = rounded(t, r.rnd.NormFloat64())
	}
	var err error
	v.base, err = r.pool.Alloc(r.s, max(n+skew, 1)*size(t))
	require.NoError(r.t, err)
	v.ptr = v.base + cuda.Ptr(skew*size(t))
	r.t.Cleanup(func() { require.NoError(r.t, r.pool.Free(v.base)) })
	v.upload()
	return v
}

func (v *vec) upload() { require.NoError(v.r.t, v.r.s.Upload(v.ptr, encode(v.t, v.v))) }

func (v *vec) download() []float64 {
	b := make([]byte, len(v.v)*size(v.t))
	require.NoError(v.r.t, v.r.s.Download(b, v.ptr))
	require.NoError(v.r.t, v.r.s.Sync())
	return decode(v.t, b)
}

// want computes the expected product in float64, from the values before it.
func want(g *blas.Gemm, a, b, c, bias, aux []float64) (out, newBias, newAux []float64) {
	out = append([]float64(nil), c...)
	newBias, newAux = append([]float64(nil), bias...), append([]float64(nil), aux...)
	at := func(x []float64, base, ld, i, j int, t bool) float64 {
		if t {
			i, j = j, i
		}
		return x[base+i*ld+j]
	}
	for q := range max(g.Batch, 1) {
		for i := range g.M {
			for j := range g.N {
				sum := 0.0
				for k := range g.K {
					sum += at(a, q*g.StrideA, g.LDA, i, k, g.TransA) * at(b, q*g.StrideB, g.LDB, k, j, g.TransB)
				}
				p := &out[q*g.StrideC+i*g.LDC+j]
				sum = g.Alpha*sum + zero(g.Beta, *p)
				if g.Epilogue&blas.Bias != 0 {
					sum += bias[q*g.StrideBias+j]
				}
				switch g.Epilogue &^ blas.Bias {
				case blas.ReLU:
					sum = max(sum, 0)
				case blas.GELUAux:
					newAux[i*g.LDAux+j] = sum
					fallthrough
				case blas.GELU:
					sum = gelu(sum)
				case blas.DGELU, blas.DGELUBias:
					sum *= geluSlope(aux[i*g.LDAux+j])
				}
				*p = sum
			}
		}
	}
	switch g.Epilogue {
	case blas.DGELUBias:
		for j := range g.N {
			newBias[j] = 0
			for i := range g.M {
				newBias[j] += out[i*g.LDC+j]
			}
		}
	case blas.BiasGradA:
		for i := range max(g.Batch, 1) * g.M {
			q, i := i/g.M, i%g.M
			sum := &newBias[q*g.StrideBias+i]
			*sum = 0
			for k := range g.K {
				*sum += at(a, q*g.StrideA, g.LDA, i, k, g.TransA)
			}
		}
	}
	return out, newBias, newAux
}

// zero is beta·c, but 0 for beta = 0 even if c is NaN.
func zero(beta, c float64) float64 {
	if beta == 0 {
		return 0
	}
	return beta * c
}

func gelu(x float64) float64 {
	return .5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+.044715*x*x*x)))
}

func geluSlope(x float64) float64 {
	const h = 1e-5
	return (gelu(x+h) - gelu(x-h)) / (2 * h)
}

// product makes operands for g, multiplies, and compares all memory that may be
// written, also between the rows. It returns false if this GPU's cuBLASLt does not have the product.
func (r *rig) product(g *blas.Gemm, skew int) bool {
	r.t.Helper()
	rows := func(m, ld, batch, stride int) int { return (max(batch, 1)-1)*stride + m*ld }
	am, bm := g.M, g.K
	if g.TransA {
		am = g.K
	}
	if g.TransB {
		bm = g.N
	}
	a, b := r.vec(g.Type, rows(am, g.LDA, g.Batch, g.StrideA), skew), r.vec(g.Type, rows(bm, g.LDB, g.Batch, g.StrideB), skew)
	c, bias := r.vec(g.Type, rows(g.M, g.LDC, g.Batch, g.StrideC), skew), r.vec(g.Type, rows(1, max(g.M, g.N), g.Batch, g.StrideBias), skew)
	aux := r.vec(g.Type, g.M*g.LDAux, 0)
	if g.Beta == 0 {
		for i := range g.M {
			c.v[i*g.LDC] = math.NaN()
		}
		c.upload()
	}
	g.A, g.B, g.C, g.Bias, g.Aux = a.ptr, b.ptr, c.ptr, bias.ptr, aux.ptr
	err := r.h.MatMul(r.s, g)
	if emu.OnGPU() && blas.IsUnsupported(err) && g.Epilogue > blas.None {
		r.t.Logf("not in this cuBLASLt: %v", g) // this cuBLASLt does not have it; package tensor/cuda has a kernel for it
		return false
	}
	require.NoError(r.t, err, "%v", g)
	out, newBias, newAux := want(g, a.v, b.v, c.v, bias.v, aux.v)
	near(r.t, g.Type, g.K, out, c.download(), g)
	near(r.t, g.Type, max(g.K, g.M), newBias, bias.download(), g)
	near(r.t, g.Type, g.K, newAux, aux.download(), g)
	return true
}

func near(t *testing.T, typ blas.Type, k int, want, got []float64, g *blas.Gemm) {
	t.Helper()
	eps := map[blas.Type]float64{blas.Float32: 1e-6, blas.Float64: 1e-13, blas.BFloat16: 1e-2, blas.Float16: 2e-3}[typ]
	if g.TF32 || g.Epilogue > 0 && g.Epilogue&(blas.GELU|blas.DGELU) != 0 {
		eps = max(eps, 1e-3) // the precision of cuBLASLt's tanh is not documented
	}
	eps *= math.Sqrt(float64(k))
	for i := range want {
		if math.IsNaN(want[i]) && math.IsNaN(got[i]) {
			continue
		}
		require.InDelta(t, want[i], got[i], eps*(1+math.Abs(want[i])), "element %d of %v", i, g)
	}
}

func TestMatMul(t *testing.T) {
	r := newRig(t)
	for _, typ := range []blas.Type{blas.Float32, blas.Float64, blas.BFloat16, blas.Float16} {
		for _, shape := range [][3]int{{1, 1, 1}, {5, 7, 3}, {16, 24, 32}, {33, 10, 65}, {1, 64, 17}} {
			for trans := range 4 {
				for _, extra := range []int{0, 3} {
					g := blas.Gemm{Type: typ, TransA: trans&1 != 0, TransB: trans&2 != 0, M: shape[0], N: shape[1], K: shape[2],
						Alpha: 1, Beta: float64(extra) / 2, LDA: shape[2] + extra, LDB: shape[1] + extra, LDC: shape[1] + extra}
					if g.TransA {
						g.LDA = g.M + extra
					}
					if g.TransB {
						g.LDB = g.K + extra
					}
					r.product(&g, extra%2)
				}
			}
		}
	}
}

func TestBatch(t *testing.T) {
	r := newRig(t)
	g := blas.Gemm{Type: blas.Float32, M: 5, N: 6, K: 7, Alpha: .5, Beta: 1, LDA: 7, LDB: 6, LDC: 6, Batch: 3, StrideA: 40, StrideB: 42,
		StrideC: 30}
	r.product(&g, 0)
	g.StrideB = 0 // one B for all
	r.product(&g, 0)
	g.TransA, g.LDA, g.StrideA, g.StrideC = true, 5, 35, 64
	r.product(&g, 1)
}

// Products of a batch have biases, or gradients of them, that are as far from each other as StrideBias says, also when products of the same
// shape had others before. The alignment of the first one is not that of all.
func TestBatchOfBiases(t *testing.T) {
	r := newRig(t)
	for _, typ := range []blas.Type{blas.Float32, blas.BFloat16} {
		for _, e := range []blas.Epilogue{blas.Bias, blas.ReLUBias, blas.BiasGradA} {
			for _, stride := range []int{64, 67, 65, 128} {
				r.product(&blas.Gemm{Type: typ, TransA: e == blas.BiasGradA, M: 64, N: 64, K: 64, Alpha: 1, LDA: 64, LDB: 64, LDC: 64,
					Batch: 3, StrideA: 4096, StrideB: 4096, StrideC: 4096, Epilogue: e, StrideBias: stride}, 0)
			}
		}
	}
}

// If cuBLASLt refuses the gradients of the biases of a batch, whatever the status, another kernel computes them; the product alone says
// what is wrong with it.
func TestRefusedBatchOfBiases(t *testing.T) {
	emu.Only(t, "which products have no algorithm differs between cuBLASLt's versions")
	r := newRig(t)
	x := r.vec(blas.Float32, 256, 0)
	g := blas.Gemm{Type: blas.Float32, TransA: true, M: 8, N: 8, K: 8, Alpha: 1, LDA: 8, LDB: 8, LDC: 8, A: x.ptr, B: x.ptr, C: x.ptr,
		Batch: 2, StrideC: 64, Bias: x.ptr, Epilogue: blas.BiasGradA, StrideBias: 4} // gradients that overlap
	require.True(t, blas.IsUnsupported(r.h.MatMul(r.s, &g)))
	g.StrideBias, g.LDC = 8, 7 // rows that overlap
	require.True(t, blas.IsUnsupported(r.h.MatMul(r.s, &g)))
	g.Epilogue = blas.None
	require.ErrorContains(t, r.h.MatMul(r.s, &g), "CUBLAS_STATUS_INVALID_VALUE")
}

// The gradient of a bias is unsupported if it would leave the device idle; another kernel computes it then. Which sums cuBLASLt cuts into
// parts differs between GPUs: where it has an algorithm, the gradient is right.
func TestIdleBiasGradient(t *testing.T) {
	r := newRig(t)
	for _, k := range []int{64, 4096} {
		a, b, c, bias := r.vec(blas.BFloat16, 8*k, 0), r.vec(blas.BFloat16, 8*k, 0), r.vec(blas.BFloat16, 64, 0), r.vec(blas.BFloat16, 8, 0)
		g := &blas.Gemm{Type: blas.BFloat16, TransA: true, M: 8, N: 8, K: k, Alpha: 1, A: a.ptr, B: b.ptr, C: c.ptr, LDA: 8, LDB: 8, LDC: 8,
			Epilogue: blas.BiasGradA, Bias: bias.ptr}
		err := r.h.MatMul(r.s, g)
		if !emu.OnGPU() {
			require.Equal(t, k == 4096, blas.IsUnsupported(err), "%d rows", k)
		}
		if blas.IsUnsupported(err) {
			continue
		}
		require.NoError(t, err, "%d rows", k)
		_, sums, _ := want(g, a.v, b.v, c.v, bias.v, nil)
		near(t, g.Type, k, sums, bias.download(), g)
	}
}

func TestEpilogues(t *testing.T) {
	r := newRig(t)
	for _, typ := range []blas.Type{blas.Float32, blas.BFloat16, blas.Float16} {
		for _, e := range []blas.Epilogue{blas.None, blas.ReLU, blas.Bias, blas.ReLUBias, blas.GELU, blas.GELUBias, blas.GELUAux,
			blas.GELUAuxBias, blas.DGELU, blas.DGELUBias, blas.BiasGradA} {
			for _, n := range []int{8, 13} {
				r.product(&blas.Gemm{Type: typ, TransA: e == blas.BiasGradA, M: 11, N: n, K: 9, Alpha: 1, LDA: 11, LDB: n, LDC: n,
					Epilogue: e, LDAux: (n + 7) &^ 7}, 0)
			}
		}
	}
}

// A bias inside a larger tensor is aligned only to its elements, while the matrices
// are aligned to vectors.
func TestBiasAnywhere(t *testing.T) {
	r := newRig(t)
	const n = 64
	for _, typ := range []blas.Type{blas.Float32, blas.BFloat16} {
		a, b, c, bias := r.vec(typ, n*n, 0), r.vec(typ, n*n, 0), r.vec(typ, n*n, 0), r.vec(typ, n, 1)
		g := blas.Gemm{Type: typ, M: n, N: n, K: n, Alpha: 1, LDA: n, LDB: n, LDC: n, Epilogue: blas.Bias, A: a.ptr, B: b.ptr, C: c.ptr,
			Bias: bias.ptr}
		require.NoError(t, r.h.MatMul(r.s, &g))
		out, _, _ := want(&g, a.v, b.v, c.v, bias.v, nil)
		near(t, typ, n, out, c.download(), &g)
	}
}

// A product without an algorithm returns the error each time; cuBLASLt is asked
// only once.
func TestUnsupported(t *testing.T) {
	emu.Only(t, "which products have no algorithm differs between cuBLASLt's versions")
	r := newRig(t)
	x := r.vec(blas.Float64, 64, 0)
	g := blas.Gemm{Type: blas.Float64, M: 8, N: 8, K: 8, Alpha: 1, LDA: 8, LDB: 8, LDC: 8, A: x.ptr, B: x.ptr, C: x.ptr, Epilogue: blas.Bias,
		Bias: x.ptr}
	for range 2 {
		err := r.h.MatMul(r.s, &g)
		require.True(t, blas.IsUnsupported(err), "%v", err)
		require.ErrorContains(t, err, "CUBLAS_STATUS_NOT_SUPPORTED (15): float64 NN 8x8x8 bias")
	}
	g.Epilogue, g.LDC = blas.None, 7 // rows that overlap
	err := r.h.MatMul(r.s, &g)
	require.ErrorContains(t, err, "CUBLAS_STATUS_INVALID_VALUE")
	require.False(t, blas.IsUnsupported(err))
}

// Float32 stays float32 unless TensorFloat-32 is asked for.
func TestTF32(t *testing.T) {
	r := newRig(t)
	const n = 128 // smaller ones may not use it
	g := blas.Gemm{Type: blas.Float32, M: n, N: n, K: n, Alpha: 1, LDA: n, LDB: n, LDC: n}
	a, b, c := r.vec(blas.Float32, n*n, 0), r.vec(blas.Float32, n*n, 0), r.vec(blas.Float32, n*n, 0)
	g.A, g.B, g.C = a.ptr, b.ptr, c.ptr
	require.NoError(t, r.h.MatMul(r.s, &g))
	exact := c.download()
	g.TF32 = true
	require.NoError(t, r.h.MatMul(r.s, &g))
	rough := c.download()
	require.NotEqual(t, exact, rough)
	near(t, blas.Float32, n, exact, rough, &g)
}

// A product that was seen before allocates nothing on the heap or the device.
func TestSteady(t *testing.T) {
	r := newRig(t)
	var gs []blas.Gemm
	for _, e := range []blas.Epilogue{blas.None, blas.Bias, blas.GELUAuxBias} {
		for _, typ := range []blas.Type{blas.Float32, blas.BFloat16} {
			x := r.vec(typ, 8*64, 0)
			gs = append(gs, blas.Gemm{Type: typ, M: 8, N: 8, K: 8, Alpha: 1, LDA: 8, LDB: 8, LDC: 8, Epilogue: e, LDAux: 8,
				A: x.ptr, B: x.ptr, C: x.ptr + 512, Bias: x.ptr, Aux: x.ptr + 256})
		}
	}
	gs = slices.DeleteFunc(gs, func(g blas.Gemm) bool { return emu.OnGPU() && blas.IsUnsupported(r.h.MatMul(r.s, &g)) })
	step := func() {
		for i := range gs {
			if err := r.h.MatMul(r.s, &gs[i]); err != nil {
				panic(err)
			}
		}
	}
	step()
	before := r.dev.Stats()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	for range 100 {
		step()
	}
	runtime.ReadMemStats(&m1)
	if !reliability.Racing {
		require.Less(t, m1.Mallocs-m0.Mallocs, uint64(100), "allocations of 100 steps")
	}
	after := r.dev.Stats()
	require.Equal(t, before.Mallocs, after.Mallocs)
	require.Equal(t, before.Syncs, after.Syncs)
	require.Equal(t, int64(100*len(gs)), after.Launches-before.Launches)
	require.NoError(t, r.s.Sync())
}

// Streams have their own workspaces, so products may run at the same time.
func TestStreams(t *testing.T) {
	r := newRig(t)
	other, err := r.dev.NewStream("other", 0)
	require.NoError(t, err)
	const n = 32
	a, b := r.vec(blas.Float32, n*n, 0), r.vec(blas.Float32, n*n, 0)
	first := r.vec(blas.Float32, n*n, 0)
	var outs []*vec
	for range 8 {
		outs = append(outs, r.vec(blas.Float32, n*n, 0))
	}
	require.NoError(t, r.s.Sync())
	g := blas.Gemm{Type: blas.Float32, M: n, N: n, K: n, Alpha: 1, LDA: n, LDB: n, LDC: n, A: a.ptr, B: b.ptr, C: first.ptr}
	require.NoError(t, r.h.MatMul(r.s, &g))
	for i, o := range outs {
		g.C = o.ptr
		require.NoError(t, r.h.MatMul([]*cuda.Stream{r.s, other}[i%2], &g))
	}
	require.NoError(t, r.dev.Sync())
	for _, o := range outs {
		require.Equal(t, first.download(), o.download())
	}
	require.NoError(t, other.Close())
}

func ExampleGemm_String() {
	fmt.Println(&blas.Gemm{Type: blas.BFloat16, TransB: true, M: 64, N: 512, K: 784, Batch: 1, Epilogue: blas.Bias})
	// Output: bfloat16 NT 64x512x784 bias
}
