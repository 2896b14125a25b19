package tp_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tp"
)

// Each rank reads its part of Hugging Face's files, also where several layers are one matrix there, and never holds the whole; logits
// are those of one rank.
func TestLoad(t *testing.T) {
	for name, n := range map[string]int{"gpt2": 3, "llama": 2} {
		dir := filepath.Join("..", "models", "gpt", "testdata", name)
		ids := tensor.FromSlice([]int64{1, 4, 9, 3, 12, 10, 10, 12}, 2, 4)
		var want []float64
		var all int64 // bytes
		var whole int // of parameters, on one rank
		for _, ranks := range []int{1, n} {
			require.NoError(t, dist.Run(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
				m, err := gpt.Open(dir)
				require.NoError(t, err)
				if ranks > 1 {
					mesh, err := r.Mesh(fmt.Sprint("tp=", n))
					require.NoError(t, err)
					_, err = parallelize(m, tp.Config{Group: mesh.Group("tp")})
					require.NoError(t, err)
				}
				params := nn.Init(m, r.Device, tensor.Float64, 1)
				report, err := ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
				require.NoError(t, err)
				tape := tensor.NewTape(r.Device, tensor.NoGrad())
				logits := m.Forward(tape.Input(ids))
				if ranks > 1 {
					logits = tape.Apply(m.Drawn, logits)
				}
				held := r.Device.Memory().ByName()["parameters"].Peak
				if ranks == 1 {
					want, all, whole = tensor.Floats(logits), report.BytesRead, held
					return nil
				}
				require.InDeltaSlice(t, want, tensor.Floats(logits), 1e-12, name)
				most := 1/float64(n) + 0.1 // norms, positions and late biases are whole
				require.Less(t, float64(report.BytesRead), most*float64(all), name)
				require.Less(t, float64(held), most*float64(whole), name)
				return nil
			}))
		}
	}
}
