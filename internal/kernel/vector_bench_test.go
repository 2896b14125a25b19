package kernel

import "testing"

// vectorBench is a kernel, the probe with the same kind of traffic (see probeBenches), and the bytes that the kernel reads
// and writes for each element.
type vectorBench struct {
	name  string
	probe string
	bytes int
	run   func(o *benchOperands)
}

// benchOperands are rows of benchCols columns.
type benchOperands struct {
	rows               int
	dst, x, y, m, v, w []float32
	row0, row1         []float32
	label, place       []int64
	half, out          []BF16
	f16                []F16
}

const benchCols = 512

func newBenchOperands(n int) *benchOperands {
	rows := n / benchCols
	return &benchOperands{
		rows: rows, dst: filled[float32](n, 0), x: normals[float32](n, 1), y: normals[float32](n, 2), m: filled[float32](n, 0),
		v: filled[float32](n, 0), w: normals[float32](benchCols, 3), row0: make([]float32, rows), row1: filled[float32](rows, 1),
		label: make([]int64, rows), place: integers[int64](rows, 4, 0, rows), half: filled16[BF16](n), out: make([]BF16, n),
		f16: filled16[F16](n),
	}
}

func vectorBenches() []vectorBench {
	return append(streamBenches(), append(expBenches(), rowBenches()...)...)
}

func streamBenches() []vectorBench {
	sgd := SGDHyper{LR: 1e-3, GradScale: 1}
	momentum := SGDHyper{LR: 1e-3, Momentum: 0.9, GradScale: 1, WeightDecay: 1e-4}
	nesterov := SGDHyper{LR: 1e-3, Momentum: 0.9, GradScale: 1, Nesterov: true}
	adam := AdamHyper{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1, GradScale: 1}
	return []vectorBench{
		{"SGD", "sum", 12, func(o *benchOperands) { SGD(o.dst, o.x, nil, sgd) }},
		{"SGDMomentum", "sum of two", 20, func(o *benchOperands) { SGD(o.dst, o.x, o.m, momentum) }},
		{"SGDNesterov", "sum of two", 20, func(o *benchOperands) { SGD(o.dst, o.x, o.m, nesterov) }},
		{"SGDBF16", "sum", 12, func(o *benchOperands) { SGDBF16(o.dst, o.half, nil, o.out, sgd) }},
		{"Adam", "sum of three", 28, func(o *benchOperands) { Adam(o.dst, o.x, o.m, o.v, adam) }},
		{"AdamBF16", "sum of three", 28, func(o *benchOperands) { AdamBF16(o.dst, o.half, o.m, o.v, o.out, adam) }},
		{"ReLU", "copy", 8, func(o *benchOperands) { ReLU(o.dst, o.x) }},
		{"ReLUGrad", "triad", 12, func(o *benchOperands) { ReLUGrad(o.dst, o.x, o.y) }},
		{"Add", "triad", 12, func(o *benchOperands) { Add(o.dst, o.x, o.y) }},
		{"Sub", "triad", 12, func(o *benchOperands) { Sub(o.dst, o.x, o.y) }},
		{"Mul", "triad", 12, func(o *benchOperands) { Mul(o.dst, o.x, o.y) }},
		{"MulScalar", "copy", 8, func(o *benchOperands) { Mul(o.dst, o.x, o.w[:1]) }},
		{"Affine", "copy", 8, func(o *benchOperands) { Affine(o.dst, o.x, 2, 1) }},
		{"SumInto", "sum", 12, func(o *benchOperands) { clear(o.dst[:1]); SumInto(o.dst, o.x) }},
		{"ScaleInto", "update", 8, func(o *benchOperands) { ScaleInto(o.x, 1) }},
		{"AddBias", "update", 8, func(o *benchOperands) {
			AddStrided(o.dst, o.w, []int{o.rows, benchCols}, []int{benchCols, 1}, []int{0, 1})
		}},
		{"ColSum", "read", 4, func(o *benchOperands) {
			ColSum(o.dst[:benchCols], o.x, o.rows, benchCols, benchCols, 0, benchCols, false)
		}},
		{"ReduceSum", "read", 4, func(o *benchOperands) { ReduceSum(o.dst, o.x, benchCols, 1, 0, o.rows) }},
		{"SumSquares", "read", 4, func(o *benchOperands) { o.dst[0] = float32(SumSquares(o.x)) }},
		{"BF16ToF32", "copy", 6, func(o *benchOperands) { BF16ToF32(o.dst, o.half) }},
		{"F32ToBF16", "copy", 6, func(o *benchOperands) { F32ToBF16(o.half, o.x) }},
		{"F16ToF32", "copy", 6, func(o *benchOperands) { F16ToF32(o.dst, o.f16) }},
		{"F32ToF16", "copy", 6, func(o *benchOperands) { F32ToF16(o.f16, o.x) }},
		{"Transpose", "copy", 8, func(o *benchOperands) {
			CopyStrided(o.dst, o.x, []int{benchCols, o.rows}, []int{o.rows, 1}, []int{1, benchCols})
		}},
		{"Heads", "copy", 8, func(o *benchOperands) { // [batch, 64, 8, 64] with the middle dimensions exchanged
			CopyStrided(o.dst, o.x, []int{o.rows / 64, 8, 64, 64}, []int{64 * benchCols, 64 * 64, 64, 1}, []int{64 * benchCols, 64, benchCols, 1})
		}},
	}
}

