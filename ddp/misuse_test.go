package ddp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// What each function of ddp says when it is used wrong.
func TestMisuse(t *testing.T) {
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		mine := nn.NewLinear(2, 3)
		disttest.Must(ddp.Attach(r.World, mine, ddp.Config{}))
		attach := func(g *dist.Group, model any, c ddp.Config) func() error {
			return func() error { _, err := ddp.Attach(g, model, c); return err }
		}
		naive := func(g *dist.Group, model any, c ddp.Config) func() error {
			return func() error { _, err := ddp.Naive(g, model, c); return err }
		}
		const none = "ddp: no parameters in a model of type nn.Sequential: a rank of a pipeline that has none does not call Attach"
		misuse.Check(t, []misuse.Case{
			{Of: "Attach", Want: none, Do: attach(r.World, nn.Sequential{nn.ReLU}, ddp.Config{})},
			{Of: "Attach", Want: "ddp: weight is attached already: its gradient belongs to ddp", Do: attach(r.World, mine, ddp.Config{})},
			{Of: "Attach", Want: "ddp: the group is nil", Do: attach(nil, nn.NewLinear(2, 3), ddp.Config{})},
			{Of: "Attach", Want: "Make: weight[3 2]: a parameter is of floats, not of int64",
				Do: attach(r.World, nn.NewLinear(2, 3), ddp.Config{DType: tensor.Int64})},
			{Of: "Attach", Want: "ddp: Config.BucketBytes is -1, want 1 or more, or 0 for 25 MiB",
				Do: attach(r.World, nn.NewLinear(2, 3), ddp.Config{BucketBytes: -1})},
			{Of: "Attach", Want: "ddp: no parameters in a model of type <nil>: a rank of a pipeline that has none does not call Attach",
				Do: attach(r.World, nil, ddp.Config{})},
			{Of: "Naive", Want: none, Do: naive(r.World, nn.Sequential{nn.ReLU}, ddp.Config{})},
			{Of: "Naive", Want: "ddp: weight is attached already: its gradient belongs to ddp", Do: naive(r.World, mine, ddp.Config{})},
			{Of: "Naive", Want: "ddp: the group is nil", Do: naive(nil, nn.NewLinear(2, 3), ddp.Config{})},
			{Of: "Compress", Want: "ddp.Compress: float32 is not a 16-bit float type",
				Do: func() error { ddp.Compress(tensor.Float32); return nil }},
		}, map[string]string{"Bucket.Sum": "AllReduce says what is wrong with a tensor"})
		return nil
	}))
}
