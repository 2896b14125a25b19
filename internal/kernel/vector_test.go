package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// Every kernel with assembly is run on the same operands by the Go code and by each instruction set, and all operands,
// their guards included, are compared to the bit.

// withISA runs f with the kernels of s.
func withISA(s *isa, f func()) {
	old := active
	defer func() { active = old }()
	active = s
	f()
}

func genericISA() *isa { return isas[len(isas)-1] }

// vecOperands are operands of one length and row statistics of their one row.
type vecOperands[T Float] struct {
	n          int
	v          [5][]T
	stat       []T
	dw, db     []T
	key, index uint64
}

// vecCase is a kernel call; aliases are pairs of operands that may be the same.
type vecCase[T Float] struct {
	name    string
	aliases [][2]int
	run     func(o *vecOperands[T])
}

var anyInput, firstInput = [][2]int{{0, 1}, {0, 2}, {1, 2}}, [][2]int{{0, 1}}

func vecCases[T Float]() []vecCase[T] {
	return append(append(arithmeticCases[T](), optimizerCases[T]()...), append(expCases[T](), rowCases[T]()...)...)
}

func arithmeticCases[T Float]() []vecCase[T] {
	return []vecCase[T]{
		{"Add", anyInput, func(o *vecOperands[T]) { Add(o.v[0], o.v[1], o.v[2]) }},
		{"Sub", anyInput, func(o *vecOperands[T]) { Sub(o.v[0], o.v[1], o.v[2]) }},
		{"Mul", anyInput, func(o *vecOperands[T]) { Mul(o.v[0], o.v[1], o.v[2]) }},
		{"AddScalar", firstInput, func(o *vecOperands[T]) { Add(o.v[0], o.v[1], o.stat[:1]) }},
		{"AddToScalar", firstInput, func(o *vecOperands[T]) { Add(o.v[0], o.stat[:1], o.v[1]) }},
		{"SubScalar", firstInput, func(o *vecOperands[T]) { Sub(o.v[0], o.v[1], o.stat[:1]) }},
		{"SubFromScalar", firstInput, func(o *vecOperands[T]) { Sub(o.v[0], o.stat[:1], o.v[1]) }},
		{"MulScalar", firstInput, func(o *vecOperands[T]) { Mul(o.v[0], o.v[1], o.stat[:1]) }},
		{"Affine", firstInput, func(o *vecOperands[T]) { Affine(o.v[0], o.v[1], o.stat[0], o.stat[1]) }},
		{"ReLU", firstInput, func(o *vecOperands[T]) { ReLU(o.v[0], o.v[1]) }},
		{"ReLUGrad", anyInput, func(o *vecOperands[T]) { ReLUGrad(o.v[0], o.v[1], o.v[2]) }},
		{"SumInto", firstInput, func(o *vecOperands[T]) { SumInto(o.v[0], o.v[1]) }},
		{"ProdInto", firstInput, func(o *vecOperands[T]) { ProdInto(o.v[0], o.v[1]) }},
		{"ScaleInto", nil, func(o *vecOperands[T]) { ScaleInto(o.v[0], float64(o.stat[0])) }},
		{"AddStrided", nil, func(o *vecOperands[T]) {
			AddStrided(o.v[0], o.v[1], []int{1, o.n}, []int{o.n, 1}, []int{0, 1})
		}},
		{"ColSum", nil, func(o *vecOperands[T]) { ColSum(o.dw, o.v[0][:o.n/3*3], 3, o.n/3, o.n/3, 0, o.n/3, true) }},
		{"ReduceSum", nil, func(o *vecOperands[T]) { ReduceSum(o.stat, o.v[0], o.n, 1, 0, 1) }},
		{"SumSquares", nil, func(o *vecOperands[T]) { o.stat[0] = T(SumSquares(o.v[0])) }},
	}
}

// halfCases are the kernels on bfloat16, which ends where the operands do.
func halfCases() []vecCase[float32] {
	return []vecCase[float32]{
		{"ReLUBF16", firstInput, func(o *vecOperands[float32]) { ReLUBF16(halvesAtEnd(o.v[0]), halvesAtEnd(o.v[1])) }},
		{"ReLUGradBF16", anyInput, func(o *vecOperands[float32]) {
			ReLUGradBF16(halvesAtEnd(o.v[0]), halvesAtEnd(o.v[1]), halvesAtEnd(o.v[2]))
		}},
	}
}

