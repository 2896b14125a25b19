package layouts

import (
	"math/rand/v2"
	"strings"

	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// program is a model and how it is trained: what must not depend on the layout.
type program struct {
	gpt.Config
	Experts moe.Config // in place of MLPs; without experts: none
	Rate    float64    // of the biases that choose experts
	Dropout float64
	LoRA    int   // rank of adapters; 0: none
	Frozen  []int // numbers of parameters, modulo how many there are
	Ignored bool  // a third of the labels does not count
	Pipes   bool  // its layouts are pipelines

	Steps, Saved int // the checkpoint is saved before step Saved
	Micro, Batch int // microbatches and rows of a step
	SGD          bool
	Clip, EMA    float64 // 0: none
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// maybe returns x in one of n cases, else zero.
func maybe[T any](r *rand.Rand, n int, x T) (y T) {
	if r.IntN(n) == 0 {
		y = x
	}
	return y
}

// randomProgram returns the program of a seed, and of how many ranks its layouts may be. Those of every other seed are pipelines.
func randomProgram(seed uint64) (r *rand.Rand, p program, most int) {
	if most = 8; seed%16 == 0 {
		most = 16
	}
	r = rand.New(rand.NewPCG(seed, 0))
	return r, programOf(r, seed%2 == 0), most
}

func programOf(r *rand.Rand, pipes bool) program {
	p := program{Config: gpt.Config{Kind: pick(r, gpt.GPT2, gpt.Llama), Vocab: 11 + r.IntN(9), Positions: 3 + r.IntN(5),
		Width: 5 + r.IntN(9), Layers: 1 + r.IntN(2), Heads: pick(r, 2, 4, 6, 8, 12), HeadDim: pick(r, 2, 4), Hidden: 9 + r.IntN(15),
		Tied: r.IntN(2) == 0}}
	p.KVHeads = p.Heads
	if n := pick(r, 1, 2, 3, 4); p.Heads%n == 0 {
		p.KVHeads /= n
	}
	p.Dropout = maybe(r, 2, 0.2)
	p.LoRA = maybe(r, 5, 2)
	for range maybe(r, 2, 3) {
		p.Frozen = append(p.Frozen, r.IntN(1000))
	}
	p.Ignored, p.Pipes = r.IntN(3) == 0, pipes
	p.Steps, p.Micro = 3+r.IntN(3), 1+r.IntN(3)
	if pipes { // which needs a layer for each stage
		p.Layers, p.Steps, p.Micro = 2+r.IntN(5), 10, 1+r.IntN(5)
	}
	p.Batch = p.Micro*(1+r.IntN(8)) + r.IntN(p.Micro)
	p.Saved = r.IntN(p.Steps)
	p.SGD, p.Clip, p.EMA = r.IntN(3) == 0, maybe(r, 2, 0.2), maybe(r, 4, 0.7)
	if r.IntN(2) == 0 {
		p.mix(r)
	}
	return p
}

// mix puts experts in place of MLPs.
func (p *program) mix(r *rand.Rand) {
	scoring := pick(r, router.Softmax, router.Chosen, router.Sigmoid)
	p.Experts = moe.Config{Features: p.Width, Hidden: pick(r, 12, 24), Experts: pick(r, 2, 4, 6, 8), Shared: maybe(r, 2, 12),
		GELU: r.IntN(3) == 0, Router: router.Config{Top: 1 + r.IntN(2), Scoring: scoring, Bias: r.IntN(2) == 0},
		// A capacity counts the tokens of all microbatches.
		Capacity: maybe(r, 2, pick(r, 0.4, 0.9)), Balance: maybe(r, 2, 0.1), Z: maybe(r, 3, 0.1)}
	if p.Experts.Router.Scoring == router.Chosen { // has no place for a bias
		p.Experts.Router.Bias = false
	}
	if p.Experts.Router.Bias {
		p.Rate = 0.01
	}
	if p.Experts.Balance > 0 {
		p.Experts.Sequence = maybe(r, 3, p.Positions)
	}
}

// rule returns the optimizer.
func (p program) rule(params nn.Params, n optim.Norm) (o *optim.Optimizer) {
	if p.SGD {
		o = optim.NewSGD(params, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Clip: p.Clip, Norm: n})
	} else {
		o = optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: p.Clip, Norm: n})
	}
	if p.EMA > 0 {
		optim.NewEMA(o, p.EMA)
	}
	return o
}

