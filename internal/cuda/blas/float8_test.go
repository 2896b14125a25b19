package blas_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/blas"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

// codes puts n numbers of 0.5, 1, 2 and -1 on the device, as 8-bit floats.
func (r *rig) codes(f blas.Float8, n int) (cuda.Ptr, []float64) {
	of := map[blas.Float8][4]byte{blas.E4M3: {0x30, 0x38, 0x40, 0xb8}, blas.E5M2: {0x38, 0x3c, 0x40, 0xbc}}[f]
	b, v := make([]byte, n), make([]float64, n)
	for i := range b {
		k := r.rnd.IntN(4)
		b[i], v[i] = of[k], [4]float64{0.5, 1, 2, -1}[k]
	}
	p, err := r.pool.Alloc(r.s, n)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, r.pool.Free(p)) })
	require.NoError(r.t, r.s.Upload(p, b))
	require.NoError(r.t, r.s.Sync())
	return p, v
}

// float8 returns a product [m, 32] over 48 and the values of its operands.
func (r *rig) float8(m int, a8, b8 blas.Float8) (g *blas.Gemm, a, b []float64) {
	g = &blas.Gemm{Type: blas.Float32, TransB: true, M: m, N: 32, K: 48, Alpha: 1, LDA: 48, LDB: 48, LDC: 32, Batch: 1, A8: a8, B8: b8}
	g.A, a = r.codes(a8, m*48)
	g.B, b = r.codes(b8, 32*48)
	return g, a, b
}

// Products of 8-bit floats are those of their values and scales, also if the next
// call has other addresses.
func TestFloat8(t *testing.T) {
	r := newRig(t)
	for _, perRow := range []bool{false, true} {
		for _, a8 := range []blas.Float8{blas.E4M3, blas.E5M2} {
			const m = 19
			g, a, b := r.float8(m, a8, blas.E4M3)
			g.PerRow = perRow
			for range 2 {
				as, bs, c := r.vec(blas.Float32, m, 0), r.vec(blas.Float32, 32, 0), r.vec(blas.Float32, m*32, 0)
				g.ScaleA, g.ScaleB, g.C = as.ptr, bs.ptr, c.ptr
				err := r.h.MatMul(r.s, g)
				if emu.OnGPU() && blas.IsUnsupported(err) {
					t.Logf("not on this GPU: %v", g)
					continue
				}
				require.NoError(t, err)
				got := c.download()
				for i := range m {
					for j := range 32 {
						sum, row, col := 0.0, 0, 0
						if perRow {
							row, col = i, j
						}
						for k := range 48 {
							sum += a[i*48+k] * b[j*48+k]
						}
						require.InDelta(t, sum*as.v[row]*bs.v[col], got[i*32+j], 1e-4, "%v: row %d, column %d", g, i, j)
					}
				}
			}
		}
	}
}

// A product without an algorithm in cuBLASLt returns an unsupported error, so that
// the caller computes it in another way.
func TestFloat8Unsupported(t *testing.T) {
	emu.Only(t, "which products have no algorithm differs between GPUs")
	r := newRig(t)
	s, c := r.vec(blas.Float32, 32, 0), r.vec(blas.Float32, 32*32, 0)
	for what, change := range map[string]func(g *blas.Gemm){
		"two of e5m2":    func(g *blas.Gemm) { g.B8 = blas.E5M2 },
		"24 columns":     func(g *blas.Gemm) { g.N = 24 },
		"depth 40":       func(g *blas.Gemm) { g.K = 40 },
		"not transposed": func(g *blas.Gemm) { g.TransB, g.LDB = false, 32 },
		"float64":        func(g *blas.Gemm) { g.Type = blas.Float64 },
	} {
		g, _, _ := r.float8(16, blas.E5M2, blas.E4M3)
		g.ScaleA, g.ScaleB, g.C = s.ptr, s.ptr, c.ptr
		change(g)
		require.True(t, blas.IsUnsupported(r.h.MatMul(r.s, g)), what)
	}
	g, _, _ := r.float8(16, blas.E4M3, blas.E4M3)
	g.ScaleA, g.ScaleB, g.C, g.PerRow = s.ptr, s.ptr, c.ptr, true
	require.Equal(t, "float32 NT 16x32x48 of 8-bit floats scaled per row", g.String())
	require.NoError(t, r.h.MatMul(r.s, g))
	exact := c.download()
	g.FastAccum = true
	require.Equal(t, "float32 NT 16x32x48 of 8-bit floats scaled per row with fast accumulation", g.String())
	require.NoError(t, r.h.MatMul(r.s, g))
	got := c.download()
	for i := range 16 {
		for j := range 32 {
			require.InDelta(t, exact[i*32+j], got[i*32+j], 48*4*0x1p-12*math.Abs(s.v[i]*s.v[j])) // terms of at most 4 scale factors, cut to 14 bits
		}
	}
	s8 := r.vec(blas.Float32, 32, 1) // not aligned to 16 bytes
	g.ScaleB = s8.ptr
	require.True(t, blas.IsUnsupported(r.h.MatMul(r.s, g)), "scales are aligned to elements only")
}

// Fast accumulation loses some per cent of long sums whose terms have one sign (on an H100, 5% of 4096 squares).
func TestFastAccum(t *testing.T) {
	emu.Only(t, "what it loses differs between GPUs")
	r := newRig(t)
	const k = 4096
	one, c := r.vec(blas.Float32, 1, 0), r.vec(blas.Float32, 16*16, 0)
	one.v[0] = 1
	one.upload()
	codes := make([]byte, 16*k)
	for i := range codes {
		codes[i] = 0x28 + byte(r.rnd.IntN(16)) // 0.25 to 0.94
	}
	p, err := r.pool.Alloc(r.s, len(codes))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.pool.Free(p)) }()
	require.NoError(t, r.s.Upload(p, codes))
	g := &blas.Gemm{Type: blas.Float32, TransB: true, M: 16, N: 16, K: k, Alpha: 1, LDA: k, LDB: k, LDC: 16, Batch: 1, A8: blas.E4M3,
		B8: blas.E4M3, A: p, B: p, C: c.ptr, ScaleA: one.ptr, ScaleB: one.ptr}
	require.NoError(t, r.h.MatMul(r.s, g))
	exact := c.download()
	g.FastAccum = true
	require.NoError(t, r.h.MatMul(r.s, g))
	for i, v := range c.download() {
		require.InDelta(t, 0.07, 1-v/exact[i], 0.03, "element %d is %v of %v", i, v, exact[i])
	}
}
