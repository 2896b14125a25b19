package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// twoParams returns the parameters a and b; all values and gradients are 1.
func twoParams(g *dist.Group) nn.Params {
	var params nn.Params
	for _, name := range []string{"a", "b"} {
		p := tensor.NewParam(tensor.Constant(1), 3)
		p.SetName(name)
		p.Make(g.Device(), tensor.Float32, 1)
		p.Grad = tensor.FromSlice([]float32{1, 1, 1}, 3)
		p.FillGrad()
		params = append(params, p)
	}
	return params
}

// saveTrained saves an optimizer after three steps. Then change may edit ringo.json and the optimizer's file.
func saveTrained(t *testing.T, make func(nn.Params) *optim.Optimizer, change func(man *storage.Manifest, file []byte)) string {
	dir := t.TempDir()
	onRanks(t, 1, func(g *dist.Group) error {
		params := twoParams(g)
		opt := make(params)
		for range 3 {
			require.NoError(t, opt.Step())
		}
		require.NoError(t, NewSaver(g, dir, Config{}).Save(context.Background(), State{Step: 3, Params: params, Optimizer: opt}))
		return nil
	})
	path := filepath.Join(dir, storage.StepName(3))
	text, err := os.ReadFile(filepath.Join(path, storage.ManifestName))
	require.NoError(t, err)
	man, err := storage.DecodeManifest(text)
	require.NoError(t, err)
	name := filepath.Join(path, "optimizer.safetensors")
	file, err := os.ReadFile(name)
	require.NoError(t, err)
	change(man, file)
	require.NoError(t, os.WriteFile(name, file, 0o666))
	text, err = man.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(path, storage.ManifestName), text, 0o666))
	return path
}

// A step count is loaded with all moments of its parameter or not at all. So the first update after a load is that of a
// new AdamW (the learning rate), and not one with an old count and no moments.
func TestCountsComeWithMoments(t *testing.T) {
	sgd := func(p nn.Params) *optim.Optimizer { return optim.NewSGD(p, optim.SGDConfig{LR: 0.5, Momentum: 0.9}) }
	adam := func(p nn.Params) *optim.Optimizer { return optim.NewAdamW(p, optim.AdamWConfig{LR: 0.5}) }
	for name, c := range map[string]struct {
		saved  func(nn.Params) *optim.Optimizer
		change func(*storage.Manifest, []byte)
		anew   []string
	}{
		"SGD":           {sgd, func(*storage.Manifest, []byte) {}, []string{"a", "b"}},
		"AdamW":         {adam, func(*storage.Manifest, []byte) {}, nil},
		"no count of a": {adam, func(m *storage.Manifest, _ []byte) { delete(m.Optimizer.Counts, "a") }, []string{"a"}},
		"one moment of b's": {adam, func(m *storage.Manifest, file []byte) {
			m.Optimizer.Tensors[3].Name = "b.other_name"
			header := file[:8+binary.LittleEndian.Uint64(file)]
			copy(header, bytes.ReplaceAll(header, []byte("b.exp_avg_sq"), []byte("b.other_name")))
			m.Files[1].HeaderHash = storage.Sum(header)
		}, []string{"b"}},
	} {
		path := saveTrained(t, c.saved, c.change)
		for _, s := range []Strategy{Sharded, Broadcast} {
			onRanks(t, 2, func(g *dist.Group) error {
				params := twoParams(g)
				opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 0.25})
				r, err := Load(context.Background(), g, path, &State{Params: params, Optimizer: opt}, LoadConfig{Strategy: s, Partial: true})
				require.NoError(t, err, name)
				require.Equal(t, c.anew, r.Anew, name)
				require.Equal(t, name == "no count of a", slices.Contains(r.Missing, "the step count of a"), name)
				require.Equal(t, []string{"the learning rate 0.25 by 0.5"}, r.Replaced, name)
				require.Equal(t, 0.5, opt.LR())
				state := opt.State()
				for _, x := range state.Tensors {
					anew := slices.Contains(c.anew, x.Param.Name())
					require.Equal(t, anew, tensor.Floats(x.Tensor)[0] == 0, "%s: %s", name, x.Name)
					require.Equal(t, anew, state.Counts[x.Param.Name()] == 0, "%s: %s", name, x.Name)
				}
				before := tensor.Floats(params[0].Local)[0]
				require.NoError(t, opt.Step())
				require.InDelta(t, 0.5, before-tensor.Floats(params[0].Local)[0], 0.02, "%s: the first update", name)
				return nil
			})
		}
	}
}

// An unchanged learning rate is not reported.
func TestSameLearningRate(t *testing.T) {
	adam := func(p nn.Params) *optim.Optimizer { return optim.NewAdamW(p, optim.AdamWConfig{LR: 0.5}) }
	path := saveTrained(t, adam, func(*storage.Manifest, []byte) {})
	onRanks(t, 1, func(g *dist.Group) error {
		params := twoParams(g)
		r, err := Load(context.Background(), g, path, &State{Params: params, Optimizer: adam(params)}, LoadConfig{})
		require.NoError(t, err)
		require.Empty(t, r.Replaced)
		require.Empty(t, r.Anew)
		return nil
	})
}
