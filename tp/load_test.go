package tp_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
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
			require.NoError(t, disttest.OnRanks(ranks, func(r *dist.Rank) error {
				m, err := gpt.Open(dir)
				require.NoError(t, err)
				if ranks > 1 {
					mesh, err := r.Mesh(fmt.Sprint("tp=", n))
					require.NoError(t, err)
					_, err = parallel.Divide(m, tp.Config{Group: mesh.Group("tp")}, nil)
					require.NoError(t, err)
				}
				params := nn.Init(m, r.Device, tensor.Float64, 1)
				report, err := ckpt.Load(t.Context(), r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
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

// A checkpoint of two ranks says what each of four or six would read, of which several have the same keys and values: what they do read.
func TestVerifySaysWhatRanksRead(t *testing.T) {
	dir := t.TempDir()
	on := func(kv, rep int, f func(r *dist.Rank, st *ckpt.State) error) {
		require.NoError(t, disttest.OnRanks(kv*rep, func(r *dist.Rank) error {
			mesh, err := r.Mesh(fmt.Sprintf("kv=%d,rep=%d", kv, rep))
			require.NoError(t, err)
			m, err := gpt.New(models["gqa"])
			require.NoError(t, err)
			_, err = parallel.Divide(m, tp.Config{Group: mesh.Group("kv", "rep"), KV: mesh.Group("kv"), Replicas: mesh.Group("rep")}, nil)
			require.NoError(t, err)
			return f(r, &ckpt.State{Params: nn.Init(m, r.Device, tensor.Float64, 1)})
		}))
	}
	on(2, 1, func(r *dist.Rank, st *ckpt.State) error {
		return ckpt.NewSaver(r.World, dir, ckpt.Config{}).Save(t.Context(), *st)
	})
	dir = filepath.Join(dir, "step-00000000")
	for _, rep := range []int{2, 3} {
		v, err := inspect.Verify(t.Context(), dir, inspect.VerifyConfig{Layout: fmt.Sprint("tp=", 2*rep)})
		require.NoError(t, err)
		require.True(t, v.OK, v.Errors)
		read := make([]int64, 2*rep)
		on(2, rep, func(r *dist.Rank, st *ckpt.State) error {
			report, err := ckpt.Load(t.Context(), r.World, dir, st, ckpt.LoadConfig{})
			if err == nil {
				read[r.World.Rank()] = report.BytesRead
			}
			return err
		})
		for i, want := range read {
			require.Equal(t, want, v.Ranks[i].Bytes, "rank %d of %d", i, 2*rep)
		}
	}
	v, err := inspect.Verify(t.Context(), dir, inspect.VerifyConfig{Layout: "tp=5"})
	require.NoError(t, err)
	require.False(t, v.OK)
	require.Contains(t, fmt.Sprint(v.Errors), "units of 2 do not divide over 5 ranks: the number of ranks must divide")
}
