package tp_test

import (
	"context"
	"io"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
	"github.com/ringo-ml/ringo/train/metrics"
)

// forgetful says that it is a Copy, and its Backward keeps each rank's part of the gradient.
type forgetful struct{ autograd.Copy }

func (*forgetful) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// silent is a program with a model that dp=2,tp=2 divides, and one thing wrong in it.
type silent struct {
	seq  bool
	gpt  func(m *gpt.Model, tp *dist.Group)           // changes the model; nil in the right program
	thin func(m *thin)                                // changes a model with dropout
	loss lossOf                                       // in place of tp.CrossEntropy
	norm func(r *dist.Rank, d *dist.Group) optim.Norm // in place of r.World
}

// built is what a rank trains.
type built struct {
	params nn.Params
	data   *dist.Group
	loss   func(tape *tensor.Tape, first, n int, at tensor.Rows) nn.T
}

// ofGPT builds a GPT-2, divided or not.
func (s *silent) ofGPT(r *dist.Rank, mesh *dist.Mesh, divided bool) (b built, err error) {
	m, err := gpt.New(models["gpt2"])
	if err != nil {
		return b, err
	}
	loss := lossOf(func(x, y nn.T) nn.T { return nn.CrossEntropy(x, y) })
	b.data = mesh.Group("dp")
	if divided {
		ce, err := parallelize(m, tp.Config{Group: mesh.Group("tp"), Sequence: s.seq})
		if err != nil {
			return b, err
		}
		if loss = ce.Loss; s.loss != nil {
			loss = s.loss
		}
		if s.gpt != nil {
			s.gpt(m, mesh.Group("tp"))
		}
	}
	b.loss = func(tape *tensor.Tape, first, n int, at tensor.Rows) nn.T {
		ids, next := tokens(first, n, at)
		return loss(m.Forward(tape.Input(ids)), next)
	}
	b.params, err = ddp.Attach(b.data, m, ddp.Config{DType: tensor.Float64, Seed: 3})
	return b, err
}

// ofThin builds a block with dropout, divided or not.
func (s *silent) ofThin(r *dist.Rank, mesh *dist.Mesh, divided bool) (b built, err error) {
	m := newThin(false)
	if divided {
		if err := m.divide(tp.Config{Group: mesh.Group("tp"), Sequence: s.seq}); err != nil {
			return b, err
		}
		s.thin(m)
	}
	b.data = mesh.Group("dp")
	b.loss = func(tape *tensor.Tape, first, n int, at tensor.Rows) nn.T {
		x := tensor.New(r.Device, tensor.Float64, n, thinWidth)
		tensor.NormalInit(0, 1).Fill(x, 7, uint64(first*thinWidth))
		return m.loss(tape.Input(x.WithRows(at)))
	}
	b.params, err = ddp.Attach(b.data, m, ddp.Config{DType: tensor.Float64, Seed: 3})
	return b, err
}

// grads trains two steps and returns what train writes for `ringo compare`.
func (s *silent) grads(t *testing.T, divided bool) ([]metrics.GradStep, error) {
	file := filepath.Join(t.TempDir(), "grads")
	t.Setenv("RINGO_GRADS", file)
	o, layout, ranks := train.Options{Threads: 1}, "dp=1,tp=1", 1
	if divided {
		layout, ranks = "dp=2,tp=2", 4
	}
	err := o.Run(dist.Config{Ranks: ranks, Timeout: 20 * time.Second, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		mesh, err := r.Mesh(layout)
		if err != nil {
			return err
		}
		build, norm := s.ofGPT, optim.Norm(r.World)
		if s.thin != nil {
			build = s.ofThin
		}
		b, err := build(r, mesh, divided)
		if err != nil {
			return err
		}
		if divided && s.norm != nil {
			norm = s.norm(r, b.data)
		}
		return s.train(ctx, r, &o, b, norm)
	})
	if err != nil {
		return nil, err
	}
	return metrics.ReadGrads(file)
}

func (*silent) train(ctx context.Context, r *dist.Rank, o *train.Options, b built, norm optim.Norm) error {
	opt := optim.NewAdamW(b.params, optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: norm})
	tape := tensor.NewTape(r.Device, tensor.Seed(5))
	l, err := train.Start(ctx, r, o, ckpt.State{Params: b.params, Optimizer: opt, Tape: tape})
	if err != nil {
		return err
	}
	for step := range l.Steps(2) {
		const rows = 5
		first, n := disttest.Part(rows, b.data.Rank(), b.data.Size())
		tape.Backward(b.loss(tape, rows*step+first, n, b.data.Rows(first, rows)))
		if err := opt.Step(); err != nil {
			return err
		}
		tape.Reset()
	}
	return l.Close()
}

