package nn_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/optim/schedule"
	"github.com/ringo-ml/ringo/tensor"
)

type block struct {
	Norm1 *nn.LayerNorm
	Attn  *nn.Attention
	Norm2 *nn.RMSNorm
	MLP   *nn.MLP
	Drop  *nn.Dropout
}

func (b *block) Forward(x nn.T) nn.T {
	x = x.Add(b.Attn.Forward(b.Norm1.Forward(x)))
	return x.Add(b.Drop.Forward(b.MLP.Forward(b.Norm2.Forward(x))))
}

// gpt is gen.py's GPT: head and token table are one parameter.
type gpt struct {
	Tok, Pos *nn.Embedding
	Blocks   []*block
	Norm     *nn.LayerNorm
	Head     *nn.Linear
}

func newGPT(vocab, d, layers, heads, steps int, drop float64) *gpt {
	m := &gpt{Tok: nn.NewEmbedding(vocab, d), Pos: nn.NewEmbedding(steps, d), Norm: nn.NewLayerNorm(d)}
	for range layers {
		b := &block{nn.NewLayerNorm(d), nn.NewAttention(d, heads), nn.NewRMSNorm(d), nn.NewMLP(d, 2*d), nn.NewDropout(drop)}
		b.Attn.Drop = nn.NewDropout(drop)
		m.Blocks = append(m.Blocks, b)
	}
	m.Head = &nn.Linear{W: m.Tok.W}
	return m
}

func (m *gpt) Forward(ids nn.T) nn.T {
	x := m.Tok.Forward(ids).Add(ids.Tape().Use(m.Pos.W))
	for _, b := range m.Blocks {
		x = b.Forward(x)
	}
	return m.Head.Forward(m.Norm.Forward(x))
}

func TestTransformerMatchesTorch(t *testing.T) {
	want := loadFixture(t).GPT
	for _, d := range dtypes[:2] {
		m := newGPT(7, 8, 2, 2, 5, 0)
		ps := nn.Init(m, host, d.dtype, 1)
		require.Equal(t, want.Names, ps.Names())
		fill(ps)
		opt := optim.NewAdamW(ps, optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.1, Clip: 0.5,
			Groups: []optim.Group{{Match: optim.Vectors}}})
		tape := tensor.NewTape(host)
		tol := max(d.tol, 1e-11)
		for step, loss := range want.Losses {
			l := tape.Keep(nn.CrossEntropy(m.Forward(tape.Input(labels(1, 7, 3, 5))), labels(2, 7, 3, 5)))
			tape.Backward(l)
			if step == 0 {
				checkGrads(t, want.Grads, ps, tol)
			}
			assert.InDelta(t, loss, l.Item(), tol, "loss of step %d", step)
			require.NoError(t, opt.Step())
			assert.InDelta(t, want.Norms[step], opt.GradNorm(), tol, "norm of step %d", step)
			tape.Reset()
		}
		if d.dtype == tensor.Float64 { // Adam's first steps have the size of LR whatever the gradient: float32 differs
			for name, v := range want.After {
				near(t, v, ps.ByName(name).Value, 1e-9, name)
			}
		}
	}
}

// step trains m on one batch.
type trainer struct {
	tape *tensor.Tape
	opt  *optim.Optimizer
	m    nn.Layer
	x, y tensor.Tensor
}

func newTrainer(m nn.Layer, x, y tensor.Tensor, c optim.AdamWConfig) *trainer {
	ps := nn.Init(m, host, tensor.Float32, 1)
	return &trainer{tensor.NewTape(host), optim.NewAdamW(ps, c), m, x, y}
}

func (r *trainer) step() float64 {
	loss := nn.CrossEntropy(r.m.Forward(r.tape.Input(r.x)), r.y)
	v := float64(tensor.Data[float32](loss)[0])
	r.tape.Backward(loss)
	if err := r.opt.Step(); err != nil {
		panic(err)
	}
	r.tape.Reset()
	return v
}

func trainers() map[string]*trainer {
	x := tensor.New(host, tensor.Float32, 16, 20)
	value(x, 1, 1)
	c := optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.1, Clip: 1, Schedule: schedule.Warmup(10, schedule.Cosine(0.5, 200)),
		Groups: []optim.Group{{Match: optim.Vectors}}}
	mlp := nn.Sequential{nn.NewLinear(20, 32), nn.ReLU, nn.NewDropout(0.1), nn.NewLinear(32, 5)}
	return map[string]*trainer{
		"mlp":         newTrainer(mlp, x, labels(1, 5, 16), c),
		"transformer": newTrainer(newGPT(11, 16, 2, 4, 6, 0.1), labels(1, 11, 4, 6), labels(2, 11, 4, 6), c),
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("the checks of debug mode allocate")
	}
	for name, r := range trainers() {
		r.step()
		assert.Zero(t, testing.AllocsPerRun(30, func() { r.step() }), name)
	}
}

func TestTrainingLearns(t *testing.T) {
	for name, r := range trainers() {
		first, last := r.step(), 0.0
		for range 120 {
			last = r.step()
		}
		assert.Less(t, last, 0.25*first, name)
	}
}
