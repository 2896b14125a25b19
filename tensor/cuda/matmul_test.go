package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// product is a launch of OpMatMul or OpLinearAct, with rows that have `extra` unused elements.
type product struct {
	batch, m, n, k int
	ta, tb, bias   bool
	extra          int
	beta           float64
	act            tensor.Activation
	pre            bool
	repeatB        bool
}

// sumsOf is the tolerance for sums of k products in different orders.
func sumsOf(k int) tolerance {
	s := math.Sqrt(float64(k)) + 1
	return tolerance{f32: 1e-6 * s, f64: 1e-14 * s, half: 0x1p-7, floor: 10}
}

func (p product) launch(r *rand.Rand, d tensor.DType) launch {
	lda, ldb, ldc := p.k+p.extra, p.n+p.extra, p.n+p.extra
	ar, br := p.m, p.k
	if p.ta {
		lda, ar = p.m+p.extra, p.k
	}
	if p.tb {
		ldb, br = p.k+p.extra, p.n
	}
	sb := br * ldb
	if p.repeatB {
		sb = 0
	}
	l := launch{op: tensor.OpMatMul, d: d, outs: 1}
	if p.act != tensor.NoActivation {
		l.op = tensor.OpLinearAct
	}
	if p.pre {
		l.outs = 2
		l.x = append(l.x, blank(d, p.m*ldc))
	}
	l.x = append(l.x, random(r, d, p.batch*p.m*ldc), random(r, d, p.batch*ar*lda).shifted(p.extra%2), random(r, d, max(p.batch*br*ldb, 1)))
	if p.bias {
		l.x = append(l.x, random(r, d, p.n))
	}
	l.set = func(a *tensor.Args) {
		a.Dim = [6]int{p.batch, p.m, p.n, p.k}
		a.NDim = 4
		a.I[0], a.I[1], a.I[5] = truth(p.ta), truth(p.tb), int(p.act)
		a.F[0] = p.beta
		a.Stride[0][0], a.Stride[0][1] = p.m*ldc, ldc
		a.Stride[1][0], a.Stride[1][1] = ar*lda, lda
		a.Stride[2][0], a.Stride[2][1] = sb, ldb
	}
	return l
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestMatMul(t *testing.T) {
	dev := device(t)
	each(t, floatTypes, func(t *testing.T, d tensor.DType) {
		r := rng(2)
		for _, s := range [][3]int{{1, 1, 1}, {5, 7, 3}, {16, 24, 32}, {65, 10, 33}, {3, 4, 0}} {
			for i := range 16 {
				p := product{batch: 1, m: s[0], n: s[1], k: s[2], ta: i&1 != 0, tb: i&2 != 0, bias: i&4 != 0, extra: i / 8 * 3,
					beta: float64(i % 3 / 2)}
				if p.bias {
					p.beta = 0
				}
				if p.extra > 0 {
					p.bias = false
				}
				p.launch(r, d).agree(t, dev, sumsOf(p.k))
			}
		}
		for _, p := range []product{
			{batch: 3, m: 4, n: 5, k: 6}, {batch: 3, m: 4, n: 5, k: 6, ta: true, beta: 1}, {batch: 2, m: 8, n: 8, k: 8, tb: true, repeatB: true},
		} {
			p.launch(r, d).agree(t, dev, sumsOf(p.k))
		}
	})
}

func TestLinearAct(t *testing.T) {
	dev := device(t)
	each(t, floatTypes[:2], func(t *testing.T, d tensor.DType) {
		r := rng(3)
		for _, act := range []tensor.Activation{tensor.ActReLU, tensor.ActGELU, tensor.ActGELUTanh, tensor.ActSiLU} {
			for _, pre := range []bool{false, true} {
				if pre && act == tensor.ActReLU {
					continue // its gradient takes the output
				}
				for _, n := range []int{16, 13} {
					for _, bias := range []bool{false, true} {
						product{batch: 1, m: 9, n: n, k: 12, tb: true, act: act, pre: pre, bias: bias}.launch(r, d).agree(t, dev, sumsOf(12))
					}
				}
			}
		}
	})
}

func TestActGrad(t *testing.T) {
	dev := device(t)
	each(t, floatTypes[:2], func(t *testing.T, d tensor.DType) {
		r := rng(4)
		for _, act := range []tensor.Activation{tensor.ActReLU, tensor.ActGELU, tensor.ActGELUTanh, tensor.ActSiLU} {
			for _, s := range [][2]int{{1, 1}, {33, 7}, {300, 5}} {
				for outs := 1; outs <= 2; outs++ {
					l := launch{op: tensor.OpActGrad, d: d, outs: outs, x: []operand{blank(d, s[0]*s[1])},
						set: func(a *tensor.Args) { a.Dim[0], a.Dim[1], a.I[0] = s[0], s[1], int(act) }}
					if outs == 2 {
						l.x = append(l.x, blank(d, s[1]))
					}
					l.x = append(l.x, random(r, d, s[0]*s[1]), random(r, d, s[0]*s[1]))
					l.agree(t, dev, sumsOf(s[0]))
				}
			}
		}
	})
}

// 16-bit numbers halfway between two 8-bit ones, and their neighbours, round as on the CPU.
func TestRound8(t *testing.T) {
	dev := device(t)
	var xs []float64
	for i := range 1 << 16 {
		v := math.Float32frombits(uint32(i) << 16)
		xs = append(xs, float64(v), float64(math.Nextafter32(v, 0)), float64(math.Float32frombits(uint32(i)<<16|0x8000)))
	}
	x := values(tensor.Float32, len(xs), func(i int) float64 { return xs[i] })
	for format := range 2 {
		launch{op: ops.OpRound8, d: tensor.Float32, outs: 1, x: []operand{blank(tensor.Float32, len(xs)), x},
			set: func(a *tensor.Args) { a.I[0] = format }}.agree(t, dev, exact)
	}
}

// A product of 8-bit floats and its gradients equal those of the CPU, with cuBLASLt and without. cuBLASLt sums with fewer bits in the
// forward pass, and only there: each term is cut to 14 bits of the largest, so what is lost goes with the magnitudes of the terms.
func TestFloat8Linear(t *testing.T) {
	r := rng(5)
	xs, ws, gs := random(r, tensor.Float32, 32*48), random(r, tensor.Float32, 64*48), random(r, tensor.Float32, 32*64)
	run := func(dev tensor.Device, d tensor.DType, s ops.Float8) (out [3][]float64) {
		param := func(o operand, rows, cols int) *tensor.Param {
			p := tensor.NewParam(tensor.Constant(0), rows, cols)
			p.Make(dev, d, 0)
			host := values(d, o.n(), o.at)
			x := tensor.New(dev, d, rows, cols)
			dev.Copy(x.Ptr(), unsafe.Pointer(unsafe.SliceData(host.bytes)), len(host.bytes), dev.Queue(0))
			tensor.Copy(p.Value, x)
			return p
		}
		x, w, g := param(xs, 32, 48), param(ws, 64, 48), param(gs, 32, 64)
		tape := tensor.NewTape(dev)
		defer tape.Close()
		y := ops.Float8Linear(tape.Use(x), tape.Use(w), s)
		out[0] = tensor.Floats(tensor.ToHost(y))
		tape.BackwardFrom([]tensor.Tensor{y}, []tensor.Tensor{tape.Input(g.Value)})
		out[1], out[2] = tensor.Floats(tensor.ToHost(x.Grad)), tensor.Floats(tensor.ToHost(w.Grad))
		return out
	}
	host := cpu.New(1)
	defer host.Close()
	magnitudes := make([]float64, 32*64)
	for i := range magnitudes {
		for k := range 48 {
			magnitudes[i] += math.Abs(xs.at(i/64*48+k) * ws.at(i%64*48+k))
		}
	}
	for _, plain := range []bool{false, true} {
		dev := device(t)
		cuda.Plain(dev, plain)
		for d, eps := range map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.BFloat16: 0x1p-7, tensor.Float16: 0x1p-10} {
			for _, s := range []ops.Float8{ops.PerTensor, ops.PerRow} {
				want, got := run(host, d, s), run(dev, d, s)
				worst := 0.0
				for i := range want {
					for k, v := range want[i] {
						allowed := eps * max(math.Abs(v), 1)
						if i == 0 && !plain {
							worst = max(worst, math.Abs(v-got[i][k])/max(math.Abs(v), 1))
							allowed += 0x1p-13 * magnitudes[k] // fast accumulation
						}
						require.InDelta(t, v, got[i][k], allowed, "%v, scaling %d, result %d, element %d", d, s, i, k)
					}
				}
				if d == tensor.Float32 && !plain && !emu.OnGPU() {
					require.Greater(t, worst, eps, "sums of the forward product have few bits, those of gradients have not")
				}
			}
		}
		if plain || !emu.OnGPU() {
			require.Equal(t, plain, len(cuda.Compiled(dev, "numbers8")) > 0, "what computed it")
		}
	}
}

