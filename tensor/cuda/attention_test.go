package cuda_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// heads is a case of attention.
type heads struct {
	batch, steps, heads, hd int
	causal                  bool
	drop                    float64
}

func (h heads) set(a *tensor.Args) {
	a.Dim = [6]int{h.batch, h.steps, 3 * h.heads * h.hd}
	elems := h.heads * h.steps * h.steps
	a.I = [8]int{h.hd, truth(h.causal), 3*elems + 41, 2*elems + 24, elems}
	a.F[0], a.F[1], a.Key = 1/math.Sqrt(float64(h.hd)), h.drop, 99
}

func (h heads) agree(t *testing.T, dev tensor.Device, d tensor.DType) {
	t.Helper()
	r := rng(6)
	n, stats := h.batch*h.steps*h.heads*h.hd, h.batch*h.heads*h.steps
	stat := d
	if d.IsHalf() {
		stat = tensor.Float32
	}
	qkv := values(d, 3*n, func(int) float64 { return r.NormFloat64() })
	cpu := tensor.NewCPU(1)
	defer cpu.Close()
	tol := tolerance{f32: 2e-5, f64: 1e-12, half: 0x1p-6, floor: 0.5}
	forward := launch{op: tensor.OpAttention, d: d, outs: 2, x: []operand{blank(d, n), blank(stat, stats), qkv}, set: h.set}
	forward.agree(t, dev, tol)
	out := forward.on(t, cpu)
	launch{op: tensor.OpAttentionGrad, d: d, outs: 1, x: []operand{blank(d, 3*n), qkv, out[0],
		values(d, n, func(int) float64 { return r.NormFloat64() }), out[1]}, set: h.set}.agree(t, dev, tol)
}

// TestAttention is of the plain kernel.
func TestAttention(t *testing.T) {
	bothOrders(t, func(t *testing.T, dev *cuda.Device) {
		cuda.Plain(dev, true)
		each(t, fewTypes(t), func(t *testing.T, d tensor.DType) {
			for _, s := range [][4]int{{1, 1, 1, 1}, {2, 2, 3, 2}, {2, 17, 2, 16}, {1, 32, 1, 8}, {1, 33, 2, 7}, {1, 70, 1, 64}, {1, 40, 1, 130}} {
				for _, causal := range []bool{true, false} {
					for _, drop := range []float64{0, 0.3} {
						heads{s[0], s[1], s[2], s[3], causal, drop}.agree(t, dev, d)
					}
				}
			}
		})
	})
}

// A key of NaN reaches the queries that see it and no others.
func TestAttentionOfNaN(t *testing.T) {
	dev := device(t)
	const steps, bad = 50, 40
	qkv := values(tensor.Float32, 3*steps, func(i int) float64 {
		if i == 3*bad+2 {
			return math.NaN()
		}
		return float64(i % 7)
	})
	h := heads{1, steps, 1, 1, true, 0}
	l := launch{op: tensor.OpAttention, d: tensor.Float32, outs: 2,
		x: []operand{blank(tensor.Float32, steps), blank(tensor.Float32, steps), qkv}, set: h.set}
	out := l.on(t, dev)[0]
	for i := range steps {
		require.Equal(t, i >= bad, math.IsNaN(out.at(i)), i)
	}
}

func TestHeadsThatDoNotFit(t *testing.T) {
	dev := device(t)
	tape := tensor.NewTape(dev)
	x := tape.Input(tensor.FromSlice(make([]float32, 3*4096), 1, 1, 3*4096))
	require.PanicsWithError(t, "attention: cuda:0: heads of 4096 features do not fit: too many for float32", func() {
		tensor.Attention(x, 4096, tensor.AttentionOptions{})
	})
}
