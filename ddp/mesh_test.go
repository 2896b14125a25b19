package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// A program that divides its ranks only after they were used as one axis is refused: what was attached, or read, is of other ranks.
func TestMeshAfterUse(t *testing.T) {
	attach := func(g *dist.Group) error {
		_, err := ddp.Attach(g, nn.NewLinear(3, 2), ddp.Config{DType: tensor.Float64})
		return err
	}
	for name, use := range map[string]func(r *dist.Rank) error{
		"a model is attached": func(r *dist.Rank) error { return attach(r.World) },
		"a naive one":         func(r *dist.Rank) error { _, err := ddp.Naive(r.World, nn.NewLinear(3, 2), ddp.Config{}); return err },
		"a batch has Rows":    func(r *dist.Rank) error { r.World.Rows(r.World.Rank(), 4); return nil },
		"another mesh":        func(r *dist.Rank) error { _, err := r.Mesh("rows=4"); return err },
		"a loader reads": func(r *dist.Rank) error {
			set := disttest.Must(data.NewTensors(tensor.New(r.Device, tensor.Float32, 8, 3), tensor.New(r.Device, tensor.Int64, 8)))
			batches := data.NewLoader(set, data.Config{Batch: 4, Sharder: r.World})
			for range batches.Epoch(t.Context(), 0) {
				break
			}
			return batches.Err()
		},
	} {
		for _, spec := range []string{"dp=2,tp=2", "tp=2,dp=2"} {
			err := disttest.OnRanks(4, func(r *dist.Rank) error {
				disttest.OK(use(r))
				_, err := r.Mesh(spec)
				return err
			})
			require.ErrorContains(t, err, "is no axis of the job, which are ", name)
		}
	}
}