func optimizerCases[T Float]() []vecCase[T] {
	var cases []vecCase[T]
	if half, ok := any(halfCases()).([]vecCase[T]); ok {
		cases = half
	}
	for i, h := range []SGDHyper{
		{LR: 0.1, GradScale: 1},
		{LR: 0.1, WeightDecay: 0.01, GradScale: 0.5},
		{LR: 0.1, Momentum: 0.9, GradScale: 1},
		{LR: 0.1, Momentum: 0.9, GradScale: 1, First: true},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 0.5, Nesterov: true},
		{LR: 0.1, Momentum: 0.9, Dampening: 0.3, WeightDecay: 0.01, GradScale: 0.5, Nesterov: true, First: true},
	} {
		cases = append(cases, vecCase[T]{fmt.Sprint("SGD", i), nil, func(o *vecOperands[T]) { SGD(o.v[0], o.v[1], o.v[2], h) }})
		if single[T]() {
			cases = append(cases, bf16Step[T](fmt.Sprint("SGDBF16 ", i), func(v [5][]float32, g, out []BF16) { SGDBF16(v[0], g, v[2], out, h) }))
		}
	}
	for i, h := range []AdamHyper{
		{LR: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1},
		{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Step: 7, GradScale: 0.25},
		{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Decoupled: true, Step: 3, GradScale: 1},
		{LR: 0.01, Beta1: 0.3, Beta2: 0.5, Eps: 0.1, WeightDecay: 0.1, Step: 2, GradScale: 0.5},
	} {
		cases = append(cases, vecCase[T]{fmt.Sprint("Adam", i), nil, func(o *vecOperands[T]) {
			Adam(o.v[0], o.v[1], o.v[2], o.v[3], h)
		}})
		if single[T]() {
			cases = append(cases,
				bf16Step[T](fmt.Sprint("AdamBF16 ", i), func(v [5][]float32, g, out []BF16) { AdamBF16(v[0], g, v[2], v[3], out, h) }))
		}
	}
	return cases
}

// bf16Step is the case of an optimizer's step for parameters in bfloat16.
func bf16Step[T Float](name string, step func(v [5][]float32, g, out []BF16)) vecCase[T] {
	return vecCase[T]{name, nil, func(o *vecOperands[T]) {
		v := any(o).(*vecOperands[float32]).v
		out := halvesAtEnd(v[4])
		step(v, halvesAtEnd(v[1]), out)
		for k, x := range out { // two of them look like a number when they are compared
			if x&0x7fff > 0x7f80 {
				out[k] = 0x7fc0
			}
		}
	}}
}

// halvesAtEnd is the last half of the memory of x: as many 16-bit numbers.
func halvesAtEnd(x []float32) []BF16 {
	return unsafe.Slice((*BF16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))[len(x):]
}

func expCases[T Float]() []vecCase[T] {
	return []vecCase[T]{
		{"Exp", firstInput, func(o *vecOperands[T]) { Exp(o.v[0], o.v[1]) }},
		{"Sigmoid", firstInput, func(o *vecOperands[T]) { Sigmoid(o.v[0], o.v[1]) }},
		{"Tanh", firstInput, func(o *vecOperands[T]) { Tanh(o.v[0], o.v[1]) }},
		{"SiLU", firstInput, func(o *vecOperands[T]) { SiLU(o.v[0], o.v[1]) }},
		{"SiLUGrad", anyInput, func(o *vecOperands[T]) { SiLUGrad(o.v[0], o.v[1], o.v[2]) }},
		{"GELU", firstInput, func(o *vecOperands[T]) { GELU(o.v[0], o.v[1]) }},
		{"GELUGrad", anyInput, func(o *vecOperands[T]) { GELUGrad(o.v[0], o.v[1], o.v[2]) }},
		{"GELUTanh", firstInput, func(o *vecOperands[T]) { GELUTanh(o.v[0], o.v[1]) }},
		{"GELUTanhGrad", anyInput, func(o *vecOperands[T]) { GELUTanhGrad(o.v[0], o.v[1], o.v[2]) }},
		{"Dropout", firstInput, func(o *vecOperands[T]) {
			Dropout(o.v[0], o.v[1], 0.3, o.key, Rows{First: 7 * int(o.index%1000), Stride: 7, Elems: 7, Cols: 7, Line: 7}, 0, o.n)
		}},
		{"DropoutShard", firstInput, func(o *vecOperands[T]) {
			cols := max(1, o.n/2)
			line := cols + 1 + int(o.index%5)
			Dropout(o.v[0], o.v[1], 0.9, o.key, Rows{First: 3 * line, Stride: 2 * line, Elems: cols, Cols: cols, Line: line}, o.n/7, o.n)
		}},
		{"DropoutFar", firstInput, func(o *vecOperands[T]) { // block numbers beyond 32 bits
			Dropout(o.v[0], o.v[1], 0.5, o.key, Rows{First: 1<<34 - 2, Stride: 1, Elems: 1, Cols: 1, Line: 1}, 0, o.n)
		}},
	}
}

