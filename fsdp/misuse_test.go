package fsdp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// What each function of fsdp says when it is used wrong.
func TestMisuse(t *testing.T) {
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		good := fsdp.Config{Shard: r.World, Stage: 3}
		mine := fsdp.New(good)
		attached := nn.NewLinear(2, 3)
		mine.Unit(attached)
		disttest.Must(mine.Attach(attached))
		attach := func(c fsdp.Config, model any) func() error {
			return func() error { _, err := fsdp.New(c).Attach(model); return err }
		}
		naive := func(c fsdp.Config, model any) func() error {
			return func() error { _, err := fsdp.Naive(model, c); return err }
		}
		stranger := nn.NewLinear(2, 3)
		// with attaches a model of two layers, of which the second is a unit.
		with := func(set func(s *fsdp.Sharding, first *nn.Linear)) func() error {
			return func() error {
				s, first, second := fsdp.New(good), nn.NewLinear(2, 3), nn.NewLinear(3, 2)
				s.Unit(second)
				set(s, first)
				_, err := s.Attach(nn.Sequential{first, second})
				return err
			}
		}
		own := fsdp.Config{Shard: r.World.With(dist.Name("own")), Stage: 3} // which fails
		misuse.Check(t, []misuse.Case{
			{Of: "New", Want: "fsdp: Config.Shard is not set", Do: attach(fsdp.Config{}, stranger)},
			{Of: "New", Want: "fsdp: Config.Stage is 4, not 1, 2 or 3", Do: attach(fsdp.Config{Shard: r.World, Stage: 4}, stranger)},
			{Of: "New", Want: "fsdp: Config.DType is bfloat16, not float32 or float64 (see Compute)",
				Do: attach(fsdp.Config{Shard: r.World, Stage: 3, DType: tensor.BFloat16}, stranger)},
			{Of: "New", Want: "fsdp: types Compute=int64 and Reduce=float32 must each be float32 or a 16-bit float type",
				Do: attach(fsdp.Config{Shard: r.World, Stage: 3, Compute: tensor.Int64}, stranger)},
			{Of: "Sharding.Attach", Want: "fsdp: no parameters in a model of type nn.Sequential", Do: attach(good, nn.Sequential{nn.ReLU})},
			{Of: "Sharding.Attach", Want: "fsdp: Attach was called before", Do: func() error { _, err := mine.Attach(stranger); return err }},
			{Of: "Sharding.Attach", Want: "fsdp: 0.weight is in no unit\nfsdp: 0.bias is in no unit", Do: with(func(*fsdp.Sharding, *nn.Linear) {})},
			{Of: "Sharding.Unit", Want: "fsdp: a parameter[3 2] in unit 1 is not in the model\nfsdp: a parameter[3] in unit 1 is not in the model",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first, stranger) })},
			{Of: "Sharding.Unit", Want: "fsdp: unit 2 has no parameters",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first); s.Unit() })},
			{Of: "Sharding.Unit", Want: "fsdp: 0.weight is in units 1 and 2; what is tied belongs in one\nfsdp: 0.bias is in units 1 and 2; " +
				"what is tied belongs in one", Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first); s.Unit(first) })},
			{Of: "Sharding.Keep", Want: "fsdp: a parameter[3 2] in unit 2 is not in the model\nfsdp: a parameter[3] in unit 2 is not in the model",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Keep(first); s.Keep(stranger) })},
			{Of: "Sharding.Ignore", Want: "fsdp: 0.weight is in unit 1, and ignored\nfsdp: 0.bias is in unit 1, and ignored",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first); s.Ignore(first) })},
			{Of: "Unit.Over", Want: "fsdp: Unit.Over: the group of the ranks that share the unit is nil",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first).Over(nil, nil) })},
			{Of: "Unit.Types", Want: "fsdp: unit 1: types Compute=int64 and Reduce=float32 must each be float32 or a 16-bit float type",
				Do: with(func(s *fsdp.Sharding, first *nn.Linear) { s.Unit(first).Types(tensor.Int64, tensor.Float32) })},
			{Of: "Sharding.Full", Want: "fsdp: a parameter[3 2] was never made", Do: func() error { _, err := mine.Full(stranger.W); return err }},
			{Of: "Sharding.SumTensor", Want: "rank 0: allreduce seq 1 of group own: output is the zero Tensor",
				Do: func() error { return fsdp.New(own).SumTensor(tensor.Tensor{}) }},
			{Of: "Naive", Want: "fsdp: Config.Shard is not set", Do: naive(fsdp.Config{}, stranger)},
			{Of: "Naive", Want: "fsdp: no parameters in a model of type nn.Sequential", Do: naive(good, nn.Sequential{nn.ReLU})},
		}, map[string]string{
			"Sharding.SumFloats":     "adds up any numbers",
			"Sharding.BeforeUse":     "the tape calls it",
			"Sharding.BackwardBegin": "the tape calls it",
			"Sharding.GradReady":     "the tape calls it",
			"Sharding.BackwardDone":  "the tape calls it",
			"Sharding.Changed":       "Param.Changed calls it",
		})
		return nil
	}))
}
