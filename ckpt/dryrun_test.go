package ckpt_test

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// net has two units (the second begins with a frozen matrix), a buffer, and a layer that fsdp ignores.
type net struct {
	Up      *nn.Linear `nn:"up,transposed"`
	Norm    *nn.LayerNorm
	Scale   *tensor.Param
	Fixed   *nn.Linear
	Down    *nn.Linear
	Mean    *tensor.Buffer
	Ignored *nn.Linear
}

// state creates the net on a mesh with the axes dp and fsdp.
func (n *net) state(r *dist.Rank, layout string) (ckpt.State, error) {
	*n = net{nn.NewLinear(7, 15), nn.NewLayerNorm(7), tensor.NewParam(tensor.Constant(2), 1), nn.NewLinear(5, 3), nn.NewLinear(15, 11),
		tensor.NewBuffer(tensor.Constant(3), 13), nn.NewLinear(2, 3)}
	n.Fixed.W.Freeze()
	mesh := disttest.Must(r.Mesh(layout))
	s := fsdp.New(fsdp.Config{Shard: mesh.Group("fsdp"), Replicate: mesh.Group("dp"), Seed: 4})
	s.Unit(n.Up, n.Norm, n.Scale)
	s.Keep(n.Fixed, n.Down)
	s.Ignore(n.Ignored)
	params := disttest.Must(s.Attach(n))
	for _, p := range params {
		if p.Value.IsZero() { // what fsdp ignores
			p.Make(r.Device, tensor.Float32, 4)
		}
	}
	return ckpt.State{Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{})}, nil
}

// TestDryRun: a layout that Verify accepts also loads: shares of units, transposed matrices, whole buffers, and copies.
// Each rank reads its share, and whole tensors that fsdp does not cut. The short form has half of the layouts for each checkpoint.
func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		st := disttest.Must(new(net).state(r, "dp=1,fsdp=2"))
		s := ckpt.NewSaver(r.World, dir, ckpt.Config{})
		disttest.OK(s.Save(ctx, st))
		return s.Close()
	}))
	saved := filepath.Join(dir, "step-00000000")
	converted := filepath.Join(dir, "converted")
	require.NoError(t, inspect.Convert(context.Background(), saved, converted, inspect.ConvertConfig{}))
	for layout, ranks := range map[string]int{
		"dp=1,fsdp=1": 1, "dp=1,fsdp=2": 2, "dp=1,fsdp=3": 3, "dp=1,fsdp=5": 5, "dp=2,fsdp=3": 6, "dp=3,fsdp=1": 3,
	} {
		for i, path := range []string{saved, converted} {
			if ranks%2 == i && !reliability.Long(t) {
				continue
			}
			v, err := inspect.Verify(context.Background(), path, inspect.VerifyConfig{Layout: layout})
			require.NoError(t, err)
			require.Empty(t, v.Errors)
			require.Empty(t, v.Unchecked)
			require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
				st := disttest.Must(new(net).state(r, layout))
				report := disttest.Must(ckpt.Load(ctx, r.World, path, &st, ckpt.LoadConfig{}))
				sum := []float64{float64(report.BytesRead), 0}
				for _, x := range v.Ranks {
					sum[1] += float64(x.Bytes) / float64(r.World.Size())
				}
				disttest.OK(r.World.SumFloats(sum))
				require.GreaterOrEqual(t, sum[0], math.Round(sum[1]), "%s, rank %d", layout, r.World.Rank())
				return nil
			}))
		}
	}
}

func TestLongDryRun(t *testing.T) { reliability.AsLong(t, TestDryRun) }
