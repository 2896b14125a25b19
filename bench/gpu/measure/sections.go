package measure

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Section is a group of measurements. Unless Alone is set, torch_gpu.py has a section of the same name with the same cases.
type Section struct {
	Name, What string
	Alone      bool
	run        func(*meter) error
}

// Sections are all that there are.
var Sections = []Section{
	// The sections that say most come first: when there is no time left, the rest is not measured.
	{"copy", "from one place of the device's memory to another, bytes read and written", false, measureCopy},
	{"gemm", "matrix products", false, measureGEMM},
	{"attention", "causal attention of bfloat16, half of the products counted", false, measureAttention},
	{"rows", "kernels that wait for memory, bytes read and written", false, measureRows},
	{"float8", "products of 8-bit floats with scales, and a Linear of them", false, measureFloat8},
	{"gpt2", "training steps of GPT-2 124M, bfloat16 with float32 masters, clipping, AdamW", false, measureGPT2},
	{"account", "each operation of a step of gpt2, alone", true, measureAccount},
	{"conv", "the second convolution of the network of cnn, float32, and a larger one, bfloat16", false, measureConv},
	{"cnn", "training steps of the network of examples/ddp-mnist -model cnn, SGD with momentum, float32", false, measureCNN},
	{"mlp", "training steps of 784-512-512-10, SGD with momentum, float32", false, measureMLP},
	{"host", "what the host needs for a small operation", false, measureHost},
	{"allreduce", "sums of float32 between two ranks that share the device, bytes read and written", true, measureAllReduce},
	{NCCLPair, "sums of float32 by NCCL between two ranks that share the device, bytes read and written", true, measureNCCLPair},
	{"stages", "training steps of a GPT on one GPU, and of a pipeline of two GPUs over NCCL", true, measureStages},
	{"ring", "attention of a sequence of bfloat16 on one GPU, and in a ring of two GPUs over NCCL", true, measureRing},
	{"grouped", "products of 32768 rows of bfloat16 in 8 groups of unequal size with a matrix each, as of experts", false, measureGrouped},
	{"gpt", "training steps of a small GPT with 512 tokens, bfloat16 with float32 masters, clipping, AdamW", false, measureGPT},
	{"fusions", "a step of gpt2 without one of the operations that do the work of several", true, measureFusions},
}

// pick returns the size for a GPU, or the small one.
func (m *meter) pick(gpu, small int) int {
	if m.small {
		return small
	}
	return gpu
}

func measureCopy(m *meter) error {
	n := m.pick(1<<30, 1<<20)
	x, y := m.random(1, tensor.Float32, n), tensor.New(m.dev, tensor.Float32, n)
	fn := func() { tensor.Copy(y, x) }
	check := func() error {
		fn()
		const some = 1 << 12
		return samples(n, some, exact, func(i int) (got, want []float64) { return part(y, i, some), part(x, i, some) })
	}
	return m.add(memory.Format(4*n), "GB/s", 8e-9*float64(n), check, fn)
}

// hostOp is y = 2x + 1 of 1024 elements, on a tape that is reset now and then.
func hostOp(m *meter) (op func(), check func() error) {
	tape := tensor.NewTape(m.dev, tensor.NoGrad())
	x, calls := m.random(1, tensor.Float32, 1024), 0
	op = func() {
		if calls++; calls%100 == 0 {
			tape.Reset()
		}
		tape.Input(x).Affine(2, 1)
	}
	return op, func() error {
		y, want := tensor.Floats(tape.Input(x).Affine(2, 1)), tensor.Floats(x)
		for i := range want {
			want[i] = 2*want[i] + 1
		}
		return bound{0, 1e-6}.near(y, want)
	}
}

// gemms are m, n and k of x·wᵀ with x [m,k] and w [n,k]: squares, and the layers of GPT-2 at 32 × 1024 tokens.
var gemms = [][3]int{{1024, 1024, 1024}, {2048, 2048, 2048}, {4096, 4096, 4096}, {8192, 8192, 8192},
	{32768, 2304, 768}, {32768, 768, 3072}, {32768, 50304, 768}}

// measureGEMM measures products by the algorithms that cuBLASLt's heuristic names, and by those that were chosen by time.
func measureGEMM(m *meter) error {
	failed := measureProducts(m, "")
	if m.dev.Host() {
		return failed
	}
	return errors.Join(failed, m.tuned(func(on *meter) error { return measureProducts(on, ", tuned") }))
}

// tuned measures on another device, whose products use the algorithms that were fastest.
func (m *meter) tuned(measure func(on *meter) error) error {
	dev, closer, err := openTuned(m.device)
	if err != nil {
		return err
	}
	defer closer()
	on := *m
	on.dev = dev
	err = measure(&on)
	m.rows = on.rows
	return err
}

