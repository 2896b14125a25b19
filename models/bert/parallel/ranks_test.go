package parallel_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/models/bert/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// plan is a contrastive training of a small model.
type plan struct {
	mesh  string // axes dp, fsdp and tp; "": one rank
	micro int
	batch int
}

func (p plan) run(t *testing.T) disttest.Result {
	c := disttest.Training{Attach: attach, Mesh: p.mesh, Micro: p.micro, Batch: p.batch, Steps: 10, Name: fmt.Sprintf("%+v", p)}
	return c.Run(t)
}

func attach(r *dist.Rank, mesh *dist.Mesh) (a disttest.Attached, err error) {
	m := disttest.Must(bert.New(bert.Config{Vocab: 11, Positions: 9, Types: 2, Width: 12, Layers: 2, Heads: 2, Hidden: 10, Eps: 1e-12,
		Pooling: bert.Mean, Normalize: true}))
	a.Norm, a.Data = r.World, r.World
	var gather tensor.Function
	if mesh == nil {
		a.Params = nn.Init(m, r.Device, tensor.Float64, 3)
	} else {
		a.Data = mesh.Group("dp", "fsdp")
		gather = &autograd.AllGather{Group: a.Data}
		c := parallel.Config{DDP: ddp.Config{DType: tensor.Float64, Seed: 3}}
		if mesh.Size("fsdp") > 1 {
			c.FSDP = &fsdp.Config{DType: tensor.Float64, Seed: 3}
		}
		a.Params, err = parallel.Attach(mesh, m, c)
	}
	a.Loss = func(b disttest.Batch) nn.T { return contrast(m, b, gather) }
	return a, err
}

// contrast is the loss of pairs of texts, which have from 2 to 7 tokens.
func contrast(m *bert.Model, b disttest.Batch, gather tensor.Function) nn.T {
	var sides [2]nn.T
	for side := range sides {
		ids, lengths := make([]int64, b.N*7), make([]int64, b.N)
		for i := range lengths {
			k := b.First + i
			lengths[i] = int64(2 + (k*(3+side)+side)%6)
			for j := range int(lengths[i]) {
				ids[i*7+j] = int64((k*k + j*(k+1) + side*(k%3)) % 11)
			}
		}
		in := func(x tensor.Tensor) nn.T { return b.Tape.Input(x.WithRows(b.Rows)) }
		sides[side] = m.Embed(in(tensor.FromSlice(ids, b.N, 7)), in(tensor.FromSlice(lengths, b.N)))
	}
	return nn.InfoNCE(sides[0], sides[1], 20, gather)
}

// Ranks that have other pairs, not equally many, train as one rank that has all: the negatives of a pair are those of all ranks. So do
// ranks that divide layers. In batches of 2 over three ranks, one has no pair.
func TestContrastEqualsOneRank(t *testing.T) {
	for i, p := range []plan{{"", 1, 7}, {"", 2, 13}, {"", 1, 2}} {
		want := p.run(t)
		for k, mesh := range []string{"dp=1,fsdp=1,tp=1", "dp=3,fsdp=1,tp=1", "dp=1,fsdp=2,tp=1", "dp=1,fsdp=1,tp=2",
			"dp=3,fsdp=1,tp=2", "dp=1,fsdp=2,tp=2"} {
			if (i+k)%2 == 0 == reliability.Long(t) {
				continue
			}
			disttest.RequireEqual(t, want, plan{mesh, p.micro, p.batch}.run(t), 1e-10)
		}
	}
}

func TestLongContrastEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestContrastEqualsOneRank) }

// Without the other ranks' rows, a loss is refused: it would have other negatives on each number of ranks.
func TestContrastNeedsAllRows(t *testing.T) {
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		tape, w := tensor.NewTape(r.Device), tensor.NewParam(tensor.NormalInit(0, 1), 4, 4)
		params := disttest.Must(ddp.Attach(r.World, &nn.Linear{W: w}, ddp.Config{Seed: 1}))
		x := tape.Input(tensor.FromSlice(make([]float32, 12), 3, 4).WithRows(r.World.Rows(3*r.World.Rank(), 6)))
		y := tensor.Linear(x, tape.Use(params[0]), nn.T{})
		tape.Backward(nn.InfoNCE(y, y, 20, nil))
		return nil
	})
	require.ErrorContains(t, err, "autograd.AllGather")
}

// Sequence parallelism would need layers that work on a part of the tokens: it is refused.
func TestNoSequenceParallelism(t *testing.T) {
	err := dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		m := disttest.Must(bert.New(bert.Config{Vocab: 11, Positions: 9, Types: 2, Width: 12, Layers: 1, Heads: 2, Hidden: 10, Eps: 1e-12}))
		disttest.OK(parallel.Divide(m, tp.Config{Group: r.World, Sequence: true}))
		nn.Init(m, r.Device, tensor.Float64, 3)
		tape := tensor.NewTape(r.Device)
		m.Embed(tape.Input(tensor.FromSlice(make([]int64, 8), 2, 4)), tape.Input(tensor.FromSlice([]int64{4, 4}, 2)))
		return nil
	})
	require.ErrorContains(t, err, "autograd.TokenGather")
}
