package gpt_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// transformed are the folders of testdata that are as transformers writes them.
var transformed = []string{"gpt2", "llama", "scaled", "mistral", "qwen2", "qwen3", "phi3", "window", "late", "mixtral", "qwen3_moe",
	"unnormalized", "smollm3", "gemma2", "gemma3"}

// TestTorch: with weights that transformers wrote, logits and 20 steps of AdamW equal PyTorch's.
func TestTorch(t *testing.T) {
	var expect map[string]struct{ Before, Losses, After []float64 }
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &expect))
	require.ElementsMatch(t, transformed, slices.Collect(maps.Keys(expect)))
	for name, want := range expect {
		m, params, dev := opened(t, filepath.Join("testdata", name), tensor.Float64)
		logits := func() []float64 {
			tape := tensor.NewTape(dev, tensor.NoGrad())
			return tensor.Floats(m.Forward(tape.Input(torchIDs(0))))
		}
		require.InDeltaSlice(t, want.Before, logits(), 1e-12, name)
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.01})
		tape := tensor.NewTape(dev)
		for step, loss := range want.Losses {
			ids := tape.Input(torchIDs(step))
			l := nn.CrossEntropy(m.Forward(ids.Slice(1, 0, 8)), ids.Slice(1, 1, 9))
			require.InDelta(t, loss, l.Item(), 1e-9, "%s, step %d", name, step)
			tape.Backward(l)
			require.NoError(t, opt.Step())
			tape.Reset()
		}
		if want.After != nil {
			require.InDeltaSlice(t, want.After, logits(), 1e-9, name)
		}
	}
}

// torchIDs is ids() of write.py.
func torchIDs(step int) tensor.Tensor {
	ids := make([]int64, 3*9)
	for i := range ids {
		ids[i] = int64((i*i + 7*step + 3*i) / 2 % 13)
	}
	return tensor.FromSlice(ids, 3, 9)
}
