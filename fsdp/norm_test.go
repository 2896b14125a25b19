package fsdp_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// gauge is a norm that is whole on both ranks of tp, and a layer that they cut by its outputs.
type gauge struct {
	N *nn.LayerNorm
	L *nn.Linear
}

// normOf returns the norm of the gradients of a gauge on fsdp × tp ranks, all of which have the row 1, 2, 3, 4.
func normOf(r *dist.Rank, shards, parts int, norm func(r *dist.Rank, s *fsdp.Sharding) optim.Norm) (float64, error) {
	mesh := disttest.Must(r.Mesh(fmt.Sprintf("fsdp=%d,tp=%d", shards, parts)))
	rows, tp := mesh.Group("fsdp"), mesh.Group("tp")
	m := &gauge{nn.NewLayerNorm(4), nn.NewLinear(4, 4)}
	m.L.W.Place(tp.Axis(), layout.Division{})
	m.L.B.Place(tp.Axis(), layout.Division{})
	s := fsdp.New(fsdp.Config{Shard: rows, DType: tensor.Float64, Seed: 7})
	s.Unit(m)
	params := disttest.Must(s.Attach(m))
	var opt *optim.Optimizer
	disttest.OK(tensor.Try(func() { opt = optim.NewSGD(params, optim.SGDConfig{LR: 1e-9, Clip: 1e9, Norm: norm(r, s)}) }))
	tape := tensor.NewTape(r.Device)
	m.L.Pre = &autograd.Copy{Group: tp}
	x := tensor.FromSlice([]float64{1, 2, 3, 4}, 1, 4).WithRows(rows.Rows(rows.Rank(), rows.Size()))
	tape.Backward(m.L.Forward(m.N.Forward(tape.Input(x))).Sum())
	err := opt.Step()
	return opt.GradNorm(), err
}

func ofWorld(r *dist.Rank, _ *fsdp.Sharding) optim.Norm { return r.World }

// The norm over fsdp × tp is that of one rank, also unevenly cut. Counting copies once made 9.591 of it.
func TestNormOverTwoAxes(t *testing.T) {
	for _, sizes := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {2, 3}, {1, 4}} {
		require.NoError(t, disttest.OnRanks(sizes[0]*sizes[1], func(r *dist.Rank) error {
			got, err := normOf(r, sizes[0], sizes[1], ofWorld)
			require.InDelta(t, 9.2731417*float64(sizes[0])/2, got, 1e-6, "fsdp=%d,tp=%d", sizes[0], sizes[1])
			return err
		}))
	}
}

// What would be another norm is refused, with the parameter and what to do, on all ranks.
func TestWrongNormsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		norm func(r *dist.Rank, s *fsdp.Sharding) optim.Norm
		want string
	}{
		"none": {func(*dist.Rank, *fsdp.Sharding) optim.Norm { return nil },
			".weight, and there is no Norm: Clip, Scaler and Skip would go by the norm of this rank's part; give Config.Norm the group of all ranks that hold parts (Norm: r.World)"},
		"over the axes of fsdp": {func(_ *dist.Rank, s *fsdp.Sharding) optim.Norm { return s },
			"Norm must be the group of all ranks that hold parts of it (Norm: r.World)"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			refused := 0
			err := disttest.OnRanks(4, func(r *dist.Rank) error {
				var err error
				if failed := tensor.Try(func() { _, err = normOf(r, 2, 2, c.norm) }); failed != nil {
					err = failed
				}
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused++
				}
				return err
			})
			require.ErrorContains(t, err, c.want)
			require.Equal(t, 4, refused)
		})
	}
}
