package ckpt

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// torchWant returns the bytes that a fixture's tensors had in PyTorch.
func torchWant(t *testing.T, fixture string) func(key string) []byte {
	t.Helper()
	text, err := os.ReadFile("torch/testdata/expect.json")
	require.NoError(t, err)
	var all map[string]map[string]struct{ Hex string }
	require.NoError(t, json.Unmarshal(text, &all))
	return func(key string) []byte {
		b, err := hex.DecodeString(all[fixture][key].Hex)
		require.NoError(t, err)
		require.NotEmpty(t, b, key)
		return b
	}
}

// TestConvertTorch resumes from a PyTorch checkpoint: weights, moments, step counts and learning rate are the same, bit
// by bit.
func TestConvertTorch(t *testing.T) {
	adamw := func(p nn.Params) *optim.Optimizer { return optim.NewAdamW(p, optim.AdamWConfig{}) }
	sgd := func(p nn.Params) *optim.Optimizer { return optim.NewSGD(p, optim.SGDConfig{LR: 1, Momentum: 0.9}) }
	for _, c := range []struct {
		fixture, model, state string
		numbers               bool
		optimizer             func(nn.Params) *optim.Optimizer
		steps                 int
		lr                    float64
		moments               []string
		leftOut               []string
	}{
		{"adamw.pt", "model/", "optimizer/state/", true, adamw, 2, 0.01, []string{"exp_avg", "exp_avg_sq"}, []string{"bytes: bytes"}},
		{"sgd.pt", "state_dict/", "optimizer/state/", true, sgd, 1, 0.1, []string{"momentum_buffer"}, []string{"ema: 1 tensors"}},
		{"fsdp2", "model/", "optim/state/", false, adamw, 2, 0.01, []string{"exp_avg", "exp_avg_sq"}, nil},
	} {
		var leftOut []string
		to := filepath.Join(t.TempDir(), "new")
		cfg := inspect.ConvertConfig{FileBytes: 100, LeftOut: func(what []string) { leftOut = what }}
		require.NoError(t, inspect.Convert(context.Background(), "torch/testdata/"+c.fixture, to, cfg))
		require.Equal(t, c.leftOut, leftOut)
		v := mustVerify(t, to, inspect.VerifyConfig{Layout: "fsdp=2"})
		require.True(t, v.OK, v.Errors)
		require.Equal(t, 4+4*len(c.moments), v.Tensors)
		want := torchWant(t, c.fixture)
		onRanks(t, 2, func(g *dist.Group) error {
			params := nn.Init(nn.Sequential{nn.NewLinear(3, 5), nn.ReLU, nn.NewLinear(5, 2)}, g.Device(), tensor.Float32, 9)
			opt := c.optimizer(params)
			var extra map[string]any
			st := State{Params: params, Optimizer: opt, Extra: map[string]any{"torch": &extra}}
			r, err := Load(context.Background(), g, to, &st, LoadConfig{})
			if err != nil {
				return err
			}
			require.Zero(t, r.Unverified)
			require.Contains(t, extra, "param_groups")
			require.Equal(t, []any{c.steps, c.steps, c.lr}, []any{st.Step, opt.Steps(), opt.State().LR})
			for i, p := range params {
				require.Equal(t, want(c.model+p.Name()), p.Local.Bytes(), "%s: %s", c.fixture, p.Name())
				require.Equal(t, c.steps, opt.State().Counts[p.Name()])
				key := p.Name()
				if c.numbers {
					key = string(rune('0' + i))
				}
				for k, m := range c.moments {
					x := opt.State().Tensors[i*len(c.moments)+k]
					require.Equal(t, p.Name()+"."+m, x.Name)
					require.Equal(t, want(c.state+key+"/"+m), x.Tensor.Bytes(), "%s: %s", c.fixture, x.Name)
				}
			}
			return nil
		})
	}
}

// TestConvertTorchModel: a model alone, in another type; and what cannot be converted.
func TestConvertTorchModel(t *testing.T) {
	ctx, bf16 := context.Background(), tensor.BFloat16
	to := filepath.Join(t.TempDir(), "new")
	err := inspect.Convert(ctx, "torch/testdata/groups.pt", to, inspect.ConvertConfig{})
	require.ErrorContains(t, err, "ckpt: converting torch/testdata/groups.pt: torch: optimizer: it numbers 2 parameters in 2 groups")
	require.NoFileExists(t, to)
	require.NoError(t, inspect.Convert(ctx, "torch/testdata/groups.pt", to, inspect.ConvertConfig{ModelOnly: true, DType: &bf16}))
	_, list, err := inspect.List(to)
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.Equal(t, inspect.Info{Name: "0.weight", Kind: "model", DType: "BF16", Shape: []int{5, 3}, File: "model.safetensors", Bytes: 30,
		Shards: 1}, list[0])

	state := filepath.Join(t.TempDir(), "state")
	require.NoError(t, inspect.Convert(ctx, "torch/testdata/state.pt", state, inspect.ConvertConfig{}))
	require.True(t, mustVerify(t, state, inspect.VerifyConfig{}).OK)
	want := torchWant(t, "state.pt")
	src, err := storage.Open(disk.OS{}, state)
	require.NoError(t, err)
	defer src.Close()
	require.Len(t, src.Model, 20)
	for _, x := range src.Model {
		b := make([]byte, x.End-x.Start)
		if _, err := x.File.Content.ReadAt(b, x.Offset); len(b) > 0 {
			require.NoError(t, err)
			require.Equal(t, want(x.Name), b, x.Name)
		}
	}

	// ModelOnly also works for a checkpoint of this package.
	adamw, model := filepath.Join(t.TempDir(), "adamw"), filepath.Join(t.TempDir(), "model")
	require.NoError(t, inspect.Convert(ctx, "torch/testdata/adamw.pt", adamw, inspect.ConvertConfig{}))
	require.NoError(t, inspect.Convert(ctx, adamw, model, inspect.ConvertConfig{ModelOnly: true}))
	v := mustVerify(t, model, inspect.VerifyConfig{})
	require.True(t, v.OK, v.Errors)
	require.Equal(t, 4, v.Tensors)
}
