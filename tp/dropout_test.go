package tp_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
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

// run trains ten steps, and returns all parameters.
func (m *thin) run(r *dist.Rank, mesh string, seq bool) ([]float64, error) {
	const rows, time = 5, 3
	data := r.World
	params := nn.Params(nil)
	if mesh == "" {
		params = nn.Init(m, r.Device, tensor.Float64, 3)
	} else {
		all, err := r.Mesh(mesh)
		if err != nil {
			return nil, err
		}
		if err := m.divide(tp.Config{Group: all.Group("tp"), Sequence: seq}); err != nil {
			return nil, err
		}
		data = all.Group("dp")
		if params, err = ddp.Attach(data, m, ddp.Config{DType: tensor.Float64, Seed: 3}); err != nil {
			return nil, err
		}
	}
	opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.01, Clip: 1, Norm: r.World}), tensor.NewTape(r.Device, tensor.Seed(5))
	x := tensor.NewParam(tensor.NormalInit(0, 1), rows, time, thinWidth)
	x.Make(tensor.NewCPU(1), tensor.Float64, 7)
	for range 10 {
		first, n := disttest.Part(rows, data.Rank(), data.Size())
		const each = time * thinWidth
		mine := tensor.FromSlice(tensor.Data[float64](x.Value)[first*each:(first+n)*each], n, time, thinWidth)
		tape.Backward(m.loss(tape.Input(mine.WithRows(data.Rows(first, rows)))))
		if err := opt.Step(); err != nil {
			return nil, err
		}
		tape.Reset()
	}
	return disttest.Whole(r.World, params...)
}

// Dropout drops what it drops on one rank.
func TestDropoutEqualsOneRank(t *testing.T) {
	for _, attention := range []bool{true, false} {
		var want []float64
		for _, ranks := range [][2]int{{1, 1}, {1, 2}, {2, 3}, {1, 6}} {
			for _, seq := range []bool{false, true} {
				if seq && (attention || ranks[1] == 1) {
					continue
				}
				mesh := fmt.Sprintf("dp=%d,tp=%d", ranks[0], ranks[1])
				if want == nil {
					mesh = ""
				}
				require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: ranks[0] * ranks[1], Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
					got, err := newThin(attention).run(r, mesh, seq)
					if err != nil || r.World.Rank() > 0 {
						return err
					}
					if want == nil {
						want = got
						return nil
					}
					require.InDeltaSlice(t, want, got, 1e-10, "attention %v, %s, sequence %v", attention, mesh, seq)
					return nil
				}))
			}
		}
	}
}

func TestAttentionThatDoesNotDivide(t *testing.T) {
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 4, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		mesh, err := r.Mesh("tp=4")
		require.NoError(t, err)
		require.ErrorContains(t, newThin(true).divide(tp.Config{Group: mesh.Group("tp")}), "6 heads of attn.qkv.weight do not divide over 4 ranks")
		require.ErrorContains(t, newThin(true).divide(tp.Config{Group: mesh.Group("tp"), Sequence: true}), "nn.Attention has no flat tokens")
		return nil
	}))
}
