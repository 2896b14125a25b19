package tp_test

import (
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/cp"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

const thinWidth, thinHidden = 12, 13

// thin is a block with dropout of probabilities, of hidden features and of what is added to the residual stream. Without attention its
// tokens may be divided.
type thin struct {
	Norm1 nn.Layer
	Attn  *nn.Attention // nil: none
	Drop1 *nn.Dropout
	Norm2 nn.Layer
	Up    *nn.Linear
	Hide  *nn.Dropout
	Down  *nn.Linear
	Drop2 *nn.Dropout

	tokens tensor.Function
}

func newThin(attention bool) *thin {
	m := &thin{Drop1: nn.NewDropout(0.2), Norm2: nn.NewLayerNorm(thinWidth), Up: nn.NewLinear(thinWidth, thinHidden),
		Hide: nn.NewDropout(0.3), Down: nn.NewLinear(thinHidden, thinWidth), Drop2: nn.NewDropout(0.1)}
	if attention {
		m.Norm1, m.Attn = nn.NewLayerNorm(thinWidth), nn.NewAttention(thinWidth, 6)
		m.Attn.Drop = nn.NewDropout(0.25)
	}
	return m
}

func (m *thin) divide(c tp.Config) error {
	return tp.Parallelize(m, c, func(p *tp.Parallel) {
		m.tokens = p.Tokens()
		if m.Attn != nil {
			m.Norm1 = p.Attention(m.Norm1, m.Attn)
		}
		p.Outside(m.Drop1)
		m.Norm2 = p.Columns(m.Norm2, m.Up)
		p.Inside(m.Hide, thinHidden)
		p.Row(m.Down)
		p.Outside(m.Drop2)
	})
}

func (m *thin) loss(x nn.T) nn.T {
	if m.Attn != nil {
		x = x.Add(m.Drop1.Forward(m.Attn.Forward(m.Norm1.Forward(x))))
	} else {
		x = x.Reshape(-1, thinWidth)
		if m.tokens != nil {
			x = x.Tape().Apply(m.tokens, x)
		}
		x = x.Add(m.Drop1.Forward(x))
	}
	x = x.Add(m.Drop2.Forward(m.Down.Forward(m.Hide.Forward(m.Up.Forward(m.Norm2.Forward(x)).GELU()))))
	return x.Square().Sum().Scale(0.01)
}

// thinJob is a training of a thin model. Ranks of kv divide it, those of dp have other rows, and those of cp other positions.
type thinJob struct {
	attention bool
	again     bool              // computed again in backward
	form      func(x nn.T) nn.T // of [rows, positions, features]; nil: as they are
	cfg       tp.Config
	change    func(m *thin) // of the program, before Attach
}

func (j thinJob) training(mesh string) disttest.Training {
	return disttest.Training{Attach: j.attach, Mesh: whole(mesh), Batch: 10, Name: fmt.Sprintf("%+v", j)}
}

func (j thinJob) attach(r *dist.Rank, mesh *dist.Mesh) (a disttest.Attached, err error) {
	const time = 3
	m := newThin(j.attention)
	part := func(x nn.T) nn.T { return x }
	a = disttest.Attached{Norm: r.World, Loss: func(b disttest.Batch) nn.T {
		x := tensor.New(r.Device, tensor.Float64, b.N, time, thinWidth)
		tensor.NormalInit(0, 1).Fill(x, 7, uint64(b.First*time*thinWidth))
		in := b.Tape.Input(part(x.WithRows(b.Rows)))
		if j.form != nil {
			in = j.form(in)
		}
		if j.again {
			return b.Tape.Checkpoint(func(in ...nn.T) nn.T { return m.loss(in[0]) }, in)
		}
		return m.loss(in)
	}}
	if mesh == nil {
		a.Params = nn.Init(m, r.Device, tensor.Float64, 3)
		return a, nil
	}
	j.cfg.Group, a.Data, a.Sum = mesh.Group("kv"), mesh.Group("dp"), mesh.Group("dp", "cp")
	if j.cfg.Sequence {
		a.Sum = r.World
	}
	disttest.OK(m.divide(j.cfg))
	if g := mesh.Group("cp"); g.Size() > 1 {
		part = (&cp.Ulysses{Group: g}).Part
	}
	if j.change != nil {
		j.change(m)
	}
	a.Params, err = ddp.Attach(mesh.Group("dp", "cp"), m, ddp.Config{DType: tensor.Float64, Seed: 3})
	return a, err
}

// Dropout drops what it drops on one rank.
func TestDropoutEqualsOneRank(t *testing.T) {
	for _, attention := range []bool{true, false} {
		want := thinJob{attention: attention}.training("").Run(t)
		for i, mesh := range []string{"kv=2", "dp=2,kv=3", "kv=6"} {
			for k, cfg := range forms {
				if (!attention || !cfg.Sequence) && (i == 1 && (attention || i == k)) != reliability.Long(t) {
					disttest.RequireEqual(t, want, thinJob{attention: attention, cfg: cfg}.training(mesh).Run(t), 1e-10)
				}
			}
		}
	}
}

func TestLongDropoutEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestDropoutEqualsOneRank) }

