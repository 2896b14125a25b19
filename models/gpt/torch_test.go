package gpt_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// TestTorch: from the weights that transformers wrote, logits and 20 steps of AdamW are PyTorch's.
func TestTorch(t *testing.T) {
	var expect map[string]struct{ Before, Losses, After []float64 }
	text, err := os.ReadFile("testdata/expect.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &expect))
	for _, name := range []string{"gpt2", "llama", "scaled"} {
		c, err := gpt.ReadConfig(filepath.Join("testdata", name))
		require.NoError(t, err)
		m, params, dev := made(t, c, tensor.Float64)
		fill(t, c, params, filepath.Join("testdata", name, "model.safetensors"))
		want := expect[name]
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
		require.InDeltaSlice(t, want.After, logits(), 1e-9, name)
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

// fill gives parameters the values of a file.
func fill(t *testing.T, c gpt.Config, params nn.Params, file string) {
	tensors := readTensors(t, file)
	for _, p := range params {
		part, kind := p.Name()[:strings.LastIndex(p.Name(), ".")], p.Name()[strings.LastIndex(p.Name(), ".")+1:]
		name := llamaName(part)
		if c.Kind == gpt.GPT2 {
			name = gpt2Name(part)
		}
		x, ok := tensors[name+"."+kind]
		require.True(t, ok, "%s of %s", name, p.Name())
		values, dims := x.V, slices.Clone(x.Dims)
		if c.Kind == gpt.GPT2 && strings.HasPrefix(part, "blocks") && len(dims) == 2 { // [in, out]
			values, dims = transpose(values, dims[1]), []int{dims[1], dims[0]}
		}
		if i := strings.Index("qkv", part[len(part)-1:]); c.Kind == gpt.GPT2 && strings.Contains(part, "attn.") && i >= 0 {
			n := len(values) / 3
			values, dims[0] = values[i*n:(i+1)*n], dims[0]/3
		}
		require.Equal(t, p.Dims(), dims, p.Name())
		tensor.Copy(p.Value, tensor.FromSlice(values, dims...))
	}
}

type array struct {
	Dims []int
	V    []float64
}

// readTensors returns the tensors of a file of float64.
func readTensors(t *testing.T, file string) map[string]array {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	h, err := safetensors.Read(file, bytes.NewReader(data), int64(len(data)))
	require.NoError(t, err)
	all := map[string]array{}
	for _, e := range h.Tensors {
		require.Equal(t, safetensors.F64, e.DType)
		x := array{Dims: e.Shape}
		for at := h.Size + e.Start; at < h.Size+e.End; at += 8 {
			x.V = append(x.V, math.Float64frombits(binary.LittleEndian.Uint64(data[at:])))
		}
		all[e.Name] = x
	}
	return all
}

// transpose returns a matrix of n columns as its transpose.
func transpose(x []float64, n int) (y []float64) {
	for j := range n {
		for i := j; i < len(x); i += n {
			y = append(y, x[i])
		}
	}
	return y
}

func llamaName(part string) string {
	if part == "norm" {
		return "model.norm"
	}
	return strings.NewReplacer("blocks", "model.layers", "tok", "model.embed_tokens", "norm1", "input_layernorm", "norm2", "post_attention_layernorm",
		"attn.out", "self_attn.o_proj", "attn", "self_attn", ".q", ".q_proj", ".k", ".k_proj", ".v", ".v_proj", "head", "lm_head").Replace(part)
}

func gpt2Name(part string) string {
	if part == "norm" {
		return "transformer.ln_f"
	}
	return strings.NewReplacer("blocks", "transformer.h", "tok", "transformer.wte", "pos", "transformer.wpe", "norm1", "ln_1", "norm2", "ln_2",
		"attn.out", "attn.c_proj", "attn.q", "attn.c_attn", "attn.k", "attn.c_attn", "attn.v", "attn.c_attn", "up", "c_fc", "down", "c_proj").Replace(part)
}