func measureProducts(m *meter, how string) error {
	var failed error
	shapes := gemms
	if m.small {
		shapes = [][3]int{{64, 64, 64}}
	}
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for _, s := range shapes {
			tape := tensor.NewTape(m.dev, tensor.NoGrad())
			x, w := m.random(1, dtype, s[0], s[2]), m.random(2, dtype, s[1], s[2])
			failed = errors.Join(failed, m.add(fmt.Sprintf("%v %dx%dx%d%s", dtype, s[0], s[1], s[2], how), "TFLOP/s",
				2e-12*float64(s[0])*float64(s[1])*float64(s[2]), func() error { return m.checkProduct(tape, x, w) }, func() {
					tensor.MatMul(tape.Input(x), tape.Input(w), false, true)
					tape.Reset()
				}))
		}
	}
	return failed
}

func measureRows(m *meter) error {
	var failed error
	for _, dtype := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		failed = errors.Join(failed, m.rowKernels(dtype, m.pick(16384, 64), m.pick(4096, 64), "add gelu softmax layernorm"),
			m.rowKernels(dtype, m.pick(32768, 32), m.pick(768, 48), "layernorm rmsnorm")) // rows of GPT-2
	}
	return errors.Join(failed, m.normGradient(tensor.Float32, m.pick(32768, 100), m.pick(768, 48)),
		m.normGradient(tensor.BFloat16, m.pick(32768, 100), m.pick(768, 48)),
		m.crossEntropy(tensor.BFloat16, m.pick(32768, 16), m.pick(50304, 200)), m.adamw())
}

// rowKernels measures some kernels on r rows of c elements.
func (m *meter) rowKernels(dtype tensor.DType, r, c int, names string) (failed error) {
	tape := tensor.NewTape(m.dev, tensor.NoGrad())
	x, y, w, b := m.random(1, dtype, r, c), m.random(2, dtype, r, c), m.random(3, dtype, c), m.random(4, dtype, c)
	size := 1e-9 * float64(r*c*dtype.Size())
	for _, k := range []struct {
		name  string
		moved float64 // times the size of x
		fn    func(x tensor.Tensor) tensor.Tensor
		row   func(x, y, w, b []float64)
	}{
		{"add", 3, func(x tensor.Tensor) tensor.Tensor { return x.Add(tape.Input(y)) }, addRow},
		{"gelu", 2, tensor.Tensor.GELUTanh, geluRow},
		{"softmax", 2, ops.Softmax, softmaxRow},
		{"layernorm", 2, func(x tensor.Tensor) tensor.Tensor { return ops.LayerNorm(x, tape.Input(w), tape.Input(b), 1e-5) }, layerNormRow},
		{"rmsnorm", 2, func(x tensor.Tensor) tensor.Tensor { return ops.RMSNorm(x, tape.Input(w), 1e-5) }, rmsNormRow},
	} {
		if !slices.Contains(strings.Fields(names), k.name) {
			continue
		}
		check := func() error {
			out := m.kept(k.fn(tape.Input(x)))
			tape.Reset()
			return samples(r*c, c, rounded(dtype), func(i int) (got, want []float64) {
				want = part(x, i, c)
				k.row(want, part(y, i, c), tensor.Floats(w), tensor.Floats(b))
				return part(out, i, c), want
			})
		}
		failed = errors.Join(failed, m.add(fmt.Sprintf("%v %s %dx%d", dtype, k.name, r, c), "GB/s", k.moved*size, check, func() {
			k.fn(tape.Input(x))
			tape.Reset()
		}))
	}
	return failed
}

// adamw is the gradient of a sum, and a step. The sum reads the parameter, and the gradient is written. Per parameter, the step reads four
// numbers and writes three.
func (m *meter) adamw() error {
	n := m.pick(11264, 64)
	layer := nn.NewLinear(n, n)
	layer.B = nil
	const lr, decay = 1e-4, 0.1
	opt := optim.NewAdamW(nn.Init(layer, m.dev, tensor.Float32, 1), optim.AdamWConfig{LR: lr, WeightDecay: decay})
	tape := tensor.NewTape(m.dev)
	step := func() {
		tape.Backward(tape.Use(layer.W).Sum())
		must(opt.Step())
		tape.Reset()
	}
	check := func() error { // all gradients are 1, and so is the first moment by the root of the second
		before := tensor.New(m.dev, tensor.Float32, n, n)
		tensor.Copy(before, layer.W.Value)
		step()
		return samples(n*n, n, bound{0, 3e-7}, func(i int) (got, want []float64) {
			want = part(before, i, n)
			for j := range want {
				want[j] -= lr * (1 + decay*want[j])
			}
			return part(layer.W.Value, i, n), want
		})
	}
	return m.add(fmt.Sprintf("float32 sum, gradient and AdamW of %dx%d", n, n), "GB/s", 36e-9*float64(n*n), check, step)
}

