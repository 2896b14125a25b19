package kernel

import (
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// arena holds the operands of a kernel call: rows x cols matrices, row vectors, column vectors, indices.
type arena[T Float] struct {
	rows, cols int
	dst, x, y  []T
	r0, r1     []T // one number a row
	c0, c1, w  []T // one number a column
	idx, pos   []int64
	flags      []bool
	one        []T
}

// newArena fills the operands with uniform numbers, which are the same bits on every machine.
func newArena[T Float](rows, cols int) *arena[T] {
	v := func(n int, key uint64) []T {
		x := make([]T, n)
		fillUniform(x, key, 0, -1, 2)
		return x
	}
	n := rows * cols
	a := &arena[T]{
		rows: rows, cols: cols, dst: make([]T, n), x: v(n, 1), y: v(n, 2), r0: v(rows, 3), r1: v(rows, 4),
		c0: v(cols, 5), c1: v(cols, 6), w: v(cols, 7), idx: integers[int64](n, 8, 0, min(rows, cols)), pos: make([]int64, n),
		flags: make([]bool, n), one: v(1, 9),
	}
	ToBool(a.flags, integers[uint8](n, 9, 0, 2))
	return a
}

// portable are kernels whose float32 results must have the same bits on every
// architecture: they use no function of package math except square roots, or their
// float32 result does not depend on one.
func (a *arena[T]) portable() map[string]func() {
	n, rows, cols := len(a.x), a.rows, a.cols
	m, moment := wholeRows(n, n), make([]T, n)
	return map[string]func(){
		"Affine":         func() { Affine(a.dst, a.x, 1.1, 0.3) },
		"Exp":            func() { Exp(a.dst, a.x) },
		"Tanh":           func() { Tanh(a.dst, a.x) },
		"TanhGrad":       func() { TanhGrad(a.dst, a.x, a.y) },
		"Sigmoid":        func() { Sigmoid(a.dst, a.x) },
		"GELU":           func() { GELU(a.dst, a.x) },
		"GELUGrad":       func() { GELUGrad(a.dst, a.x, a.y) },
		"GELUTanh":       func() { GELUTanh(a.dst, a.x) },
		"GELUTanhGrad":   func() { GELUTanhGrad(a.dst, a.x, a.y) },
		"SiLU":           func() { SiLU(a.dst, a.x) },
		"SiLUGrad":       func() { SiLUGrad(a.dst, a.x, a.y) },
		"Softmax":        func() { Softmax(a.dst, a.x, cols, 0, rows) },
		"SoftmaxGrad":    func() { SoftmaxGrad(a.dst, a.x, a.y, cols, 0, rows) },
		"LogSoftmaxGrad": func() { LogSoftmaxGrad(a.dst, a.x, a.y, cols, 0, rows) },
		"LogSumExpGrad":  func() { LogSumExpGrad(a.dst, a.r0, a.x, a.r1, cols, 0, rows) },
		"CrossEntropyGrad": func() {
			CrossEntropyGrad(a.dst, a.x, a.r1, a.idx, a.r0, cols, 0, rows, 0.1, 1)
		},
		"MSEGrad":           func() { MSEGrad(a.dst, a.one, a.x, a.y) },
		"BCEWithLogitsGrad": func() { BCEWithLogitsGrad(a.dst, a.one, a.x, a.y) },
		"LayerNorm":         func() { LayerNorm(a.dst, a.r0, a.r1, a.x, a.w, a.c0, cols, 0, rows, 1e-5) },
		"LayerNormGradX":    func() { LayerNormGradX(a.dst, a.x, a.y, a.w, a.r0, a.r1, cols, 0, rows) },
		"LayerNormGradW":    func() { LayerNormGradW(a.c0, a.c1, a.x, a.y, a.r0, a.r1, rows, cols, 0, cols, true) },
		"RMSNorm":           func() { RMSNorm(a.dst, a.r0, a.x, a.w, cols, 0, rows, 1e-5) },
		"RMSNormGradX":      func() { RMSNormGradX(a.dst, a.x, a.y, a.w, a.r0, cols, 0, rows) },
		"RMSNormGradW":      func() { RMSNormGradW(a.c0, a.x, a.y, a.r0, rows, cols, 0, cols, true) },
		"ReduceSum":         func() { ReduceSum(a.dst, a.x, cols, 1, 0, rows) },
		"ReduceSum columns": func() { ReduceSum(a.dst, a.x, rows, cols, 0, cols) },
		"ColSum":            func() { ColSum(a.c0, a.x, rows, cols, cols, 0, cols, true) },
		"SumSquares":        func() { a.dst[0] = T(SumSquares(a.x)) },
		"Dropout":           func() { Dropout(a.dst, a.x, 0.1, 1, m, 0, n) },
		"SGD": func() {
			SGD(a.dst, a.x, a.y, SGDHyper{LR: 0.1, Momentum: 0.9, Dampening: 0.1, WeightDecay: 0.1, Nesterov: true, GradScale: 0.3})
		},
		"Adam": func() {
			Square(moment, a.y)
			Adam(a.dst, a.x, a.y, moment, AdamHyper{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, Step: 1, GradScale: 0.3})
		},
	}
}

// others are the remaining kernels.
func (a *arena[T]) others() map[string]func() {
	n, rows, cols := len(a.x), a.rows, a.cols
	dims, ds, ss := []int{rows, cols}, []int{1, rows}, []int{cols, 1}
	half := make([]F16, n)
	f32 := make([]float32, n)
	return map[string]func(){
		"Add":           func() { Add(a.dst, a.x, a.y) },
		"Sub":           func() { Sub(a.dst, a.one, a.y) },
		"Mul":           func() { Mul(a.dst, a.x, a.one) },
		"Div":           func() { Div(a.dst, a.x, a.y) },
		"Pow":           func() { Pow(a.dst, a.x, a.one) },
		"Lt":            func() { Lt(a.flags, a.x, a.y) },
		"Where":         func() { Where(a.dst, a.flags, a.one, a.y) },
		"Log":           func() { Log(a.dst, a.x) },
		"Sin":           func() { Sin(a.dst, a.x) },
		"Convert":       func() { Convert(a.pos, a.x); Convert(f32, a.x) },
		"F16":           func() { F32ToF16(half, f32); F16ToF32(f32, half) },
		"ReduceMax":     func() { ReduceMax(a.dst, a.pos, a.x, rows, cols, 0, cols) },
		"LogSoftmax":    func() { LogSoftmax(a.dst, a.x, cols, 0, rows) },
		"SoftmaxCausal": func() { SoftmaxCausal(a.dst, a.x, cols, 0, rows, 0, rows) },
		"LogSumExp":     func() { LogSumExp(a.r0, a.x, cols, 0, rows) },
		"CrossEntropy":  func() { CrossEntropy(a.r0, a.r1, a.x, a.idx, cols, 0, rows, 0.1, 1) },
		"BCEWithLogits": func() { BCEWithLogits(a.dst, a.x, a.y) },
		"GatherRows":    func() { GatherRows(a.dst, a.x, a.idx, cols, 0, rows) },
		"ScatterAdd":    func() { ScatterAddRows(a.dst, a.x, a.idx[:rows], cols, 0, cols) },
		"GatherDim":     func() { GatherDim(a.dst, a.x, a.idx, rows, rows, cols, 0, 1) },
		"ScatterAddDim": func() { ScatterAddDim(a.dst, a.x, a.idx, rows, rows, cols, 0, 1) },
		"CopyStrided":   func() { CopyStrided(a.dst, a.x, dims, ds, ss) },
		"AddStrided":    func() { AddStrided(a.dst, a.x, dims, ds, ss) },
		"SumInto":       func() { SumInto(a.dst, a.x) },
	}
}

func TestNoAllocation(t *testing.T) {
	bothFloats(t, testNoAllocation[float32], testNoAllocation[float64])
}

func testNoAllocation[T Float](t *testing.T) {
	a := newArena[T](150, 70)
	for _, set := range []map[string]func(){a.portable(), a.others()} {
		for name, f := range set {
			assert.Zero(t, testing.AllocsPerRun(2, f), name)
		}
	}
}

// TestSameBitsEverywhere fixes the bits of float32 results: on no architecture may
// the compiler fuse a product with a sum. With GOAMD64=v3 it shows a missing
// conversion.
func TestSameBitsEverywhere(t *testing.T) {
	want := map[string]uint64{
		"Adam":              0x85d68b5b3ef40ee4,
		"Affine":            0x77191cd65ca693ad,
		"BCEWithLogitsGrad": 0x5883a655de3b843a,
		"ColSum":            0xc9166aa18ab385b7,
		"CrossEntropyGrad":  0xbb5830f36c641929,
		"Dropout":           0x6629c590723f7bc2,
		"Exp":               0x84ff5969bf09c305,
		"GELU":              0x3257e8a808b010ac,
		"GELUGrad":          0x9452e926dca31e4b,
		"GELUTanh":          0xb432d12f60e59397,
		"GELUTanhGrad":      0x8f0b099cbbb23912,
		"LayerNorm":         0xdfa9eddabc19890,
		"LayerNormGradW":    0x2a83a9580338616,
		"LayerNormGradX":    0x499dbf3e8da4cd84,
		"LogSoftmaxGrad":    0xc64e2718d06903a2,
		"LogSumExpGrad":     0xfb77e8d6078a15fe,
		"MSEGrad":           0x3f8bcd56ef8f5c1f,
		"RMSNorm":           0xd72ab158e6d35748,
		"RMSNormGradW":      0x600992a4c925eec7,
		"RMSNormGradX":      0xf7209adf5c9806fd,
		"ReduceSum":         0x7b65e0d08f69f708,
		"ReduceSum columns": 0x9bebce9ca78daf77,
		"SGD":               0xb789b6767c4aaefd,
		"SiLU":              0x9682e33752a1f2eb,
		"SiLUGrad":          0x1020eb00c713c015,
		"Sigmoid":           0xa34e5b9c1d498c6e,
		"Softmax":           0xa015e44063e31859,
		"SoftmaxGrad":       0x3e385fc9b230cd3d,
		"SumSquares":        0x2a3455159ce9f75e,
		"Tanh":              0x35265278f387e252,
		"TanhGrad":          0x5f5d0beea1915e70,
	}
	got := map[string]uint64{}
	for name := range newArena[float32](1, 1).portable() {
		a := newArena[float32](150, 70)
		a.portable()[name]()
		h := fnv.New64a()
		for _, x := range [][]float32{a.dst, a.x, a.y, a.r0, a.r1, a.c0, a.c1} {
			for _, v := range x {
				if v != v {
					require.Fail(t, "the bits of NaN may differ", name)
				}
				u := math.Float32bits(v)
				h.Write([]byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)})
			}
		}
		got[name] = h.Sum64()
	}
	assert.Equal(t, want, got)
}
