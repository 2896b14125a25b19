package tensor

import (
	"bytes"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Kernels that widen chunks or rows of 16-bit floats have the bits of the float32 kernels between conversions of whole operands. Programs
// with any shapes, broadcasts, gradients and a second microbatch run both, with one thread and several.
func TestHalfKernelsHaveTheBitsOfFloat32(t *testing.T) {
	for _, threads := range []int{1, 3} {
		for _, d := range []DType{BFloat16, Float16} {
			compared := map[Op]bool{}
			dev := &faultyDevice{CPU: NewCPU(threads), table: cpuTable}
			defer dev.Close()
			for _, op := range []Op{OpAdd, OpSub, OpMul, OpDiv, OpMaximum, OpAddTo, OpColSum, OpSoftmax, OpSoftmaxGrad, OpLogSoftmax,
				OpLogSoftmaxGrad, OpLayerNorm, OpLayerNormGradX, OpLayerNormGradW, OpRMSNorm, OpRMSNormGradX, OpRMSNormGradW,
				OpSoftmaxCausal, OpLogSumExp, OpCrossEntropy, OpCrossEntropyGrad} {
				wide := throughFloat32(cpuTable[op][Float32])
				dev.table[op][d] = func(q Queue, a *Args) {
					compared[op] = true
					before := outputsOf(a)
					wide(q, a)
					want := outputsOf(a)
					for i, b := range before {
						copy(outputBytes(a, i), b)
					}
					cpuTable[op][d](q, a)
					for i, b := range want {
						require.True(t, bytes.Equal(b, outputBytes(a, i)), "%v of %v, result %d, %v", op, d, i, a.Dim)
					}
				}
			}
			for _, s := range [][2]int{{1, 1}, {7, 40}, {300, 301}, {3, 2*halfChunk + 7}} {
				halfProgram(dev, d, s[0], s[1])
			}
			require.Len(t, compared, 21)
		}
	}
}

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
		p.init.Fill(p.Value, HashName(p.Name()), 0)
	}
	classes := make([]int64, rows)
	for i := range classes {
		classes[i] = int64(i*i) % int64(cols)
	}
	labels := FromSlice(classes, rows)
	tape := NewTape(dev)
	for i := range 2 {
		x, w, b, c := tape.Use(x), tape.Use(w), tape.Use(b), tape.Use(col)
		y := LayerNorm(x, w, b, 1e-5).Add(RMSNorm(x, w, 1e-5).Mul(c))
		z := y.Softmax().Sub(y.LogSoftmax().Div(c)).Maximum(b).Add(LayerNorm(y, Tensor{}, Tensor{}, 1e-5))
		if cols > 3 { // not the whole operand
			z = z.Add(z.Slice(1, 1, cols-1).Sum(1).Reshape(rows, 1))
		}
		loss := CrossEntropy(z, labels, CrossEntropyOptions{Smoothing: 0.1, PerRow: i == 0})
		if i == 0 { // gradients of rows that differ
			loss = loss.Mul(loss).Sum()
		}
		scores := y.Slice(0, 0, rows/3*3).Reshape(3, rows/3, cols)
		if rows < 3 || rows/3 > cols {
			scores = y.Reshape(rows, 1, cols)
		}
		loss = loss.Add(scores.SoftmaxCausal().Sum().Cast(Float32)).Add(z.LogSumExp().Sum().Cast(Float32))
		tape.Backward(z.Mul(x.Slice(0, 0, 1).Add(w)).Add(x.Slice(1, 0, 1)).Sum().Cast(Float32).Add(loss), []BackwardOption{More()}[i:]...)
	}
}