func rowCases[T Float]() []vecCase[T] {
	label := []int64{0}
	return []vecCase[T]{
		{"Softmax", firstInput, func(o *vecOperands[T]) { Softmax(o.v[0], o.v[1], o.n, 0, 1) }},
		{"SoftmaxGrad", anyInput, func(o *vecOperands[T]) { SoftmaxGrad(o.v[0], o.v[1], o.v[2], o.n, 0, 1) }},
		{"LogSoftmax", firstInput, func(o *vecOperands[T]) { LogSoftmax(o.v[0], o.v[1], o.n, 0, 1) }},
		{"LogSoftmaxGrad", anyInput, func(o *vecOperands[T]) { LogSoftmaxGrad(o.v[0], o.v[1], o.v[2], o.n, 0, 1) }},
		{"LogSumExp", nil, func(o *vecOperands[T]) { LogSumExp(o.stat, o.v[0], o.n, 0, 1) }},
		{"LogSumExpGrad", firstInput, func(o *vecOperands[T]) { LogSumExpGrad(o.v[0], o.stat, o.v[1], o.stat[1:], o.n, 0, 1) }},
		{"CrossEntropy", nil, func(o *vecOperands[T]) {
			CrossEntropy(o.stat, o.stat[1:], o.v[0][:o.n], label, o.n, 0, min(1, o.n), 0.1, -1)
		}},
		{"CrossEntropyGrad", firstInput, func(o *vecOperands[T]) {
			CrossEntropyGrad(o.v[0], o.v[1], o.stat, label, o.stat[1:2], o.n, 0, min(1, o.n), 0.1, -1)
		}},
		{"LayerNorm", firstInput, func(o *vecOperands[T]) {
			LayerNorm(o.v[0], o.stat, o.stat[1:], o.v[1], o.v[2], o.v[3], o.n, 0, 1, 1e-5)
		}},
		{"LayerNormGradX", anyInput, func(o *vecOperands[T]) {
			LayerNormGradX(o.v[0], o.v[1], o.v[2], o.v[3], o.stat, o.stat[1:], o.n, 0, 1)
		}},
		{"LayerNormGradX plain", anyInput, func(o *vecOperands[T]) {
			LayerNormGradX(o.v[0], o.v[1], o.v[2], nil, o.stat, o.stat[1:], o.n, 0, 1)
		}},
		{"LayerNormGradW", nil, func(o *vecOperands[T]) {
			LayerNormGradW(o.dw, o.db, o.v[0], o.v[1], o.stat, o.stat[1:], 3, o.n/3, 0, o.n/3, true)
		}},
		{"RMSNorm", firstInput, func(o *vecOperands[T]) { RMSNorm(o.v[0], o.stat, o.v[1], o.v[2], o.n, 0, 1, 1e-5) }},
		{"RMSNormGradX", anyInput, func(o *vecOperands[T]) {
			RMSNormGradX(o.v[0], o.v[1], o.v[2], o.v[3], o.stat, o.n, 0, 1)
		}},
		{"RMSNormGradW", nil, func(o *vecOperands[T]) {
			RMSNormGradW(o.dw, o.v[0], o.v[1], o.stat, 3, o.n/3, 0, o.n/3, false)
		}},
	}
}

// kinds of numbers that operands are filled with.
const (
	normalNumbers = iota
	allBits       // random bits: every exponent, NaN and infinities, too
	specialNumbers
	decades // of every size, without NaN and infinities
	numKinds
)

