package pp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/pp"
	"github.com/ringo-ml/ringo/tensor"
)

// columns are the layers of two stages. A rank has one, or both.
type columns struct{ First, Last *nn.Linear }

// A stage may return some columns of a tensor: what is sent is packed.
func TestStagesOfColumns(t *testing.T) {
	const micros, rows, total = 3, 5, 15
	train := func(ranks int) (losses []float64) {
		require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
			m := &columns{nn.NewLinear(3, 6), nn.NewLinear(8, 1)}
			first, last := m.First, m.Last
			stages := []pp.Stage{
				func(t *tensor.Tape, micro int, _ tensor.Tensor) tensor.Tensor {
					x := tensor.New(r.Device, tensor.Float64, rows, 3)
					tensor.NormalInit(0, 1).Fill(x, 5, uint64(micro*rows*3))
					x = x.WithRows(tensor.Rows{First: micro * rows, Stride: 1, Total: total})
					return first.Forward(t.Input(x)).Tanh().Slice(1, 1, 5)
				},
				func(_ *tensor.Tape, _ int, x tensor.Tensor) tensor.Tensor {
					return tensor.GlobalMean(last.Forward(tensor.Concat(1, x, x.Detach())).Affine(1, -0.3).Square())
				},
			}
			has := map[int]pp.Stage{r.World.Rank(): stages[r.World.Rank()]}
			switch {
			case ranks == 1:
				has[0] = func(t *tensor.Tape, micro int, x tensor.Tensor) tensor.Tensor {
					return stages[1](t, micro, stages[0](t, micro, x))
				}
			case r.World.Rank() == 0:
				m.Last = nil
			default:
				m.First = nil
			}
			params := nn.Init(m, r.Device, tensor.Float64, 1)
			opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
			p := disttest.Must(pp.New(pp.Config{Group: r.World, Schedule: pp.GPipe(ranks, micros), Stages: has,
				Tape: tensor.NewTape(r.Device), Params: params, Optimizer: opt}))
			defer p.Close()
			for range 10 {
				l := disttest.Must(p.Step())
				disttest.OK(opt.Step())
				if r.World.Rank() == ranks-1 {
					losses = append(losses, l)
				}
			}
			return nil
		}))
		return losses
	}
	require.InDeltaSlice(t, train(1), train(2), 1e-14)
}
