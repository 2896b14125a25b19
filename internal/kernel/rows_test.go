package kernel

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// rowsOperands are the operands of kernels of rows, with guards around outputs.
type rowsOperands[T Float] struct {
	rows, cols   int
	dst, out     []T // dst begins at a cache line
	x, y, w, b   []T
	mean, rstd   []T
	label, place []int64
}

func newRowsOperands[T Float](rows, cols int, pool []T) *rowsOperands[T] {
	part := func(n, at int) []T { return clone(pool[at:][:n]) }
	n := rows * cols
	words := lineAligned((n + 2*guard) * 2)
	dst := unsafe.Slice((*T)(unsafe.Pointer(&words[0])), n+2*guard)
	copy(dst, pool)
	return &rowsOperands[T]{
		rows: rows, cols: cols, dst: dst, out: part(2*rows+2*guard, 7), x: part(n, 11), y: part(n, 503), w: part(cols, 23), b: part(cols, 29),
		mean: part(rows, 31), rstd: part(rows, 37), label: integers[int64](rows, 5, 0, cols), place: integers[int64](rows, 6, 0, rows),
	}
}

func rowsCalls[T Float]() map[string]func(o *rowsOperands[T], dst, s0, s1 []T) {
	return map[string]func(o *rowsOperands[T], dst, s0, s1 []T){
		"LayerNorm": func(o *rowsOperands[T], dst, s0, s1 []T) {
			LayerNorm(dst, s0, s1, o.x, o.w, o.b, o.cols, 0, o.rows, 1e-5)
		},
		"LayerNorm bare": func(o *rowsOperands[T], dst, s0, s1 []T) {
			LayerNorm(dst, s0, s1, o.x, nil, nil, o.cols, 0, o.rows, 1e-5)
		},
		"LayerNorm bias": func(o *rowsOperands[T], dst, s0, s1 []T) {
			LayerNorm(dst, s0, s1, o.x, nil, o.b, o.cols, 0, o.rows, 1e-5)
		},
		"LayerNormGradX": func(o *rowsOperands[T], dst, _, _ []T) {
			LayerNormGradX(dst, o.y, o.x, o.w, o.mean, o.rstd, o.cols, 0, o.rows)
		},
		"LayerNormGradW": func(o *rowsOperands[T], dst, _, _ []T) {
			LayerNormGradW(dst[:o.cols], nil, o.y, o.x, o.mean, o.rstd, o.rows, o.cols, 0, o.cols, true)
		},
		"RMSNorm":       func(o *rowsOperands[T], dst, s0, _ []T) { RMSNorm(dst, s0, o.x, o.w, o.cols, 0, o.rows, 1e-5) },
		"RMSNormGradX":  func(o *rowsOperands[T], dst, _, _ []T) { RMSNormGradX(dst, o.y, o.x, nil, o.rstd, o.cols, 0, o.rows) },
		"Softmax":       func(o *rowsOperands[T], dst, _, _ []T) { Softmax(dst, o.x, o.cols, 0, o.rows) },
		"SoftmaxCausal": func(o *rowsOperands[T], dst, _, _ []T) { SoftmaxCausal(dst, o.x, o.cols, 0, o.rows, 0, o.rows) },
		"SoftmaxGrad":   func(o *rowsOperands[T], dst, _, _ []T) { SoftmaxGrad(dst, o.x, o.y, o.cols, 0, o.rows) },
		"LogSoftmax":    func(o *rowsOperands[T], dst, _, _ []T) { LogSoftmax(dst, o.x, o.cols, 0, o.rows) },
		"LogSoftmaxGrad": func(o *rowsOperands[T], dst, _, _ []T) {
			LogSoftmaxGrad(dst, o.x, o.y, o.cols, 0, o.rows)
		},
		"CrossEntropy": func(o *rowsOperands[T], _, s0, s1 []T) { CrossEntropy(s0, s1, o.x, o.label, o.cols, 0, o.rows, 0.1, 0) },
		"CrossEntropyGrad": func(o *rowsOperands[T], dst, _, _ []T) {
			CrossEntropyGrad(dst, o.x, o.mean, o.label, o.rstd, o.cols, 0, o.rows, 0.1, 0)
		},
		"LogSumExpGrad":  func(o *rowsOperands[T], dst, _, _ []T) { LogSumExpGrad(dst, o.rstd, o.x, o.mean, o.cols, 0, o.rows) },
		"ReduceSum":      func(o *rowsOperands[T], _, s0, _ []T) { ReduceSum(s0, o.x, o.cols, 1, 0, o.rows) },
		"ScatterAddRows": func(o *rowsOperands[T], dst, _, _ []T) { ScatterAddRows(dst, o.x, o.place, o.cols, 0, o.cols) },
		"transpose": func(o *rowsOperands[T], dst, _, _ []T) {
			CopyStrided(dst, o.x, []int{o.cols, o.rows}, []int{o.rows, 1}, []int{1, o.cols})
		},
	}
}

// TestRowKernels compares the Go code with each instruction set on several blocks
// of rows, with stores through the caches and past them.
func TestRowKernels(t *testing.T) {
	nearAndFar(func() { onEveryVectorISA(t, testRowKernels[float32], testRowKernels[float64]) })
}

func TestLongRowKernels(t *testing.T) { reliability.AsLong(t, TestRowKernels) }

func testRowKernels[T Float](t *testing.T, s *isa) {
	pools := newPools[T]()
	for name, call := range rowsCalls[T]() {
		for i, shape := range [][2]int{
			{1, 16}, {37, 1}, {37, 15}, {35, 16}, {64, 48}, {33, 33}, {48, 64}, {16, 100}, {6, 512}, {16, 768}, {1, asmChunk + 32},
		} {
			for kind, pool := range pools {
				if far := min(farBytes, 1); ((i/2+kind+far)%numKinds != 0 || (i+far)%2 != 0) && !reliability.Long(t) {
					continue
				}
				run := func(on *isa) *rowsOperands[T] {
					o := newRowsOperands(shape[0], shape[1], pool)
					stats := inner(o.out)
					withISA(on, func() { call(o, o.dst[:o.rows*o.cols], stats[:o.rows], stats[o.rows:]) })
					return o
				}
				want, got := run(genericISA()), run(s)
				what := fmt.Sprint(name, shape, " kind ", kind)
				requireSameBits(t, want.dst, got.dst, s.name, what)
				requireSameBits(t, want.out, got.out, s.name, what)
			}
		}
	}
}

// A variance in one pass loses digits if the mean is large. But these were lost
// already when the elements were rounded.
func TestLayerNormFarFromZero(t *testing.T) {
	const cols = 256
	for _, offset := range []float32{0, 1e3, 1e5, -1e6} {
		x := normals[float32](cols, 1)
		for i := range x {
			x[i] += offset
		}
		wide, dst, mean, rstd := make([]float64, cols), make([]float32, cols), make([]float32, 1), make([]float32, 1)
		LayerNorm(wide, make([]float64, 1), make([]float64, 1), float64s(x), nil, nil, cols, 0, 1, 1e-5)
		LayerNorm(dst, mean, rstd, x, nil, nil, cols, 0, 1, 1e-5)
		for i := range dst { // the error is that of rounding the mean to float32
			require.InDelta(t, wide[i], dst[i], 1e-6+1e-7*max(1, float64(offset), -float64(offset)), "offset %g", offset)
		}
	}
}
