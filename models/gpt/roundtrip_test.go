package gpt_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/chat"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/models/decode"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/models/gpt/parallel"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// saveAll makes transformers save a model of each kind as users get them: with a tokenizer, a chat template, and settings of generation.
const saveAll = `
import json, os, sys, torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast
root, files, kinds = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for kind, (file, settings) in kinds.items():
    tok = PreTrainedTokenizerFast(tokenizer_file=os.path.join(files, file, "tokenizer.json"))
    tok.chat_template = ("{% for m in messages %}" + kind + " {{ m.role }}: {{ m.content }}\n{% endfor %}"
                         "{% if add_generation_prompt %}a: {% endif %}")
    torch.manual_seed(7)
    config = AutoConfig.for_model(kind, **{**dict(
        vocab_size=len(tok), hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        intermediate_size=20, initializer_range=0.3, bos_token_id=0, eos_token_id=1, pad_token_id=0), **settings})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config = GenerationConfig(do_sample=True, temperature=0.7, top_k=11, bos_token_id=0, eos_token_id=1, pad_token_id=0)
    model.save_pretrained(os.path.join(root, kind), max_shard_size="20KB")
    tok.save_pretrained(os.path.join(root, kind))
`

// answerAll prints what transformers has of each folder, the logits of a question, and its answer.
const answerAll = `
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[1:]:
    tok, (model, loading) = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    prompt = tok.apply_chat_template([{"role": "user", "content": "which colours bend?"}], add_generation_prompt=True, tokenize=False)
    ids = tok(prompt, add_special_tokens=False, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=16, do_sample=False)
    with torch.inference_mode():
        logits = model(**ids).logits.flatten().tolist()
    print(json.dumps({"kind": type(model).__name__, "template": tok.chat_template, "prompt": prompt, "logits": logits,
                      "generation": model.generation_config.to_dict(), "config": model.config.to_dict(),
                      "wrong": sorted(map(str, sum(map(list, loading.values()), []))), "ids": out[0, ids["input_ids"].shape[1]:].tolist()}))
`

// answer is a line of answerAll.
type answer struct {
	Kind, Template, Prompt string
	Generation, Config     map[string]any
	Wrong                  []string // tensors that are missing, or nothing of the model
	Logits                 []float64
	IDs                    []int
}

// roundTrips are the kinds, with a tokenizer of testdata and settings.
var roundTrips = map[string][2]any{
	"gpt2": {"gpt2", map[string]any{}}, "llama": {"llama3", map[string]any{}}, "mistral": {"llama2", map[string]any{"sliding_window": 6}},
	"qwen2": {"qwen2", map[string]any{"tie_word_embeddings": true}}, "qwen3": {"qwen2", map[string]any{"head_dim": 8}},
	"phi3": {"phi3", map[string]any{"sliding_window": 9}}, "smollm3": {"smollm", map[string]any{"no_rope_layer_interval": 2}},
	"gemma2":      {"gemma", map[string]any{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6}},
	"gemma3_text": {"gemma", map[string]any{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6, "sliding_window_pattern": 2}},
	"mixtral":     {"llama2", map[string]any{"num_local_experts": 4, "num_experts_per_tok": 2}},
	"qwen3_moe":   {"qwen2", map[string]any{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "head_dim": 8}},
}

// attached returns the model of a folder with this rank's part of its values.
func attached(ctx context.Context, r *dist.Rank, dir string, l parallel.Layout) (*gpt.Model, *parallel.Attached) {
	m := disttest.Must(gpt.Open(dir))
	c := parallel.Config{DDP: ddp.Config{DType: tensor.Float32}}
	if l.FSDP > 1 {
		c.FSDP = &fsdp.Config{DType: tensor.Float32}
	}
	a := disttest.Must(parallel.Attach(disttest.Must(r.Mesh(l.Mesh(m.Config.KVHeads))), m, c))
	disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: a.Params}, m.LoadConfig()))
	return m, a
}

// trainedOn loads a folder on a layout of two ranks, trains it for 20 steps, saves it, and loads that with the same values.
func trainedOn(t *testing.T, dir string, l parallel.Layout) (path string) {
	to := t.TempDir()
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	ids := tok.Encode("which colours bend? the colours of light are very small bodies, and all the rays bend. which colours are no colours?")
	text, err := data.NewText(ids, 8, 1)
	require.NoError(t, err)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m, a := attached(ctx, r, dir, l)
		opt := optim.NewAdamW(a.Params, optim.AdamWConfig{LR: 1e-2, Norm: r.World})
		tape, batches := tensor.NewTape(r.Device), data.NewLoader(text, data.Config{Batch: 5, Shuffle: true, Sharder: a.Data})
		var losses []float64
		for epoch := 0; len(losses) < 20; epoch++ {
			for _, b := range batches.Epoch(ctx, epoch) {
				loss := a.FeatureLoss(m.Features(tape.Input(b.X)), b.Y)
				sum := []float64{a.Once(loss).Item()}
				disttest.OK(r.World.SumFloats(sum))
				losses = append(losses, sum[0])
				tape.Backward(loss)
				disttest.OK(opt.Step())
				tape.Reset()
				if len(losses) == 20 {
					break
				}
			}
			disttest.OK(batches.Err())
		}
		require.Less(t, losses[19], losses[0])
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Step: 20, Params: a.Params, Optimizer: opt, Files: filesOf(t, m)}))
		disttest.OK(saver.Close())
		_, again := attached(ctx, r, disttest.Must(ckpt.Latest(to)), l)
		for i, p := range a.Params {
			require.Equal(t, tensor.Floats(p.Local), tensor.Floats(again.Params[i].Local), p.Name())
		}
		return nil
	}))
	path, err = ckpt.Latest(to)
	require.NoError(t, err)
	return path
}