// differing returns the parameters whose norms differ in a step.
func differing(t *testing.T, want, got []metrics.GradNorm) (names []string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, w.Name, got[i].Name)
		if d := float64(w.Norm - got[i].Norm); !(d*d < 1e-20) {
			names = append(names, w.Name)
		}
	}
	return names
}

// Bugs that were published of tensor parallelism elsewhere, each brought in by what a user can write. Types or the optimizer refuse the program;
// what they cannot see, the norms of gradients do: in the first step, those of the parameters before the fault.
func TestPublishedSilentBugs(t *testing.T) {
	then := func(l nn.Layer, f tensor.Function) {
		reflect.ValueOf(l).Elem().FieldByName("Then").Set(reflect.ValueOf(f))
	}
	region := func(n nn.T) tensor.Region { return tensor.Region{Rows: tensor.Span{Total: 2 * n.Dim(0)}} }
	noSum := func(m *gpt.Model, _ *dist.Group) { m.Blocks[1].Norm2 = inner(m.Blocks[1].Norm2) }
	for name, c := range map[string]struct {
		silent
		refused string   // part of the error
		differs []string // parameters of the first step
		not     []string
	}{
		"torchtitan PR 4054, 1805, 1878: the input's gradient is not summed": {silent: silent{gpt: noSum}, refused: "axis tp"},
		"torchtitan PR 4054: a Function says that it sums the gradient, and does not": {
			silent:  silent{gpt: func(m *gpt.Model, g *dist.Group) { then(m.Blocks[1].Norm2, &forgetful{autograd.Copy{Group: g}}) }},
			differs: []string{"blocks.1.norm2.weight", "blocks.1.attn.out.weight", "blocks.0.norm1.weight", "tok.weight"},
			not:     []string{"blocks.1.mlp.up.weight", "blocks.1.mlp.down.weight", "norm.weight"}},
		"torchtitan 3412: a partial loss is taken for a replicated one": {
			silent: silent{loss: func(x, y nn.T) nn.T {
				y = x.Tape().Input(y)
				return nn.CrossEntropy(x, y.Sub(y)) // labels that every part has
			}}, refused: "the loss is that of a part of the features: a sum over the ranks is missing"},
		"torchtune 2420: clipping by the norm of a part": {
			silent: silent{norm: func(*dist.Rank, *dist.Group) optim.Norm { return nil }}, refused: "there is no Norm: Clip and Scaler would go by the norm of this rank's part"},
		"torchtune 2420: clipping by the norm over the ranks with other rows": {
			silent: silent{norm: func(_ *dist.Rank, d *dist.Group) optim.Norm { return d }}, refused: "the norm of gradients would be too small"},
		"Megatron-LM 1446: norms' gradients differ between ranks of sequence parallelism": {
			silent: silent{seq: true, gpt: func(m *gpt.Model, _ *dist.Group) {
				n := inner(m.Blocks[0].Norm1).(*nn.LayerNorm)
				n.W = bare(n.W)
			}}, refused: "blocks.0.norm1.weight"},
		"Megatron-LM 1256: dropout of sequence parallelism has no place": {
			silent: silent{seq: true, thin: func(m *thin) { m.Drop1.At = nil }}, refused: "tensor.Region"},
		"Megatron-LM 1256: dropout has the place of the first rank on all": {
			silent: silent{seq: true, thin: func(m *thin) { m.Drop1.At = region }}, differs: []string{"norm2.weight", "up.weight", "down.weight"}},
		"dropout of column halves has the same mask on both ranks": {
			silent: silent{thin: func(m *thin) { m.Hide.At = nil }}, refused: "tensor.Region"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.grads(t, true)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			want, err := c.grads(t, false)
			require.NoError(t, err)
			names := differing(t, want[0].Grads, got[0].Grads)
			require.Subset(t, names, c.differs)
			for _, n := range c.not {
				require.NotContains(t, names, n)
			}
		})
	}
	for _, right := range []silent{{}, {seq: true}, {thin: func(*thin) {}}, {seq: true, thin: func(*thin) {}}} {
		want, err := right.grads(t, false)
		require.NoError(t, err)
		got, err := right.grads(t, true)
		require.NoError(t, err)
		for i := range want {
			require.Empty(t, differing(t, want[i].Grads, got[i].Grads), "the right program, %+v", right)
		}
	}
	err := disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return &forgetful{autograd.Copy{Group: r.World}} },
		disttest.Operand{Kind: tensor.Invariant, Dims: disttest.Dims(2, 3)})
	require.Error(t, err, "a Function that is not what it says is found by the adjoint test, too")
}
