package tp_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

const words, positions = 11, 5

// The models: neither hidden features nor the vocabulary divide by the ranks.
var models = map[string]gpt.Config{
	"gpt2":  {Kind: gpt.GPT2, Vocab: words, Positions: positions, Width: 12, Layers: 2, Heads: 6, Hidden: 13, Tied: true},
	"llama": {Kind: gpt.Llama, Vocab: words, Positions: positions, Width: 12, Layers: 2, Heads: 6, KVHeads: 6, Hidden: 13},
	"gqa":   {Kind: gpt.Llama, Vocab: words, Positions: positions, Width: 24, Layers: 1, Heads: 12, KVHeads: 2, Hidden: 7, Tied: true},
}

// layout says how ranks share the work. fsdp 0: ddp sums gradients. The zero layout is one rank with the model as it is.
type layout struct {
	dp, fsdp, kv, rep int
	seq               bool
	chunks            int
	cp                int  // ranks that share sequences
	naive             bool // in place of layers that are divided
}

// forms are the ways in which tokens lie between the divided layers: whole, in parts, and in parts that travel in pieces.
func (l layout) forms() []layout {
	whole, parts, pieces := l, l, l
	parts.seq, pieces.seq, pieces.chunks = true, true, 3
	return []layout{whole, parts, pieces}
}

func (l layout) String() string {
	return fmt.Sprintf("%s, sequence %v in %d", l.mesh(), l.seq, l.chunks)
}

func (l layout) mesh() string {
	return fmt.Sprintf("dp=%d,fsdp=%d,cp=%d,kv=%d,rep=%d", l.dp, max(l.fsdp, 1), max(l.cp, 1), l.kv, l.rep)
}

func (l layout) ranks() int { return max(l.dp*max(l.fsdp, 1)*max(l.cp, 1)*l.kv*l.rep, 1) }

// training is ten steps of two microbatches, with weight decay and clipping, in float64.
type training struct {
	layout
	config gpt.Config
	lora   bool
	again  bool                                // blocks are computed again in backward
	break_ func(m *gpt.Model, mesh *dist.Mesh) // changes the program, before Attach
}

type result struct{ first, last, losses, norms []float64 }