func expBenches() []vectorBench {
	return []vectorBench{
		{"Exp", "copy", 8, func(o *benchOperands) { Exp(o.dst, o.x) }},
		{"Sigmoid", "copy", 8, func(o *benchOperands) { Sigmoid(o.dst, o.x) }},
		{"Tanh", "copy", 8, func(o *benchOperands) { Tanh(o.dst, o.x) }},
		{"SiLU", "copy", 8, func(o *benchOperands) { SiLU(o.dst, o.x) }},
		{"SiLUGrad", "triad", 12, func(o *benchOperands) { SiLUGrad(o.dst, o.x, o.y) }},
		{"GELU", "copy", 8, func(o *benchOperands) { GELU(o.dst, o.x) }},
		{"GELUGrad", "triad", 12, func(o *benchOperands) { GELUGrad(o.dst, o.x, o.y) }},
		{"GELUTanh", "copy", 8, func(o *benchOperands) { GELUTanh(o.dst, o.x) }},
		{"GELUTanhGrad", "triad", 12, func(o *benchOperands) { GELUTanhGrad(o.dst, o.x, o.y) }},
		{"Dropout", "copy", 8, func(o *benchOperands) { Dropout(o.dst, o.x, 0.1, 1, wholeRows(len(o.x), benchCols), 0, len(o.x)) }},
	}
}

func rowBenches() []vectorBench {
	return []vectorBench{
		{"Softmax", "copy", 8, func(o *benchOperands) { Softmax(o.dst, o.x, benchCols, 0, o.rows) }},
		{"SoftmaxGrad", "triad", 12, func(o *benchOperands) { SoftmaxGrad(o.dst, o.x, o.y, benchCols, 0, o.rows) }},
		{"LogSoftmax", "copy", 8, func(o *benchOperands) { LogSoftmax(o.dst, o.x, benchCols, 0, o.rows) }},
		{"CrossEntropy", "read", 4, func(o *benchOperands) {
			CrossEntropy(o.row0, o.row1, o.x, o.label, benchCols, 0, o.rows, 0, -1)
		}},
		{"CrossEntropyGrad", "copy", 8, func(o *benchOperands) {
			CrossEntropyGrad(o.dst, o.x, o.row1, o.label, o.w[:1], benchCols, 0, o.rows, 0, -1)
		}},
		{"LayerNorm", "copy", 8, func(o *benchOperands) {
			LayerNorm(o.dst, o.row0, o.row1, o.x, o.w, o.w, benchCols, 0, o.rows, 1e-5)
		}},
		{"LayerNormGradX", "triad", 12, func(o *benchOperands) {
			LayerNormGradX(o.dst, o.x, o.y, o.w, o.row1, o.row1, benchCols, 0, o.rows)
		}},
		{"LayerNormGradW", "read", 8, func(o *benchOperands) {
			LayerNormGradW(o.dst[:benchCols], o.m[:benchCols], o.x, o.y, o.row1, o.row1, o.rows, benchCols, 0, benchCols, false)
		}},
		{"EmbeddingGrad", "sum", 12, func(o *benchOperands) { ScatterAddRows(o.dst, o.x, o.place, benchCols, 0, benchCols) }},
		{"RMSNorm", "copy", 8, func(o *benchOperands) { RMSNorm(o.dst, o.row0, o.x, o.w, benchCols, 0, o.rows, 1e-5) }},
		{"RMSNormGradX", "triad", 12, func(o *benchOperands) {
			RMSNormGradX(o.dst, o.x, o.y, o.w, o.row1, benchCols, 0, o.rows)
		}},
		{"RMSNormGradW", "read", 8, func(o *benchOperands) {
			RMSNormGradW(o.dst[:benchCols], o.x, o.y, o.row1, o.rows, benchCols, 0, benchCols, false)
		}},
	}
}

// BenchmarkVector measures one goroutine on operands in the second-level cache, on every instruction set. What it reaches on
// larger ones is BenchmarkMemory's matter.
func BenchmarkVector(b *testing.B) {
	best := active
	defer func() { active = best }()
	o := newBenchOperands(1 << 13)
	for _, c := range vectorBenches() {
		for _, active = range isas {
			b.Run(c.name+"/"+active.name, func(b *testing.B) {
				b.SetBytes(int64(c.bytes << 13))
				for b.Loop() {
					c.run(o)
				}
			})
		}
	}
}