// model is a program's model, without values.
type model struct {
	*gpt.Model
	experts         []*moe.Layer
	inside, outside []*nn.Dropout // of hidden features, and of what norms return
}

func (p program) model() (*model, error) {
	whole, err := gpt.New(p.Config)
	if err != nil {
		return nil, err
	}
	m := &model{Model: whole}
	for _, b := range m.Blocks {
		if p.Experts.Experts > 0 {
			m.experts = append(m.experts, moe.NewLayer(p.Experts))
			b.MLP = m.experts[len(m.experts)-1]
		}
		if p.Dropout > 0 {
			m.drop(b, p.Dropout)
		}
	}
	if p.LoRA > 0 {
		nn.LoRA(m.Model, nn.LoRAConfig{Rank: p.LoRA, Alpha: 3, Targets: []string{"blocks.*.attn.*", "head"}})
	}
	p.freeze(nn.ParamsOf(m.Model))
	return m, nil
}

// freeze freezes some parameters. Queries, keys and values are frozen together: GPT-2's files have them in one matrix.
func (p program) freeze(params nn.Params) {
	together := strings.NewReplacer(".attn.q.", ".attn.qkv.", ".attn.k.", ".attn.qkv.", ".attn.v.", ".attn.qkv.")
	for _, i := range p.Frozen {
		for _, x := range params {
			if together.Replace(x.Name()) == together.Replace(params[i%len(params)].Name()) && !x.IsBuffer() {
				x.Freeze()
			}
		}
	}
}

// drop adds dropout to a block: where tokens may be divided, and where hidden features are.
func (m *model) drop(b *gpt.Block, probability float64) {
	out := []*nn.Dropout{nn.NewDropout(probability), nn.NewDropout(probability)}
	b.Norm1, b.Norm2 = nn.Sequential{b.Norm1, out[0]}, nn.Sequential{b.Norm2, out[1]}
	m.outside = append(m.outside, out...)
	in := nn.NewDropout(probability)
	switch mlp := b.MLP.(type) {
	case *nn.MLP:
		mlp.Act = nn.Sequential{mlp.Act, in}
	case *nn.GatedMLP:
		mlp.Act = nn.Sequential{mlp.Act, in}
	default:
		return
	}
	m.inside = append(m.inside, in)
}

// tokens returns ids [rows, positions] and those that follow them.
func (p program) tokens(dev tensor.Device, b disttest.Batch) (ids, next tensor.Tensor) {
	x, y := make([]int64, b.N*p.Positions), make([]int64, b.N*p.Positions)
	for i := range x {
		k := int64(b.First*p.Positions + i)
		x[i] = k * k % 19 % int64(p.Vocab)
		if y[i] = (3*x[i] + k%2) % int64(p.Vocab); p.ignored(int(k)) {
			y[i] = ignored
		}
	}
	on := func(v []int64) tensor.Tensor {
		return tensor.ToDevice(dev, tensor.FromSlice(v, b.N, p.Positions)).WithRows(b.Rows)
	}
	return on(x), on(y)
}

const ignored = -100

func (p program) ignored(token int) bool { return p.Ignored && token%3 == 0 }

// labels counts those of a step that count.
func (p program) labels(step int) (n int) {
	for i := range p.Batch * p.Positions {
		if !p.ignored(step*p.Batch*p.Positions + i) {
			n++
		}
	}
	return n
}
