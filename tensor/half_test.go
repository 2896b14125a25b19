package tensor_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Gradients in 16-bit floats equal those in float32 of the same values, up to the rounding of each result: what a rule keeps from the
// forward pass is not rounded.
func TestHalfGradients(t *testing.T) {
	ignore := int64(-1)
	for name, f := range map[string]func(x, w Tensor) Tensor{
		"cross_entropy": func(x, _ Tensor) Tensor {
			return ops.CrossEntropy(x, randomTokens(hostDevice, 40, 3), ops.CrossEntropyOptions{Ignore: &ignore, Count: 3})
		},
		"logsumexp":  func(x, _ Tensor) Tensor { return ops.LogSumExp(x).Sum() },
		"layer_norm": func(x, w Tensor) Tensor { return ops.LayerNorm(x, w, Tensor{}, 1e-5).Mul(w).Sum() },
		"rms_norm":   func(x, w Tensor) Tensor { return ops.RMSNorm(x, w, 1e-5).Mul(w).Sum() },
		"mse":        func(x, w Tensor) Tensor { return ops.MSE(x, w.Broadcast(3, 40)) },
		"bce":        func(x, w Tensor) Tensor { return ops.BCEWithLogits(x, w.Broadcast(3, 40)) },
		"mean":       func(x, _ Tensor) Tensor { return x.Square().Mean() },
		"broadcast":  func(x, w Tensor) Tensor { return x.Mul(w).Sum() },
		"matmul":     func(x, _ Tensor) Tensor { return MatMul(x, x, false, true).Sum() },
	} {
		for _, d := range []DType{BFloat16, Float16} {
			want, got := halfGrads(Float32, d, f), halfGrads(d, d, f)
			eps := map[DType]float64{BFloat16: 0x1p-8, Float16: 0x1p-11}[d]
			for i := range want {
				largest := 0.0
				for _, v := range want[i] {
					largest = math.Max(largest, math.Abs(v))
				}
				for k, w := range want[i] {
					tol := 3 * eps * (math.Abs(w) + largest/4)
					if i == 0 && strings.Contains("cross_entropy mse bce", name) { // one kernel, one rounding
						tol = 1.01*eps*math.Abs(w) + 0x1p-25
					}
					require.InDelta(t, w, got[i][k], tol, fmt.Sprint(name, d, " input ", i, " element ", k))
				}
			}
		}
	}
}

// halfGrads computes f and its gradients in type d, for inputs that type half can hold.
func halfGrads(d, half DType, f func(x, w Tensor) Tensor) [][]float64 {
	ps := &params{dev: hostDevice, dtype: d}
	x, w := ps.add("x", UniformInit(-8, 8), 3, 40), ps.add("w", UniformInit(0.5, 1.5), 40)
	for _, p := range ps.list {
		h := New(hostDevice, half, p.Dims()...)
		Init(p).Fill(h, HashName(p.Name()), 0)
		for i, v := range Floats(h) {
			StoreFloat(p.Value.Ptr(), d, i, v)
		}
	}
	t := NewTape(hostDevice)
	t.Backward(f(t.Use(x), t.Use(w)))
	return ps.grads()
}

// Products in bfloat16 are float32 sums of the same values, rounded once, forward and backward, for every form with its own rules. A second
// microbatch is added. If a multiplication rounded in between, the error would be larger.
func TestBFloat16Products(t *testing.T) {
	m, n, k := 35, 67, 300
	if reliability.Long(t) {
		k = 900
	}
	dev := cpu.New(2)
	defer dev.Close()
	for name, c := range map[string]struct {
		x, w []int
		f    func(x, w, b Tensor) Tensor
	}{
		"linear": {[]int{m, k}, []int{n, k}, Linear},
		"nn":     {[]int{m, k}, []int{k, n}, func(x, w, _ Tensor) Tensor { return MatMul(x, w, false, false) }},
		"nt":     {[]int{m, k}, []int{n, k}, func(x, w, _ Tensor) Tensor { return MatMul(x, w, false, true) }},
		"tn":     {[]int{k, m}, []int{k, n}, func(x, w, _ Tensor) Tensor { return MatMul(x, w, true, false) }},
		"batch":  {[]int{3, m, k}, []int{3, k, n}, func(x, w, _ Tensor) Tensor { return MatMul(x, w, false, false) }},
	} {
		results := map[DType][][]float64{}
		for _, d := range []DType{Float32, BFloat16} {
			ps := &params{dev: dev, dtype: d}
			x, w, b := ps.add("x", UniformInit(-1, 1), c.x...), ps.add("w", UniformInit(-1, 1), c.w...), ps.add("b", UniformInit(-8, 8), n)
			for _, p := range ps.list { // the same values in both types
				h := New(dev, BFloat16, p.Dims()...)
				Init(p).Fill(h, HashName(p.Name()), 0)
				for i, v := range Floats(h) {
					StoreFloat(p.Value.Ptr(), d, i, v)
				}
			}
			for i := range 2 {
				t := NewTape(dev)
				y := c.f(t.Use(x), t.Use(w), t.Use(b))
				out := append([]float64(nil), Floats(y)...)
				options := []BackwardOption{More()}[i:]
				t.Backward(y.Mul(y).Sum(), options...)
				results[d] = append([][]float64{out}, ps.grads()...)
			}
		}
		for i, want := range results[Float32] {
			largest := 0.0
			for _, v := range want {
				largest = math.Max(largest, math.Abs(v))
			}
			for j, w := range want {
				tol := 0x1p-8*math.Abs(w) + 0x1p-20*largest // the result: one rounding, and sums in another order
				if i > 0 {
					tol = 0x1p-6*math.Abs(w) + 0x1p-9*largest // y is rounded, doubled and multiplied
				}
				require.InDelta(t, w, results[BFloat16][i][j], tol, "%s: result %d, element %d", name, i, j)
			}
		}
	}
}

