package tp_test

import (
	"cmp"
	"context"
	"io"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/grads"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
	"github.com/ringo-ml/ringo/train"
)

// forgetful says that it is a Copy, and its Backward keeps each rank's part of the gradient.
type forgetful struct{ autograd.Copy }

func (*forgetful) Backward(_ *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) { grads[0] = g }

// early adds the bias of a row before the sum over ranks.
type early struct{ Up, Down *nn.Linear }

func (e *early) Forward(x nn.T) nn.T {
	t := x.Tape()
	y := tensor.Linear(e.Up.Forward(x).GELU(), t.Use(e.Down.W), t.Use(e.Down.B))
	return t.Apply(e.Down.Post, y)
}

func (e *early) ForwardAdd(x, r nn.T) nn.T { return e.Forward(x).Add(r) }

// silent is a training of a model that dp=2,kv=2 divides.
type silent struct {
	attach func(r *dist.Rank, mesh *dist.Mesh) (disttest.Attached, error)
	norm   func(d *dist.Group) optim.Norm // in place of r.World; d has the ranks with other rows
}

// grads trains two steps, on one rank if there is no mesh, and returns what train writes for `ringo compare`.
func (s silent) grads(t *testing.T, ranks int, layout string) ([]grads.Step, error) {
	dir := t.TempDir()
	t.Setenv("RINGO_GRADS", dir)
	o := train.Options{Threads: 1}
	err := o.Run(dist.Config{Ranks: ranks, Timeout: 20 * time.Second, Log: io.Discard}, func(ctx context.Context, r *dist.Rank) error {
		var mesh *dist.Mesh
		if layout != "" {
			mesh = disttest.Must(r.Mesh(layout))
		}
		a := disttest.Must(s.attach(r, mesh))
		if a.Data = cmp.Or(a.Data, r.World); s.norm != nil {
			a.Norm = s.norm(a.Data)
		}
		return twoSteps(ctx, r, &o, a)
	})
	if err != nil {
		return nil, err
	}
	return grads.Read(dir)
}

func twoSteps(ctx context.Context, r *dist.Rank, o *train.Options, a disttest.Attached) error {
	opt := optim.NewAdamW(a.Params, optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: a.Norm})
	tape := tensor.NewTape(r.Device, tensor.Seed(5))
	l := disttest.Must(train.Start(ctx, r, o, ckpt.State{Params: a.Params, Optimizer: opt, Tape: tape}))
	for step := range l.Steps(2) {
		const rows = 5
		first, n := disttest.Part(rows, a.Data.Rank(), a.Data.Size())
		tape.Backward(a.Loss(disttest.Batch{Tape: tape, First: rows*step + first, N: n, Rows: a.Data.Rows(first, rows)}))
		disttest.OK(opt.Step())
		tape.Reset()
	}
	return l.Close()
}

// differing returns the parameters whose norms differ in a step.
func differing(t *testing.T, want, got []grads.Norm) (names []string) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, w := range want {
		require.Equal(t, w.Name, got[i].Name)
		if d := w.Norm - got[i].Norm; !(d*d < 1e-20) {
			names = append(names, w.Name)
		}
	}
	return names
}

// The right programs: tokens are whole, or in parts.
var (
	sequence = tp.Config{Sequence: true}
	right    = job{model: "gpt2"}
	parts    = job{model: "gpt2", cfg: sequence}
)

// thinly is a thin model with a change.
func thinly(cfg tp.Config, change func(m *thin)) silent {
	return silent{attach: thinJob{cfg: cfg, change: change}.attach}
}