// newPools makes numbers of every kind, which operands take a part of.
func newPools[T Float]() (pools [numKinds][]T) {
	special := []float64{
		math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 1e-40, -1e-40, 1e-45, 3e38, 88, -104, 0x1p-126,
		0x1p-103, 5e-324, 1e308, 709, -745,
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for kind := range pools {
		x := make([]T, 3*asmChunk)
		for i := range x {
			v := rng.NormFloat64()
			switch {
			case kind == normalNumbers:
				v *= 3
			case kind == allBits && single[T]():
				v = float64(math.Float32frombits(rng.Uint32()))
			case kind == allBits:
				v = math.Float64frombits(rng.Uint64())
			case kind == specialNumbers && i%8 == 0:
				v = special[rng.IntN(len(special))]
			case kind == decades:
				v *= math.Pow(10, float64(rng.IntN(80)-50))
			}
			x[i] = T(v)
		}
		pools[kind] = x
	}
	return pools
}

// vecBuffers are operands in buffers with guards, or wherever place puts them.
type vecBuffers[T Float] struct {
	ops  vecOperands[T]
	bufs [][]T
}

// newVecBuffers makes operands of length n, parts of pool, that start at any alignment. place says where operand i lies; nil:
// in a buffer with guards.
func newVecBuffers[T Float](seed uint64, n int, pool []T, place func(i int, x []T) []T) *vecBuffers[T] {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	b := &vecBuffers[T]{ops: vecOperands[T]{n: n, key: rng.Uint64(), index: rng.Uint64()}}
	slot := func(n int) []T {
		buf := make([]T, n+2*guard+rng.IntN(17))
		copy(buf, pool[rng.IntN(len(pool)-len(buf)):])
		off := len(buf) - n - guard
		x := buf[off : off+n : off+n]
		if place != nil {
			x = place(len(b.bufs), x)
			buf = x
		}
		b.bufs = append(b.bufs, buf)
		return x
	}
	for i := range b.ops.v {
		b.ops.v[i] = slot(n)
	}
	b.ops.stat, b.ops.dw, b.ops.db = slot(4), slot(n/3), slot(n/3)
	return b
}

// alias makes operand a[0] the same memory as a[1].
func (b *vecBuffers[T]) alias(a [2]int) { b.ops.v[a[0]] = b.ops.v[a[1]] }

// requireSameRun compares the Go code with s on operands made by two calls of buffers.
func requireSameRun[T Float](t *testing.T, s *isa, c vecCase[T], buffers func() *vecBuffers[T], what string) {
	t.Helper()
	want := buffers()
	withISA(genericISA(), func() { c.run(&want.ops) })
	wanted := make([][]T, len(want.bufs))
	for i := range wanted { // before got is made, which may lie in the same place
		wanted[i] = clone(want.bufs[i])
	}
	got := buffers()
	withISA(s, func() { c.run(&got.ops) })
	for i := range wanted {
		requireSameBits(t, wanted[i], got.bufs[i], s.name, c.name, what, "operand", i)
	}
}

func onEveryVectorISA(t *testing.T, f32, f64 func(t *testing.T, s *isa)) {
	for _, s := range isas[:len(isas)-1] {
		t.Run(s.name+"/float32", func(t *testing.T) { f32(t, s) })
		t.Run(s.name+"/float64", func(t *testing.T) { f64(t, s) })
	}
}

func TestVectorKernels(t *testing.T) {
	t.Parallel()
	onEveryVectorISA(t, testVectorKernels[float32], testVectorKernels[float64])
}

func TestLongVectorKernels(t *testing.T) { reliability.AsLong(t, TestVectorKernels) }

func testVectorKernels[T Float](t *testing.T, s *isa) {
	lengths := []int{asmChunk + 35}
	for n := range 201 { // up to three bundles; the longer ones of every length modulo 16, in the short form of kernels by turns
		if n <= 35 || n%5 == 0 || reliability.Long(t) {
			lengths = append(lengths, n)
		}
	}
	pools := newPools[T]()
	for i, c := range vecCases[T]() {
		for _, n := range lengths {
			leaves := 35 < n && (n/5+i)%3 != 0
			if n > asmChunk { // what cuts operands is the same code for both types
				leaves = single[T]() != (i%2 == 0)
			}
			if leaves && !reliability.Long(t) {
				continue
			}
			for kind, pool := range pools {
				if (n+i)%numKinds != kind && (n > 17 || !reliability.Long(t)) { // one kind is enough
					continue
				}
				fresh := func() *vecBuffers[T] { return newVecBuffers(uint64(kind), n, pool, nil) }
				requireSameRun(t, s, c, fresh, fmt.Sprintf("n=%d kind=%d", n, kind))
			}
			if n%9 != 0 {
				continue
			}
			for _, a := range c.aliases {
				requireSameRun(t, s, c, func() *vecBuffers[T] {
					b := newVecBuffers(7, n, pools[n%numKinds], nil)
					b.alias(a)
					return b
				}, fmt.Sprintf("n=%d alias %v", n, a))
			}
		}
	}
}

// TestVectorFloat32 goes through the float32 numbers (many more in the long runs) in the functions of one number.
func TestVectorFloat32(t *testing.T) {
	step := uint32(20011)
	if reliability.Long(t) {
		step = 37
	}
	x, y, z := make([]float32, 1<<12), make([]float32, 1<<12), make([]float32, 1<<12)
	g := filled[float32](len(x), 1)
	kernels := map[string]func(dst, x []float32){
		"Exp": Exp[float32], "Sigmoid": Sigmoid[float32], "Tanh": Tanh[float32], "SiLU": SiLU[float32], "GELU": GELU[float32],
		"GELUTanh": GELUTanh[float32], "ReLU": ReLU[float32],
		"SiLUGrad":     func(dst, x []float32) { SiLUGrad(dst, g, x) },
		"GELUGrad":     func(dst, x []float32) { GELUGrad(dst, g, x) },
		"GELUTanhGrad": func(dst, x []float32) { GELUTanhGrad(dst, g, x) },
	}
	for name, f := range kernels {
		for u := uint64(0); u < 1<<32; u += uint64(len(x)) * uint64(step) {
			for i := range x {
				x[i] = math.Float32frombits(uint32(u) + uint32(i)*step)
			}
			withISA(genericISA(), func() { f(y, x) })
			for _, s := range isas[:len(isas)-1] {
				withISA(s, func() { f(z, x) })
				requireSameBits(t, y, z, s.name, name)
			}
		}
	}
}

func TestLongVectorFloat32(t *testing.T) { reliability.AsLong(t, TestVectorFloat32) }

func TestVectorHalves(t *testing.T) {
	for _, s := range isas[:len(isas)-1] {
		t.Run(s.name, func(t *testing.T) {
			testWiden(t, s)
			testRound(t, s)
			for n := range 201 {
				testHalfLength(t, s, n)
			}
		})
	}
}

func TestLongVectorHalves(t *testing.T) { reliability.AsLong(t, TestVectorHalves) }

// testWiden goes through all 16-bit numbers. NaN keep their bits, too.
func testWiden(t *testing.T, s *isa) {
	h := make([]uint16, 1<<16)
	for i := range h {
		h[i] = uint16(i)
	}
	want, got := make([]float32, 1<<16), make([]float32, 1<<16)
	for name, f := range map[string]func(dst []float32){
		"bf16": func(dst []float32) { BF16ToF32(dst, *(*[]BF16)(unsafe.Pointer(&h))) },
		"f16":  func(dst []float32) { F16ToF32(dst, *(*[]F16)(unsafe.Pointer(&h))) },
	} {
		withISA(genericISA(), func() { f(want) })
		withISA(s, func() { f(got) })
		for i := range want {
			if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
				require.Failf(t, "different bits", "%s %#x: want %#x, got %#x", name, i, math.Float32bits(want[i]), math.Float32bits(got[i]))
			}
		}
	}
}