// launch runs a kernel with the given operands, which may be none.
func (m *meter) launch(a *tensor.Args, x ...tensor.Tensor) {
	a.N = len(x)
	for i, x := range x {
		if !x.IsZero() { // else it is absent
			a.X[i], a.Len[i], a.DT[i] = x.Ptr(), x.Len(), x.DType()
		}
	}
	m.dev.Kernels()[a.Op][a.DType](m.dev.Queue(0), a)
}

// attentions are batch, positions, heads and features of a head: those of GPT-2, and a longer and wider one.
var attentions = [][4]int{{32, 1024, 12, 64}, {4, 4096, 16, 128}}

func measureAttention(m *meter) error {
	var failed error
	for _, s := range attentions {
		b, steps, heads, hd := m.pick(s[0], 1), m.pick(s[1], 32), m.pick(s[2], 2), s[3]
		width := heads * hd
		qkv, out, lse := m.random(1, tensor.BFloat16, b, steps, 3*width), tensor.New(m.dev, tensor.BFloat16, b, steps, width),
			tensor.New(m.dev, tensor.Float32, b, heads, steps)
		grad, gout := tensor.New(m.dev, tensor.BFloat16, b, steps, 3*width), m.random(2, tensor.BFloat16, b, steps, width)
		launch := func(op tensor.Op, outs int, x ...tensor.Tensor) {
			a := &tensor.Args{Op: op, DType: tensor.BFloat16, Outs: outs, Dim: [6]int{b, steps, 3 * width}, I: [8]int{hd, 1}}
			a.F[0] = 1 / math.Sqrt(float64(hd))
			m.launch(a, x...)
		}
		forward := func() { launch(ops.OpAttention, 2, out, lse, qkv) }
		name, work := fmt.Sprintf("%dx%d, %d heads of %d", b, steps, heads, hd), 2e-12*float64(b*heads*hd)*float64(steps)*float64(steps)
		backward := func() {
			forward()
			launch(ops.OpAttentionGrad, 1, grad, qkv, out, gout, lse)
		}
		h := head{qkv: qkv, gout: gout, steps: steps, width: width, hd: hd}
		failed = errors.Join(failed,
			m.add(name+", forward", "TFLOP/s", work, func() error { forward(); return h.outputs(out) }, forward),
			m.add(name+", and backward", "TFLOP/s", 3.5*work, func() error { backward(); return h.gradients(grad) }, backward))
	}
	return failed
}

func measureGrouped(m *meter) error {
	var failed error
	const groups = 8
	unit := m.pick(512, 1)
	rows, sizes := groups*groups*unit, make([]int64, groups)
	for i := range sizes {
		sizes[i] = int64((2*i + 1) * unit)
	}
	counts := tensor.New(m.dev, tensor.Int64, groups)
	tensor.Copy(counts, tensor.FromSlice(sizes, groups))
	for _, s := range [][2]int{{m.pick(768, 16), m.pick(3072, 64)}, {m.pick(3072, 64), m.pick(768, 16)}} {
		in, out := s[0], s[1]
		x, w := m.random(1, tensor.BFloat16, rows, in), m.random(2, tensor.BFloat16, groups, out, in)
		y := tensor.New(m.dev, tensor.BFloat16, rows, out)
		gx, gw, gy := tensor.New(m.dev, tensor.BFloat16, rows, in), tensor.New(m.dev, tensor.BFloat16, groups, out, in),
			m.random(3, tensor.BFloat16, rows, out)
		launch := func(op tensor.Op, n, k, tb int, x ...tensor.Tensor) {
			m.launch(&tensor.Args{Op: op, DType: tensor.BFloat16, Outs: 1, Dim: [6]int{rows, n, k, groups}, NDim: 4, I: [8]int{tb}},
				append(x, counts)...)
		}
		forward := func() { launch(ops.OpGroupedLinear, out, in, 1, y, x, w) }
		name, work := fmt.Sprintf("%d rows, %d to %d", rows, in, out), 2e-12*float64(rows)*float64(in)*float64(out)
		backward := func() {
			forward()
			launch(ops.OpGroupedLinear, in, out, 0, gx, gy, w)
			launch(ops.OpGroupedGrad, out, in, 0, gw, gy, x)
		}
		g := experts{sizes: sizes, in: in, out: out, x: x, w: w, gy: gy}
		failed = errors.Join(failed,
			m.add(name+", forward", "TFLOP/s", work, func() error { forward(); return g.outputs(y) }, forward),
			m.add(name+", and backward", "TFLOP/s", 3*work, func() error { backward(); return g.gradients(gx, gw) }, backward))
	}
	return failed
}