// Bugs that were published of tensor parallelism elsewhere, each brought in by what a user can write. Types or the optimizer refuse the
// program; what they cannot see, the norms of gradients do: in the first step, those of the parameters before the fault.
func TestPublishedSilentBugs(t *testing.T) {
	then := func(l nn.Layer, f tensor.Function) {
		reflect.ValueOf(l).Elem().FieldByName("Then").Set(reflect.ValueOf(f))
	}
	region := func(n nn.T) tensor.Region { return tensor.Region{Rows: tensor.Span{Total: 2 * n.Dim(0)}} }
	changed := func(j job, change func(m *gpt.Model, mesh *dist.Mesh)) silent {
		j.change = change
		return silent{attach: j.attach}
	}
	for name, c := range map[string]struct {
		silent
		refused string   // part of the error
		differs []string // parameters of the first step
		not     []string
	}{
		"torchtitan PR 4054, 1805, 1878: the input's gradient is not summed": {silent: changed(right, func(m *gpt.Model, _ *dist.Mesh) {
			m.Blocks[1].Norm2 = inner(m.Blocks[1].Norm2)
		}), refused: "axis kv"},
		"torchtitan PR 4054: a Function says that it sums the gradient, and does not": {
			silent: changed(right, func(m *gpt.Model, mesh *dist.Mesh) {
				then(m.Blocks[1].Norm2, &forgetful{autograd.Copy{Group: mesh.Group("kv", "same")}})
			}),
			differs: []string{"blocks.1.norm2.weight", "blocks.1.attn.out.weight", "blocks.0.norm1.weight", "tok.weight"},
			not:     []string{"blocks.1.mlp.up.weight", "blocks.1.mlp.down.weight", "norm.weight"}},
		"torchtitan 3412: a partial loss is taken for a replicated one": {
			silent: silent{attach: job{model: "gpt2", loss: func(x, y nn.T) nn.T {
				y = x.Tape().Input(y)
				return nn.CrossEntropy(x, y.Sub(y)) // labels that every part has
			}}.attach}, refused: "the loss is that of a part of the features: a sum over the ranks is missing"},
		"torchtune 2420: clipping by the norm of a part": {
			silent:  silent{right.attach, func(*dist.Group) optim.Norm { return nil }},
			refused: "there is no Norm: Clip, Scaler and Skip would go by the norm of this rank's part"},
		"torchtune 2420: clipping by the norm over the ranks with other rows": {
			silent: silent{right.attach, func(d *dist.Group) optim.Norm { return d }}, refused: "the norm of gradients would be too small"},
		"Megatron-LM 1446: norms' gradients differ between ranks of sequence parallelism": {
			silent: changed(parts, func(m *gpt.Model, _ *dist.Mesh) {
				n := inner(m.Blocks[0].Norm1).(*nn.LayerNorm)
				n.W = bare(n.W)
			}), refused: "blocks.0.norm1.weight"},
		"Megatron-LM 1256: dropout of sequence parallelism has no place": {
			silent: thinly(sequence, func(m *thin) { m.Drop1.At = nil }), refused: "tensor.Region"},
		"Megatron-LM 1256: dropout has the place of the first rank on all": {
			silent: thinly(sequence, func(m *thin) { m.Drop1.At = region }), differs: []string{"norm2.weight", "up.weight", "down.weight"}},
		"torchtitan 4245: a bias is added before the sum": {silent: changed(right, func(m *gpt.Model, _ *dist.Mesh) {
			mlp := m.Blocks[0].MLP.(*nn.MLP)
			m.Blocks[0].MLP = &early{mlp.Up, mlp.Down}
		}), refused: "parameter blocks.0.mlp.down.bias[12] is the same on all ranks and counts its gradient once"},
		"dropout of column halves has the same mask on both ranks": {
			silent: thinly(tp.Config{}, func(m *thin) { m.Hide.At = nil }), refused: "tensor.Region"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.grads(t, 4, whole("dp=2,kv=2"))
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			want, err := c.grads(t, 1, "")
			require.NoError(t, err)
			names := differing(t, want[0].Grads, got[0].Grads)
			require.Subset(t, names, c.differs)
			for _, n := range c.not {
				require.NotContains(t, names, n)
			}
		})
	}
	err := disttest.AdjointError(2, func(r *dist.Rank) disttest.Communicating { return &forgetful{autograd.Copy{Group: r.World}} },
		disttest.Operand{Kind: tensor.Invariant, Dims: disttest.Dims(2, 3)})
	require.Error(t, err, "a Function that is not what it says is found by the adjoint test, too")
}

func TestRightProgramsHaveNoSilentBugs(t *testing.T) {
	for i, s := range []silent{{attach: right.attach}, {attach: parts.attach}, thinly(tp.Config{}, nil), thinly(sequence, nil)} {
		want, err := s.grads(t, 1, "")
		require.NoError(t, err)
		got, err := s.grads(t, 4, whole("dp=2,kv=2"))
		require.NoError(t, err)
		for step := range want {
			require.Empty(t, differing(t, want[step].Grads, got[step].Grads), "right program %d", i)
		}
	}
}
