// Package grads is a program that trains a block of a norm and an MLP, divided over tp ranks, on dp copies. With -wrong the norm's
// gradient lacks its sum over the tp ranks: the forward pass, and what types see, are right.
package grads

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

const width, rows = 6, 8

// block is a model of one block.
type block struct {
	In   *nn.Linear
	Norm *nn.LayerNorm
	MLP  *nn.MLP
	Out  *nn.Linear
	copy tensor.Function
}

func (b *block) forward(x nn.T) nn.T {
	x = b.In.Forward(x)
	h := b.Norm.Forward(x)
	return b.Out.Forward(b.MLP.ForwardAdd(x.Tape().Apply(b.copy, h), x))
}

// forgetful is a Copy whose Backward keeps each rank's part of the gradient.
type forgetful struct{ autograd.Copy }

func (*forgetful) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// points are rows of numbers and a function of them.
type points struct{}

func (points) Len() int { return rows }

func (points) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Float64, Dims: []int{width}}, tensor.Shape{DType: tensor.Float64, Dims: []int{1}}
}

func (points) Batch(idx []int, x, y tensor.Tensor) error {
	for i, k := range idx {
		for j := range width {
			tensor.Data[float64](x)[width*i+j] = math.Sin(float64(5*k + j))
		}
		tensor.Data[float64](y)[i] = math.Cos(float64(k))
	}
	return nil
}

// program is what the flags say.
type program struct {
	train.Options
	tp, dp, steps int
	wrong         bool
}

// Main is the program.
func Main() {
	p := program{Options: train.Options{Threads: 1}}
	flag.IntVar(&p.tp, "tp", 1, "ranks that divide the MLP")
	flag.IntVar(&p.dp, "dp", 1, "copies")
	flag.IntVar(&p.steps, "steps", 3, "steps")
	flag.BoolVar(&p.wrong, "wrong", false, "forget a sum")
	flag.Parse()
	train.Exit(p.Run(dist.Config{Ranks: p.tp * p.dp}, p.rank))
}

// rank trains on one rank.
func (p *program) rank(ctx context.Context, r *dist.Rank) error {
	mesh, err := r.Mesh(fmt.Sprintf("dp=%d,tp=%d", p.dp, p.tp))
	if err != nil {
		return err
	}
	b := &block{In: nn.NewLinear(width, width), Norm: nn.NewLayerNorm(width), MLP: nn.NewMLP(width, 7), Out: nn.NewLinear(width, 1)}
	g := mesh.Group("tp")
	b.copy = &autograd.Copy{Group: g}
	if p.wrong {
		b.copy = &forgetful{autograd.Copy{Group: g}}
	}
	if err := tp.Parallelize(b, tp.Config{Group: g}, func(p *tp.Parallel) {
		p.Columns(b.Norm, b.MLP.Up) // copy stands in for the layer that this returns
		p.Row(b.MLP.Down)
	}); err != nil {
		return err
	}
	params, err := ddp.Attach(mesh.Group("dp"), b, ddp.Config{DType: tensor.Float64, Seed: 1})
	if err != nil {
		return err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.1, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	batches := data.NewLoader(points{}, data.Config{Batch: rows, Sharder: mesh.Group("dp"), Device: r.Device})
	loop, err := train.Start(ctx, r, &p.Options, ckpt.State{Params: params, Optimizer: opt, Tape: tape})
	if err != nil {
		return err
	}
	for _, batch := range loop.Batches(batches, p.steps) {
		loss := nn.MSE(b.forward(tape.Input(batch.X)), batch.Y)
		if g.Rank() == 0 {
			loop.Sum("loss", loss)
		} else {
			loop.Sum("loss", loss.Scale(0))
		}
		tape.Backward(loss)
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	return loop.Close()
}