// Means of float16 neither overflow nor lose small terms.
func TestHalfMean(t *testing.T) {
	x := New(hostDevice, Float16, 1<<17)
	Constant(2).Fill(x, 0, 0)
	t1 := NewTape(hostDevice)
	require.Equal(t, 2.0, t1.Input(x).Mean().Item())
	require.Equal(t, 4.0, ops.MSE(t1.Input(x), New(hostDevice, Float16, 1<<17)).Item())
}

// Kernels that widen chunks or rows of 16-bit floats have the bits of the float32 kernels between conversions of whole operands. Programs
// with any shapes, broadcasts, gradients and a second microbatch run both, with one thread and several.
func TestHalfKernelsHaveTheBitsOfFloat32(t *testing.T) {
	for _, threads := range []int{1, 3} {
		if threads == 1 && !reliability.Long(t) {
			continue
		}
		for _, d := range []DType{BFloat16, Float16} {
			compared, table := map[Op]bool{}, *hostDevice.Kernels()
			dev := &faultyDevice{Device: cpu.New(threads), table: table}
			defer dev.Close()
			for _, op := range []Op{OpAdd, OpSub, OpMul, OpDiv, ops.OpMaximum, OpAddTo, OpColSum, ops.OpSoftmax, ops.OpSoftmaxGrad, ops.OpLogSoftmax,
				ops.OpLogSoftmaxGrad, ops.OpLayerNorm, ops.OpLayerNormGradX, ops.OpLayerNormGradW, ops.OpRMSNorm, ops.OpRMSNormGradX,
				ops.OpRMSNormGradW, ops.OpSoftmaxCausal, ops.OpLogSumExp, ops.OpCrossEntropy, ops.OpCrossEntropyGrad} {
				wide := cpu.ThroughFloat32(table[op][Float32])
				dev.table[op][d] = func(q Queue, a *Args) {
					compared[op] = true
					before := outputsOf(a)
					wide(q, a)
					want := outputsOf(a)
					for i, b := range before {
						copy(outputBytes(a, i), b)
					}
					table[op][d](q, a)
					for i, b := range want {
						require.True(t, bytes.Equal(b, outputBytes(a, i)), "%v of %v, result %d, %v", op, d, i, a.Dim)
					}
				}
			}
			for _, s := range [][2]int{{1, 1}, {7, 40}, {300, 301}, {3, 2*1024 + 7}} {
				halfProgram(dev, d, s[0], s[1])
			}
			require.Len(t, compared, 21)
		}
	}
}

func TestLongHalfKernelsHaveTheBitsOfFloat32(t *testing.T) {
	reliability.AsLong(t, TestHalfKernelsHaveTheBitsOfFloat32)
}

func TestLongBFloat16Products(t *testing.T) { reliability.AsLong(t, TestBFloat16Products) }

func outputBytes(a *Args, i int) []byte {
	return unsafe.Slice((*byte)(a.X[i]), a.Len[i]*a.DT[i].Size())
}

func outputsOf(a *Args) (all [][]byte) {
	for i := range a.Outs {
		all = append(all, bytes.Clone(outputBytes(a, i)))
	}
	return all
}

// halfProgram computes what the kernels under test are for, forward and backward, twice.
func halfProgram(dev Device, d DType, rows, cols int) {
	ps := &params{dev: dev, dtype: d}
	x, w, b, col := ps.add("x", UniformInit(-2, 2), rows, cols), ps.add("w", UniformInit(0.5, 1.5), cols),
		ps.add("b", UniformInit(-1, 1), cols), ps.add("c", UniformInit(1, 2), rows, 1)
	for _, p := range ps.list {
		Init(p).Fill(p.Value, HashName(p.Name()), 0)
	}
	classes := make([]int64, rows)
	for i := range classes {
		classes[i] = int64(i*i) % int64(cols)
	}
	labels := FromSlice(classes, rows)
	tape := NewTape(dev)
	for i := range 2 {
		x, w, b, c := tape.Use(x), tape.Use(w), tape.Use(b), tape.Use(col)
		y := ops.LayerNorm(x, w, b, 1e-5).Add(ops.RMSNorm(x, w, 1e-5).Mul(c))
		z := ops.Maximum(ops.Softmax(y).Sub(ops.LogSoftmax(y).Div(c)), b).Add(ops.LayerNorm(y, Tensor{}, Tensor{}, 1e-5))
		if cols > 3 { // not the whole operand
			z = z.Add(z.Slice(1, 1, cols-1).Sum(1).Reshape(rows, 1))
		}
		loss := ops.CrossEntropy(z, labels, ops.CrossEntropyOptions{Smoothing: 0.1, PerRow: i == 0})
		if i == 0 { // gradients of rows that differ
			loss = loss.Mul(loss).Sum()
		}
		scores := y.Slice(0, 0, rows/3*3).Reshape(3, rows/3, cols)
		if rows < 3 || rows/3 > cols {
			scores = y.Reshape(rows, 1, cols)
		}
		loss = loss.Add(ops.SoftmaxCausal(scores).Sum().Cast(Float32)).Add(ops.LogSumExp(z).Sum().Cast(Float32))
		tape.Backward(z.Mul(x.Slice(0, 0, 1).Add(w)).Add(x.Slice(1, 0, 1)).Sum().Cast(Float32).Add(loss), []BackwardOption{More()}[i:]...)
	}
}
