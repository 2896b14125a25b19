package cuda_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/capture"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// trainee is a model in training, with everything that changes between steps: dropout, a schedule, AdamW's bias corrections, clipping, and
// parameters with another learning rate.
type trainee struct {
	params nn.Params
	tape   *tensor.Tape
	opt    *optim.Optimizer
	loss   tensor.Tensor
	more   int // microbatches before the last one
	batch  func(i int) (x, y tensor.Tensor)
	step   func(in ...tensor.Tensor) error
}

func newTrainee(dev tensor.Device, model any, forward func(x nn.T) nn.T, dtype tensor.DType,
	batch func(i int) (x, y tensor.Tensor)) *trainee {
	m := &trainee{params: nn.Init(model, dev, dtype, 3), tape: tensor.NewTape(dev, tensor.Seed(5)), batch: batch}
	m.opt = optim.NewAdamW(m.params, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.5,
		Schedule: schedule.Warmup(4, schedule.Cosine(0.1, 20)),
		Groups:   []optim.Group{{Match: optim.Vectors, LRScale: 0.5}}})
	m.loss = tensor.New(dev, map[bool]tensor.DType{false: dtype, true: tensor.Float32}[dtype.IsHalf()])
	m.step = func(in ...tensor.Tensor) error {
		for range m.more {
			m.tape.Backward(nn.CrossEntropy(forward(m.tape.Input(in[0])), in[1]), tensor.More())
		}
		loss := nn.CrossEntropy(forward(m.tape.Input(in[0])), in[1])
		tensor.Copy(m.loss, loss)
		m.tape.Backward(loss)
		err := m.opt.Step()
		m.tape.Reset()
		return err
	}
	return m
}

// mlp is a network with dropout on 16 rows.
func mlp(dev tensor.Device, dtype tensor.DType) *trainee {
	net := nn.Sequential{nn.NewLinear(20, 24), nn.ReLU, nn.NewDropout(0.3), nn.NewLinear(24, 5)}
	return newTrainee(dev, net, net.Forward, dtype, func(i int) (x, y tensor.Tensor) {
		a, b := make([]float32, 16*20), make([]int64, 16)
		tensor.UniformInit(-1, 1).Fill(tensor.FromSlice(a, len(a)), 7, uint64(i*len(a)))
		for j := range b {
			b[j] = int64((i + 3*j) % 5)
		}
		x = tensor.FromSlice(a, 16, 20)
		if dtype == tensor.Float64 {
			wide := make([]float64, len(a))
			for j := range a {
				wide[j] = float64(a[j])
			}
			x = tensor.FromSlice(wide, 16, 20)
		}
		return x, tensor.FromSlice(b, 16)
	})
}

// tinyGPT is a layer of GPT-2 with dropout in all three places.
type tinyGPT struct {
	Tok, Pos     *nn.Embedding
	Norm1, Norm2 *nn.LayerNorm
	Attn         *nn.Attention
	MLP          *nn.MLP
	Drop         *nn.Dropout
	Head         *nn.Linear
}

func (m *tinyGPT) Forward(ids nn.T) nn.T {
	x := m.Drop.Forward(m.Tok.Forward(ids).Add(ids.Tape().Use(m.Pos.W)))
	x = x.Add(m.Attn.Forward(m.Norm1.Forward(x)))
	return m.Head.Forward(x.Add(m.MLP.Forward(m.Norm2.Forward(x))))
}

func gptStep(dev tensor.Device, dtype tensor.DType) *trainee {
	const vocab, length, width, rows = 11, 6, 8, 2
	m := &tinyGPT{nn.NewEmbedding(vocab, width), nn.NewEmbedding(length, width), nn.NewLayerNorm(width), nn.NewLayerNorm(width),
		nn.NewAttention(width, 2), nn.NewMLP(width, 2*width), nn.NewDropout(0.2), nn.NewLinear(width, vocab)}
	m.Attn.Drop = nn.NewDropout(0.25)
	return newTrainee(dev, m, m.Forward, dtype, func(i int) (x, y tensor.Tensor) {
		a, b := make([]int64, rows*length), make([]int64, rows*length)
		for j := range a {
			a[j], b[j] = int64((i*5+j*j)%vocab), int64((i*5+(j+1)*(j+1))%vocab)
		}
		return tensor.FromSlice(a, rows, length), tensor.FromSlice(b, rows, length)
	})
}

// accumulating is mlp with a step of three microbatches, each with its own dropout.
func accumulating(dev tensor.Device, dtype tensor.DType) *trainee {
	m := mlp(dev, dtype)
	m.more = 2
	return m
}

var trainees = map[string]func(tensor.Device, tensor.DType) *trainee{"mlp": mlp, "accumulating": accumulating, "gpt": gptStep}

// state returns all that a step changes, on the device and on the host.
func (m *trainee) state() (v []float64, host string) {
	st := m.opt.State()
	for _, x := range st.Tensors {
		v = append(v, tensor.Floats(x.Tensor)...)
	}
	for _, p := range m.params {
		v = append(v, tensor.Floats(p.Value)...)
	}
	return append(v, m.loss.Item(), m.opt.GradNorm()), fmt.Sprint(st.Steps, st.Counts, m.tape.State(), m.opt.LR())
}

// bothStep does step i of a trainee with its function, and of its copy with a captured step, and compares the bits.
func bothStep(t *testing.T, i int, eager, m *trainee, step *capture.Step, x, y tensor.Tensor) {
	t.Helper()
	require.NoError(t, eager.step(x, y))
	require.NoError(t, step.Run(x, y))
	want, host := eager.state()
	got, gotHost := m.state()
	require.Equal(t, want, got, "step %d", i)
	require.Equal(t, host, gotHost)
}

// BenchmarkStep measures the host's part of a training step. The emulated stream is held, so no kernel runs at the same time.
func BenchmarkStep(b *testing.B) {
	dev := device(b)
	q := dev.Queue(0).(*cuda.Queue)
	require.NoError(b, dev.Bind())
	for name, make := range trainees {
		m := make(dev, tensor.Float32)
		hx, hy := m.batch(0)
		x, y := tensor.New(dev, hx.DType(), hx.Shape().Dims...), tensor.New(dev, tensor.Int64, hy.Shape().Dims...)
		step := capture.New(dev, m.step)
		for what, run := range map[string]func(...tensor.Tensor) error{"eager": m.step, "captured": step.Run} {
			for range 3 {
				require.NoError(b, run(x, y))
			}
			b.Run(name+"/"+what, func(b *testing.B) {
				before := dev.GPU().Stats().Launches
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					require.NoError(b, q.Sync())
					hold(q)
					b.StartTimer()
					require.NoError(b, run(x, y))
					b.StopTimer()
					release(q)
					b.StartTimer()
				}
				b.ReportMetric(float64(dev.GPU().Stats().Launches-before)/float64(b.N), "launches/step")
			})
		}
		require.NoError(b, step.Close())
	}
}