// testRound goes through the float32 numbers, all of them in the long runs.
func testRound(t *testing.T, s *isa) {
	step := uint32(1021)
	if reliability.Long(t) {
		step = 1
	}
	x := make([]float32, 1<<14)
	wantB, gotB, wantF, gotF := make([]BF16, len(x)), make([]BF16, len(x)), make([]F16, len(x)), make([]F16, len(x))
	for u := uint64(0); u < 1<<32; u += uint64(len(x)) * uint64(step) {
		for i := range x {
			x[i] = math.Float32frombits(uint32(u) + uint32(i)*step)
		}
		withISA(genericISA(), func() { F32ToBF16(wantB, x); F32ToF16(wantF, x) })
		withISA(s, func() { F32ToBF16(gotB, x); F32ToF16(gotF, x) })
		for i := range x {
			if wantB[i] != gotB[i] || wantF[i] != gotF[i] {
				require.Failf(t, "different bits", "%#x: want %#x and %#x, got %#x and %#x", math.Float32bits(x[i]), wantB[i], wantF[i],
					gotB[i], gotF[i])
			}
		}
	}
}

func testHalfLength(t *testing.T, s *isa, n int) {
	x := normals[float32](n+1, 1)[1:]
	b := filled16[BF16](n + 2*guard)
	f := filled16[F16](n + 2*guard)
	back := filled[float32](n+2*guard, 7)
	withISA(s, func() {
		F32ToBF16(inner(b), x)
		F32ToF16(inner(f), x)
		BF16ToF32(inner(back), inner(b))
	})
	for i := range b {
		j := i - guard
		if j < 0 || j >= n {
			require.True(t, b[i] == 7 && f[i] == 7 && back[i] == 7, "wrote outside, n = %d", n)
			continue
		}
		require.Equal(t, ToBF16(x[j]), b[i])
		require.Equal(t, ToF16(x[j]), f[i])
		require.Equal(t, b[i].Float32(), back[i])
	}
}

func filled16[T ~uint16](n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = 7
	}
	return x
}