// answers returns what a folder answers here to a prompt.
func answers(t *testing.T, dir, prompt string) (ids []int) {
	m, _, dev := opened(t, dir, tensor.Float32)
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	for id := range m.Generate(dev, tok.Encode(prompt), decode.Sampling{Tokens: 16}) {
		if ids = append(ids, id); id == 1 { // the end
			break
		}
	}
	return ids
}

// asked returns the logits of a prompt.
func asked(t *testing.T, dir, prompt string) []float64 {
	m, _, dev := opened(t, dir, tensor.Float32)
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	var ids []int64
	for _, id := range tok.Encode(prompt) {
		ids = append(ids, int64(id))
	}
	tape := tensor.NewTape(dev, tensor.NoGrad())
	return tensor.Floats(m.Forward(tape.Input(tensor.FromSlice(ids, 1, len(ids)))))
}

// requireKept fails unless a folder has what another one has beside the weights and config.json, byte by byte.
func requireKept(t *testing.T, from, to, what string) {
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	kept := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "model") || e.Name() == "config.json" {
			continue
		}
		want, err := os.ReadFile(filepath.Join(from, e.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(to, e.Name()))
		require.NoError(t, err, what)
		require.Equal(t, string(want), string(got), "%s: %s", what, e.Name())
		kept++
	}
	require.GreaterOrEqual(t, kept, 4, "the tokenizer and its settings, the chat template, the settings of generation")
}

// TestPythonRoundTrips: a folder of transformers, trained here on ranks that divide layers, parameters or experts, is again one of
// transformers, with all tensors and the same other files and settings, and with the logits and the answer that the model gives here.
func TestPythonRoundTrips(t *testing.T) {
	python := pythonWith(t, "transformers")
	root := t.TempDir()
	arg, err := json.Marshal(roundTrips)
	require.NoError(t, err)
	testdata := filepath.Join("..", "..", "data", "tokenizer", "testdata")
	out, err := exec.Command(python, "-I", "-c", saveAll, root, testdata, string(arg)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var kinds, paths []string
	for kind := range roundTrips {
		layouts := []parallel.Layout{{TP: 2}, {FSDP: 2}}
		if kind == "mixtral" || kind == "qwen3_moe" {
			layouts = append(layouts, parallel.Layout{EP: 2})
		}
		dir := filepath.Join(root, kind)
		shards, err := filepath.Glob(filepath.Join(dir, "model-*.safetensors"))
		require.NoError(t, err)
		require.Greater(t, len(shards), 1)
		kinds, paths = append(kinds, kind), append(paths, dir)
		for _, l := range layouts {
			kinds, paths = append(kinds, fmt.Sprintf("%s %+v", kind, l)), append(paths, trainedOn(t, dir, l))
			requireKept(t, dir, paths[len(paths)-1], kinds[len(kinds)-1])
		}
	}
	c := exec.Command(python, append([]string{"-I", "-c", answerAll}, paths...)...)
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := json.NewDecoder(pipe)
	var before answer
	for i, path := range paths {
		var got answer
		require.NoError(t, lines.Decode(&got), kinds[i])
		template, err := chat.Open(path)
		require.NoError(t, err)
		prompt, err := template.Prompt(chat.Message{Role: "user", Content: "which colours bend?"})
		require.NoError(t, err)
		require.Equal(t, got.Prompt, prompt, kinds[i])
		require.Empty(t, got.Wrong, kinds[i])
		require.InDeltaSlice(t, asked(t, path, prompt), got.Logits, 1e-5, kinds[i])
		require.NotEmpty(t, got.IDs)
		require.Equal(t, answers(t, path, prompt), got.IDs, kinds[i])
		got.Logits = nil
		delete(got.Config, "_name_or_path")
		if filepath.Dir(path) == root {
			before = got
			require.Equal(t, 0.7, got.Generation["temperature"])
			continue
		}
		require.NotEqual(t, before.IDs, got.IDs, "%s: training changed nothing", kinds[i])
		got.IDs = before.IDs
		assert.Equal(t, before, got, kinds[i])
	}
	require.NoError(t, c.Wait())
}