// poisoned is an output all of which must be overwritten.
func poisoned(d tensor.DType, n int) operand {
	return values(d, n, func(int) float64 { return math.NaN() })
}

// trained returns output, lse and gradients of attention; the operands depend only on the seed. The gradients are those of the given
// outputs, or its own. The gradient of a query is a sum of k·P·(dP - delta), where delta is dO·O: of a row that sees one key, dP is delta,
// and what remains is the rounding of O to 16 bits. So gradients are compared of the same O.
func (h heads) trained(t *testing.T, dev tensor.Device, seed uint64, of []operand) []operand {
	t.Helper()
	const d = tensor.BFloat16
	r := rng(seed)
	n, stats := h.batch*h.steps*h.heads*h.hd, h.batch*h.heads*h.steps
	qkv, gout := values(d, 3*n, func(int) float64 { return r.NormFloat64() }), values(d, n, func(int) float64 { return r.NormFloat64() })
	out := launch{op: ops.OpAttention, d: d, outs: 2, x: []operand{poisoned(d, n), poisoned(tensor.Float32, stats), qkv},
		set: h.set}.on(t, dev)[:2]
	if of == nil {
		of = out
	}
	grads := launch{op: ops.OpAttentionGrad, d: d, outs: 1, x: []operand{poisoned(d, 3*n), qkv, of[0], gout, of[1]},
		set: h.set}.on(t, dev)
	return append(out, grads[0])
}