// Masks of tokens of a part of each sequence, of which each rank has some, are those of one rank: of positions and tokens that do not
// divide, on ranks without rows, and where they are computed again.
func TestDropoutOfPartsOfSequences(t *testing.T) {
	want := thinJob{}.training("").Run(t)
	for i, mesh := range []string{"cp=2,kv=2", "dp=2,cp=2,kv=2", "cp=3,kv=3", "dp=3,cp=2"} {
		for k, cfg := range forms {
			if (i == 0 && k == 2 || i == 3 && k == 0) == reliability.Long(t) {
				continue
			}
			j := thinJob{cfg: cfg, again: i%2 == 0}
			disttest.RequireEqual(t, want, j.training(mesh).Run(t), 1e-10)
			c := j.training(mesh)
			c.Part = func(rows, rank, ranks int) (first, n int) {
				if rank == 0 {
					return 0, 0
				}
				return disttest.Part(rows, rank-1, ranks-1)
			}
			if i%2 == 1 {
				disttest.RequireEqual(t, want, c.Run(t), 1e-10)
			}
		}
	}
}

func TestLongDropoutOfPartsOfSequences(t *testing.T) {
	reliability.AsLong(t, TestDropoutOfPartsOfSequences)
}

// Tokens that are not row after row have other places on one rank: a part of them is refused.
func TestDropoutOfTokensInAnotherOrder(t *testing.T) {
	views := func(dim int) func(x nn.T) nn.T {
		return func(x nn.T) nn.T { return tensor.Concat(dim, x, x.Scale(2)) }
	}
	for _, form := range []func(x nn.T) nn.T{
		views(0), func(x nn.T) nn.T { return x.Permute(1, 0, 2) }, func(x nn.T) nn.T { return views(0)(x).Permute(1, 0, 2) },
	} {
		for _, mesh := range []string{"kv=2", "dp=2,kv=3"} {
			thinJob{cfg: sequence, form: form}.training(mesh).Refused(t, "a part of tokens that are not row after row")
		}
	}
	j := thinJob{form: views(1)}
	want := j.training("").Run(t)
	for i, cfg := range forms {
		if j.cfg = cfg; i != 1 && !reliability.Long(t) {
			continue
		}
		disttest.RequireEqual(t, want, j.training("dp=2,kv=3").Run(t), 1e-10)
	}
}

func TestLongDropoutOfTokensInAnotherOrder(t *testing.T) {
	reliability.AsLong(t, TestDropoutOfTokensInAnotherOrder)
}

// Layers that do not divide are refused.
func TestAttentionThatDoesNotDivide(t *testing.T) {
	for want, seq := range map[string]bool{
		"6 heads of attn.qkv.weight do not divide over 4 ranks": false,
		"nn.Attention has no flat tokens":                       true,
	} {
		thinJob{attention: true, cfg: tp.Config{Sequence: seq}}.training("kv=4").Refused(t, want)
	}
}
