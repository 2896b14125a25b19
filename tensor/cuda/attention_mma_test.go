package cuda_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/cuda"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// mmaCases are cases of attention on tensor cores.
func mmaCases(t *testing.T) (cases []heads) {
	for w, hd := range []int{16, 32, 48, 64, 80, 128} {
		for i, steps := range []int{1, 7, 63, 64, 65, 129, 200} {
			h := heads{batch: 1, steps: steps, heads: 1, hd: hd, causal: (i+w)%2 == 0}
			if steps < 63 {
				h.batch, h.heads = 2, 3
			}
			if !long(t) { // every third length of each width
				if steps <= 129 && (i+w)%3 == 0 {
					cases = append(cases, h)
				}
				continue
			}
			if steps <= 65 || i%2 == w%2 || hd == 64 {
				cases = append(cases, h)
			}
			if hd == 64 { // the other half
				h.causal = !h.causal
				cases = append(cases, h)
			}
		}
	}
	if reliability.Long(t) {
		r := rng(8)
		for range 40 {
			cases = append(cases,
				heads{1 + r.IntN(2), 1 + r.IntN(400), 1 + r.IntN(3), 16 * (1 + r.IntN(8)), r.IntN(2) == 0, 0.4 * float64(r.IntN(2))})
		}
	}
	return append(cases, heads{2, 70, 2, 64, true, 0.3}, heads{1, 65, 1, 64, false, 0.3})
}

// run returns output, logarithmic sums and gradients of a case. The gradients are those of given outputs, the CPU's.
func (h heads) run(t *testing.T, dev tensor.Device, d tensor.DType, of []operand) []operand {
	t.Helper()
	r := rng(6)
	n, stats := h.batch*h.steps*h.heads*h.hd, h.batch*h.heads*h.steps
	qkv, gout := values(d, 3*n, func(int) float64 { return r.NormFloat64() }), values(d, n, func(int) float64 { return r.NormFloat64() })
	out := launch{op: ops.OpAttention, d: d, outs: 2, x: []operand{stale(d, n), stale(tensor.Float32, stats), qkv},
		set: h.set}.exactly(t, dev)[:2]
	if of == nil {
		of = out
	}
	return append(out,
		launch{op: ops.OpAttentionGrad, d: d, outs: 1, x: []operand{stale(d, 3*n), qkv, of[0], gout, of[1]}, set: h.set}.exactly(t, dev)[0])
}

// mmaTolerance is wider than the plain kernel's: probabilities and ds are rounded to 16 bits before products.
var mmaTolerance = tolerance{f32: 2e-5, half: 0x1p-6, floor: 1}

func requireNear(t *testing.T, want, got []operand, tol tolerance, what string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		for j := range w.n() {
			if math.IsNaN(w.at(j)) {
				t.Fatalf("%s: number %d of what is wanted is NaN at %d", what, i, j)
			}
		}
		bad := differs(w, got[i], tol)
		name := [...]string{"output", "lse", "gradient", "gradient of keys", "gradient of values"}[i]
		require.Negative(t, bad, "%s of %s: element %d of %d: %v is not %v", name, what, bad, w.n(), got[i].at(max(bad, 0)), w.at(max(bad, 0)))
	}
}

// TestAttentionOnTensorCores compares with the CPU, and with the plain kernel where that is not long. Threads in the other
// order give the same bits, and so does another run. Rows that ldmatrix reads at once are in different banks.
func TestAttentionOnTensorCores(t *testing.T) {
	host := cpu.New(1)
	defer host.Close()
	wants, gots := map[string][]operand{}, map[string][]operand{}
	for _, reverse := range []bool{false, true} {
		emu.Start(t, emu.Config{Reverse: reverse, Banks: true})
		dev := open(t, 0)
		for _, h := range mmaCases(t) {
			if reverse && h.hd != 64 && h.steps != 65 {
				continue
			}
			types := []tensor.DType{tensor.BFloat16}
			if h.hd == 80 {
				types = append(types, tensor.Float16)
			}
			for _, d := range types {
				name := fmt.Sprintf("%v %+v", d, h)
				if !reverse {
					wants[name] = h.run(t, host, d, nil)
				}
				got := h.run(t, dev, d, wants[name])
				requireNear(t, wants[name], got, mmaTolerance, name)
				if reverse {
					require.Equal(t, gots[name], got, name)
				}
				gots[name] = got
			}
		}
		require.NotContains(t, cuda.Compiled(dev, "attention"), "attention", "the plain kernel")
	}
}

func TestLongAttentionOnTensorCores(t *testing.T) { reliability.AsLong(t, TestAttentionOnTensorCores) }

// TestTensorCoresAndPlainKernel compares the two, and two runs.
func TestTensorCoresAndPlainKernel(t *testing.T) {
	dev := device(t)
	cases := []heads{
		{2, 65, 2, 16, true, 0}, {1, 70, 1, 64, true, 0.3}, {1, 40, 2, 128, true, 0},
		{1, 63, 1, 48, false, 0}, {1, 129, 1, 64, true, 0}, {1, 70, 1, 80, true, 0}, {1, 72, 1, 64, true, 0.3},
	}
	if !long(t) {
		cases = cases[:3]
	}
	for _, h := range cases {
		got := h.run(t, dev, tensor.BFloat16, nil)
		require.Equal(t, got, h.run(t, dev, tensor.BFloat16, nil))
		cuda.Plain(dev, true)
		requireNear(t, h.run(t, dev, tensor.BFloat16, got), got, mmaTolerance, fmt.Sprintf("%+v", h))
		cuda.Plain(dev, false)
	}
}