// TestAttentionAtRealSizes compares attention on tensor cores with the plain kernel, and two runs: with the lengths of models on a GPU,
// with others on the emulator; on compute capability 9.0, the kernels of other devices, too.
func TestAttentionAtRealSizes(t *testing.T) {
	dev := device(t)
	cases := []heads{{64, 4, 2, 64, true, 0.1}, {1, 152, 2, 64, true, 0.1}} // many rows that see one key
	if !long(t) {
		cases = cases[1:]
	}
	if emu.Real() {
		cases = nil
		for _, steps := range []int{1024, 4096} {
			for _, hd := range []int{64, 128} {
				cases = append(cases, heads{2, steps, 2, hd, true, 0}, heads{2, steps, 2, hd, false, 0}, heads{2, steps, 2, hd, true, 0.1})
			}
		}
	}
	for range 2 {
		for i, h := range cases {
			name, seed := fmt.Sprintf("%+v", h), uint64(20+i)
			got := h.trained(t, dev, seed, nil)
			require.Equal(t, got, h.trained(t, dev, seed, nil), "another run of %s", name)
			cuda.Plain(dev, true)
			requireNear(t, h.trained(t, dev, seed, got), got, mmaTolerance, name)
			cuda.Plain(dev, false)
		}
		if !cuda.Hopper(dev, true) {
			require.Contains(t, cuda.Compiled(dev, "attention"), "attention_mma")
			return
		}
		require.NotContains(t, cuda.Compiled(dev, "attention"), "attention_mma")
		require.Contains(t, cuda.Compiled(dev, "attention"), "attention_wgmma")
		cuda.Hopper(dev, false)
	}
}

func TestLongAttentionAtRealSizes(t *testing.T) { reliability.AsLong(t, TestAttentionAtRealSizes) }

// TestGroupedAtRealSizes does the same with grouped products, as for experts.
func TestGroupedAtRealSizes(t *testing.T) {
	dev := device(t)
	g := grouped{136, 72, []int{100, 0, 33, 1}, true, 0}
	if emu.Real() {
		g = grouped{3072, 768, []int{1000, 0, 2049, 1, 513}, true, 0}
	}
	for range 2 {
		for _, l := range []launch{g.forward(tensor.BFloat16), g.grad(tensor.BFloat16)} {
			got := l.on(t, dev)
			require.Equal(t, got, l.on(t, dev), "another run of %v", l.op)
			cuda.Plain(dev, true)
			require.Negative(t, differs(l.on(t, dev)[0], got[0], sumsOf(max(g.k, g.rows()))), "%v", l.op)
			cuda.Plain(dev, false)
		}
		if !cuda.Hopper(dev, true) {
			require.Contains(t, cuda.Compiled(dev, "grouped"), "grouped_mma_grad")
			return
		}
		require.NotContains(t, cuda.Compiled(dev, "grouped"), "grouped_mma_grad")
		require.Contains(t, cuda.Compiled(dev, "grouped"), "grouped_wgmma_grad")
		cuda.Hopper(dev, false)
	}
}