func (c training) run() (res result, err error) {
	err = dist.Run(context.Background(), dist.Config{Ranks: c.ranks(), Threads: 1, Timeout: 20 * time.Second, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		mine, err := c.rank(r)
		if r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	return res, err
}

// parallelize divides a model.
func parallelize(m *gpt.Model, c tp.Config) (loss *tp.CrossEntropy, err error) {
	err = tp.Parallelize(m, c, func(p *tp.Parallel) {
		p.Vocab(m.Tok)
		m.Embedded = p.Tokens()
		for _, b := range m.Blocks {
			b.Norm1 = p.Heads(b.Norm1, b.Attn.HeadDim, b.Attn.Q, b.Attn.K, b.Attn.V)
			p.Row(b.Attn.Out)
			switch mlp := b.MLP.(type) {
			case *nn.MLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Up)
				p.Row(mlp.Down)
			case *nn.GatedMLP:
				b.Norm2 = p.Columns(b.Norm2, mlp.Gate, mlp.Up)
				p.Row(mlp.Down)
			}
		}
		m.Norm = p.Columns(m.Norm, m.Head)
		m.Drawn = p.Logits(m.Config.Vocab)
		loss = p.CrossEntropy(m.Config.Vocab)
	})
	return loss, err
}

type lossOf func(logits, labels nn.T) nn.T

// attached is a model that is divided as a layout says.
type attached struct {
	params nn.Params
	data   *dist.Group // ranks with other rows
	all    *dist.Group // and with other positions
	loss   lossOf
	part   func(x nn.T) nn.T // this rank's positions
}

// attach divides the model.
func (c training) attach(r *dist.Rank, m *gpt.Model) (a attached, err error) {
	a = attached{data: r.World, all: r.World, loss: func(logits, labels nn.T) nn.T { return nn.CrossEntropy(logits, labels) }, part: func(x nn.T) nn.T { return x }}
	if c.dp == 0 {
		a.params = nn.Init(m, r.Device, tensor.Float64, 3)
		return a, nil
	}
	mesh, err := r.Mesh(c.mesh())
	if err != nil {
		return a, err
	}
	if err := c.divide(&a, m, mesh); err != nil {
		return a, err
	}
	if c.cp > 1 {
		u := &cp.Ulysses{Group: mesh.Group("cp"), HeadDim: m.Config.HeadDim}
		for _, b := range m.Blocks {
			b.Attn.Spread, b.Attn.Join = u.ToHeads(), u.ToPositions()
		}
		a.part = u.Part
	}
	if c.break_ != nil {
		c.break_(m, mesh)
	}
	a.data, a.all = mesh.Group("dp", "fsdp"), mesh.Group("dp", "fsdp", "cp")
	if c.fsdp == 0 {
		a.params, err = ddp.Attach(a.all, m, ddp.Config{DType: tensor.Float64, Seed: 3, BucketBytes: 500})
		return a, err
	}
	s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp", "cp"), Replicate: mesh.Group("dp"), DType: tensor.Float64, Seed: 3})
	s.Keep(m.Tok, m.Pos, m.Norm, m.Head)
	for _, b := range m.Blocks {
		s.Unit(b)
	}
	a.params, err = s.Attach(m)
	return a, err
}

// divide divides layers, if the layout has ranks for that.
func (c training) divide(a *attached, m *gpt.Model, mesh *dist.Mesh) error {
	switch {
	case c.naive:
		return tp.Naive(m, mesh.Group("kv", "rep"))
	case c.kv*c.rep == 1:
		return nil
	}
	cfg := tp.Config{Group: mesh.Group("kv", "rep"), Sequence: c.seq, Chunks: c.chunks}
	if c.rep > 1 {
		cfg.KV, cfg.Replicas = mesh.Group("kv"), mesh.Group("rep")
	}
	ce, err := parallelize(m, cfg)
	if err == nil {
		a.loss = ce.Loss
	}
	return err
}

func (c training) rank(r *dist.Rank) (res result, err error) {
	m, err := gpt.New(c.config)
	if err != nil {
		return res, err
	}
	if c.lora {
		nn.LoRA(m, nn.LoRAConfig{Rank: 2, Alpha: 3, Targets: []string{"blocks.*", "head"}})
	}
	a, err := c.attach(r, m)
	if err != nil {
		return res, err
	}
	params := a.params
	if res.first, err = disttest.Whole(r.World, params...); err != nil {
		return res, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.4, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	defer tape.Close()
	for step := range 10 {
		res.losses = append(res.losses, c.backward(&a, m, tape, step))
		if err := opt.Step(); err != nil {
			return res, err
		}
		res.norms = append(res.norms, opt.GradNorm())
	}
	if err := a.all.SumFloats(res.losses); err != nil {
		return res, err
	}
	res.last, err = disttest.Whole(r.World, params...)
	return res, err
}

// tokens returns ids [rows, positions] from a row on and those that follow them, which depend on the one before.
func tokens(first, n int, at tensor.Rows) (ids, next tensor.Tensor) {
	a, b := make([]int64, n*positions), make([]int64, n*positions)
	for i := range a {
		k := first*positions + i
		a[i] = int64(k * k % 19 % words)
		b[i] = (3*a[i] + int64(k%2)) % words
	}
	return tensor.FromSlice(a, n, positions).WithRows(at), tensor.FromSlice(b, n, positions).WithRows(at)
}

// backward computes the gradients of a step of two microbatches, and returns this rank's part of its loss.
func (c training) backward(a *attached, m *gpt.Model, tape *tensor.Tape, step int) (sum float64) {
	const rows = 5
	for micro := range 2 {
		first, k := disttest.Part(rows, a.data.Rank(), a.data.Size())
		ids, next := tokens((2*step+micro)*rows+first, k, a.data.Rows(rows*micro+first, 2*rows))
		l := a.loss(c.logits(m, tape.Input(a.part(ids))), a.part(next))
		sum += l.Item()
		if micro == 0 {
			tape.Backward(l, tensor.More())
		} else {
			tape.Backward(l)
		}
		tape.Reset()
	}
	return sum
}

// logits is Model.Forward, with checkpoints of activations if asked for.
func (c training) logits(m *gpt.Model, ids nn.T) nn.T {
	if !c.again {
		return m.Forward(ids)
	}
	t, batch, time := ids.Tape(), ids.Dim(0), ids.Dim(1)
	x := m.Tok.Forward(ids)
	if m.Pos != nil {
		x = m.Pos.Forward(x, 0)
	}
	x = x.Reshape(batch*time, x.Dim(2))
	if m.Embedded != nil {
		x = t.Apply(m.Embedded, x)
	}
	for _, b := range m.Blocks {
		x = t.Checkpoint(func(in ...nn.T) nn.T { return b.Forward(in[0], batch, time) }, x)
	}
	x = m.Head.Forward(m.Norm.Forward(x))
	return x.Reshape(batch, time, x.Dim(1))
}

func requireClose(t *testing.T, want, got result, what string) {
	t.Helper()
	for name, c := range map[string][2][]float64{"loss": {want.losses, got.losses}, "norm": {want.norms, got.norms}, "parameters": {want.last, got.last}} {
		require.Len(t, c[1], len(c[0]), what)
		for i := range c[0] {
			require.InDelta(t, c[0][i], c[1][i], 1e-10, "%s: %s %d", what, name, i)
		}
	}
}