func TestLongTensorCoresAndPlainKernel(t *testing.T) {
	reliability.AsLong(t, TestTensorCoresAndPlainKernel)
}

// What tensor cores cannot do is the plain kernel's.
func TestAttentionWithoutTensorCores(t *testing.T) {
	const forward, forwardMMA = "attention", "attention_mma"
	const grads, gradsMMA = "attention_delta attention_grad_kv attention_grad_q", "attention_mma_q attention_mma_kv"
	for _, c := range []struct {
		d             tensor.DType
		hd            int
		shifted       int // the operand whose memory begins at an odd place
		forward, grad string
	}{
		{tensor.BFloat16, 16, -1, forwardMMA, gradsMMA},
		{tensor.Float32, 16, -1, forward, grads},
		{tensor.Float16, 24, -1, forward, grads},
		{tensor.BFloat16, 144, -1, forward, grads},
		{tensor.BFloat16, 16, 0, forward, grads},
		{tensor.BFloat16, 16, 1, forwardMMA, grads},
		{tensor.BFloat16, 16, 2, forward, grads},
		{tensor.BFloat16, 16, 3, forwardMMA, grads},
		{tensor.BFloat16, 16, 4, forwardMMA, gradsMMA},
	} {
		h := heads{batch: 1, steps: 5, heads: 2, hd: c.hd}
		n := h.steps * h.heads * h.hd
		for _, l := range []launch{
			{op: ops.OpAttention, outs: 2, x: []operand{blank(c.d, n), blank(tensor.Float32, 10), blank(c.d, 3*n)}},
			{op: ops.OpAttentionGrad, outs: 1,
				x: []operand{blank(c.d, 3*n), blank(c.d, 3*n), blank(c.d, n), blank(c.d, n), blank(tensor.Float32, 10)}},
		} {
			if c.shifted >= 0 && c.shifted < len(l.x) {
				l.x[c.shifted].offset = 1
			}
			l.d, l.set = c.d, h.set
			dev := device(t)
			l.on(t, dev)
			want := map[tensor.Op]string{ops.OpAttention: c.forward, ops.OpAttentionGrad: c.grad}[l.op]
			require.Equal(t, want, strings.Join(cuda.Compiled(dev, "attention"), " "), "%+v", c)
		}
	}
}

// TestLongDeletedBarrierInAttention takes each barrier and each wait for copies out of the kernels. Some thread then sees rows that
// are not there yet.
func TestLongDeletedBarrierInAttention(t *testing.T) {
	reliability.SkipUnlessLong(t)
	emu.Only(t, "a GPU may be right by chance")
	h := heads{batch: 1, steps: 140, heads: 1, hd: 32}
	for _, file := range []string{"attention_mma.cu", "attention_mma_q.cu", "attention_mma_kv.cu"} {
		for _, call := range []string{"__syncthreads();", "copies_wait<0>();", "__syncwarp();  // until the rows are there"} {
			t.Run(file+" without "+call, func(t *testing.T) {
				emu.Start(t, emu.Config{Reverse: true}) // the order of threads that shows it
				dev := open(t, 0)
				want := h.run(t, dev, tensor.BFloat16, nil)
				require.NoError(t, cuda.Alter(dev, file, call, ""))
				require.NotEqual(t, want, h.run(t, dev, tensor.BFloat16, want), "nobody noticed")
			})
		}
	}
}

func TestTensorCoresAllocateNothing(t *testing.T) {
	dev := device(t)
	require.NoError(t, dev.Bind())
	h := heads{batch: 1, steps: 3, heads: 1, hd: 16}
	grad, qkv, lse := tensor.New(dev, tensor.BFloat16, 144), tensor.New(dev, tensor.BFloat16, 144), tensor.New(dev, tensor.Float32, 3)
	out, gout := tensor.New(dev, tensor.BFloat16, 48), tensor.New(dev, tensor.BFloat16, 48)
	for op, xs := range map[tensor.Op][]tensor.Tensor{
		ops.OpAttention: {out, lse, qkv}, ops.OpAttentionGrad: {grad, qkv, out, gout, lse},
	} {
		a := tensor.Args{Op: op, DType: tensor.BFloat16, N: len(xs)}
		h.set(&a)
		allocatesNothing(t, dev, &a, xs)
	}
}

// TestBankConflictsShow takes the eight elements between rows away.
func TestBankConflictsShow(t *testing.T) {
	emu.Only(t, "on a GPU they cost time")
	emu.Start(t, emu.Config{Banks: true})
	dev, err := cuda.NewDevice(0)
	require.NoError(t, err)
	h := heads{batch: 1, steps: 5, heads: 1, hd: 64}
	h.run(t, dev, tensor.BFloat16, nil)
	require.NoError(t, cuda.Alter(dev, "attention_mma.cu", "LD = HD + 8", "LD = HD"))
	require.ErrorContains(t, tensor.Try(func() { h.run(t, dev, tensor.BFloat16, nil) }), "share banks")
	require.Error(t, dev.Close()) // it is lost
}
