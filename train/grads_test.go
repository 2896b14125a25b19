package train_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

// sentences are rows of 5 words and the words behind them.
type sentences struct{}

func (sentences) Len() int { return 10 }

func (sentences) Shapes() (x, y tensor.Shape) {
	s := tensor.Shape{DType: tensor.Int64, Dims: []int{5}}
	return s, s
}

func (sentences) Batch(idx []int, x, y tensor.Tensor) error {
	for i, k := range idx {
		for j := range 5 {
			word := int64((k*k + 3*j) % 11)
			tensor.Data[int64](x)[5*i+j], tensor.Data[int64](y)[5*i+j] = word, (3*word+1)%11
		}
	}
	return nil
}

// divided is a training of a small Llama with tied words and a frozen norm, whose heads of keys and values kv ranks divide, and same ranks
// share.
type divided struct {
	dp, fsdp, stage, kv, same int
	seq                       bool
	norms                     map[string][]float64 // by parameter and step, as one rank sees them
}

// run trains three steps, clipped.
func (d *divided) run(o train.Options) error {
	return o.Run(dist.Config{Ranks: d.dp * d.fsdp * d.kv * d.same, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 11, Positions: 5, Width: 16, Layers: 1, Heads: 8,
			KVHeads: 2, Hidden: 7, Tied: true}))
		m.Norm.(*nn.RMSNorm).W.Freeze()
		mesh := disttest.Must(r.Mesh(fmt.Sprintf("dp=%d,fsdp=%d,kv=%d,same=%d", d.dp, d.fsdp, d.kv, d.same)))
		loss := disttest.Must(d.divide(m, mesh))
		params := disttest.Must(d.attach(m, mesh))
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 0.1, Norm: r.World, Groups: []optim.Group{{Match: optim.Vectors}}})
		tape := tensor.NewTape(r.Device)
		batches := data.NewLoader(sentences{}, data.Config{Batch: 5, Sharder: mesh.Group("dp", "fsdp"), Device: r.Device})
		l := disttest.Must(train.Start(ctx, r, &o, ckpt.State{Params: params, Optimizer: opt, Tape: tape}))
		for _, b := range l.Batches(batches, 3) {
			x := loss(m.Forward(tape.Input(b.X)), b.Y)
			first := 0.0
			if mesh.Group("kv", "same").Rank() == 0 {
				first = 1
			}
			l.Sum("loss", x.Scale(first))
			tape.Backward(x)
			d.note(r, params)
			disttest.OK(opt.Step())
			tape.Reset()
		}
		return l.Close()
	})
}

// divide gives each rank its part of the layers.
func (d *divided) divide(m *gpt.Model, mesh *dist.Mesh) (loss func(x, y nn.T) nn.T, err error) {
	if d.kv*d.same == 1 {
		return func(x, y nn.T) nn.T { return nn.CrossEntropy(x, y) }, nil
	}
	c := tp.Config{Group: mesh.Group("kv", "same"), Sequence: d.seq, KV: mesh.Group("kv"), Replicas: mesh.Group("same")}
	ce, err := parallel.Divide(m, c, nil)
	if err != nil {
		return nil, err
	}
	return func(x, y nn.T) nn.T { return ce.Loss(x, y) }, nil
}

// attach leaves the rest to ddp or fsdp.
func (d *divided) attach(m *gpt.Model, mesh *dist.Mesh) (nn.Params, error) {
	if d.fsdp == 1 {
		return ddp.Attach(mesh.Group("dp"), m, ddp.Config{DType: tensor.Float64, Seed: 1})
	}
	s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp"), Stage: d.stage, DType: tensor.Float64, Seed: 1})
	s.Keep(m.Tok, m.Norm, m.Head)
	s.Unit(m.Blocks[0])
	return s.Attach(m)
}

// note keeps the norms where one rank has everything.
func (d *divided) note(r *dist.Rank, params nn.Params) {
	if r.World.Size() > 1 {
		return
	}
	for _, p := range params.Trainable() {
		sum := 0.0
		for _, x := range tensor.Floats(p.Grad) {
			sum += x * x
		}
		d.norms[p.Name()] = append(d.norms[p.Name()], math.Sqrt(sum))
	}
}

// The norms of every layout are those of one rank: with parts, copies, tied and frozen parameters, before clipping.
func TestGradNorms(t *testing.T) {
	one := divided{dp: 1, fsdp: 1, kv: 1, same: 1, norms: map[string][]float64{}}
	layouts := []divided{one}
	all := [][5]int{{3, 1, 3, 1, 1}, {1, 3, 2, 1, 1}, {1, 2, 3, 2, 1}, {1, 1, 3, 2, 2}}
	if reliability.Long(t) {
		all = append(all, [][5]int{
			{1, 2, 1, 1, 1}, {2, 2, 3, 1, 1}, {1, 1, 3, 2, 1}, {2, 1, 3, 2, 2}, {1, 3, 3, 2, 1}, {1, 2, 2, 2, 2},
		}...)
	}
	for _, l := range all {
		layouts = append(layouts, divided{dp: l[0], fsdp: l[1], stage: l[2], kv: l[3], same: l[4]})
		if l[3] > 1 {
			layouts = append(layouts, divided{dp: l[0], fsdp: l[1], stage: l[2], kv: l[3], same: l[4], seq: true})
		}
	}
	var want []grads.Step
	for i := range layouts {
		dir := t.TempDir()
		t.Setenv("RINGO_GRADS", dir)
		require.NoError(t, layouts[i].run(train.Options{Threads: 1}))
		got, err := grads.Read(dir)
		require.NoError(t, err)
		require.Len(t, got, 3)
		if i == 0 {
			want = got
		}
		for k, s := range got {
			require.Equal(t, k+1, s.Step)
			require.InDelta(t, *want[k].Loss, *s.Loss, 1e-12)
			require.Len(t, s.Grads, 10, "all but the frozen norm, and the words once")
			for j, g := range s.Grads {
				require.Equal(t, want[k].Grads[j].Name, g.Name)
				require.Equal(t, want[k].Grads[j].Shape, g.Shape)
				norm := one.norms[g.Name][k]
				require.Greater(t, norm, 1e-5)
				require.InDelta(t, norm, g.Norm, 1e-12, "%+v: %s in step %d", layouts[i], g.Name, k+1)
			}
		}
	}
}

func TestLongGradNorms(t *testing.T) { reliability.AsLong(t, TestGradNorms) }
