package ranks

import (
	"slices"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// Work is what ranks divide. Figures are sums over all ranks, after some steps, and the same for any number of ranks.
type Work struct {
	Step    func() error
	Figures []float64
}

// Micros is the number of microbatches in a step of the pipeline.
const Micros = 8

// tokens makes random tokens, or labels, of a microbatch.
func tokens(r *dist.Rank, key uint64, micro, vocabulary, batch, positions int) tensor.Tensor {
	ids := make([]int64, batch*positions)
	for i := range ids {
		ids[i] = int64(tensor.RandomBits(key, uint64(micro*len(ids)+i)) % uint64(vocabulary))
	}
	x := tensor.New(r.Device, tensor.Int64, batch, positions)
	tensor.Copy(x, tensor.FromSlice(ids, batch, positions))
	return x.WithRows(tensor.Rows{First: micro * batch, Stride: 1, Total: Micros * batch})
}

// Pipeline trains a language model by 1F1B, of which each rank has as many blocks. The vocabulary is small, so that the last rank has
// hardly more to do. The figures are losses.
func Pipeline(r *dist.Rank, small bool) (w Work, err error) {
	config, batch := gpt.Config{Vocab: 512, Positions: 1024, Width: 1024, Layers: 8, Heads: 16, Tied: true}, 4
	if small {
		config, batch = gpt.Config{Vocab: 64, Positions: 8, Width: 32, Layers: 2, Heads: 2, Tied: true}, 1
	}
	net, err := gpt.New(config)
	if err != nil {
		return w, err
	}
	ranks, rank := r.World.Size(), r.World.Rank()
	parts, err := net.Stages(slices.Repeat([]int{config.Layers / ranks}, ranks), rank)
	if err != nil {
		return w, err
	}
	var x, y [Micros]tensor.Tensor
	for i := range x {
		x[i] = tokens(r, 1, i, config.Vocab, batch, config.Positions)
		y[i] = tokens(r, 2, i, config.Vocab, batch, config.Positions)
	}
	stage := func(t *tensor.Tape, micro int, in tensor.Tensor) tensor.Tensor {
		if rank == 0 {
			in = t.Input(x[micro])
		}
		out := parts[rank].Forward(in, batch, config.Positions)
		if rank == ranks-1 {
			return nn.CrossEntropy(out, y[micro])
		}
		return out
	}
	params := nn.Init(net, r.Device, tensor.BFloat16, 1)
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 3e-3, WeightDecay: 0.1})
	p, err := pp.New(pp.Config{Group: r.World, Schedule: pp.OneF1B(ranks, Micros), Stages: map[int]pp.Stage{rank: stage},
		Tape: tensor.NewTape(r.Device), Params: params, Optimizer: opt})
	if err != nil {
		return w, err
	}
	return trained(r, p, opt)
}

// trained does three steps, whose losses are the figures.
func trained(r *dist.Rank, p *pp.Pipeline, opt *optim.Optimizer) (w Work, err error) {
	var loss float64
	w.Step = func() error {
		if loss, err = p.Step(); err != nil {
			return err
		}
		return opt.Step()
	}
	for range 3 {
		if err := w.Step(); err != nil {
			return w, err
		}
		w.Figures = append(w.Figures, loss)
	}
	return w, r.World.SumFloats(w.Figures)
}

// Ring is attention, forward and backward, over one long sequence. The figures are sums of squares: of the gradients of queries, keys and
// values.
func Ring(r *dist.Rank, small bool) (w Work, err error) {
	positions, heads, kv, hd := 32768, 16, 4, 128
	if small {
		positions, heads, kv, hd = 16, 2, 1, 64
	}
	f := &cp.Ring{Group: r.World, HeadDim: hd}
	var mine [4]tensor.Tensor
	for i, heads := range [4]int{heads, kv, kv, heads} {
		x := tensor.New(r.Device, tensor.BFloat16, 1, positions, heads*hd)
		tensor.UniformInit(-1, 1).Fill(x, uint64(i), 0)
		mine[i] = f.Part(x.WithRows(r.World.Rows(0, 1)))
	}
	tape := tensor.NewTape(r.Device)
	var in [3]tensor.Tensor
	pass := func() {
		tape.Input(mine[0])
		for i := range in {
			in[i] = tape.Leaf(mine[i])
		}
		tape.BackwardFrom([]tensor.Tensor{tape.Apply(f, in[:]...)}, mine[3:])
	}
	w.Step = func() error {
		pass()
		tape.Reset()
		return nil
	}
	pass()
	for _, x := range in {
		square := 0.
		for _, g := range tensor.Floats(tape.GradOf(x)) {
			square += g * g
		}
		w.Figures = append(w.Figures, square)
	}
	tape.Reset()
	return w, r.World.SumFloats(w.Figures)
}
