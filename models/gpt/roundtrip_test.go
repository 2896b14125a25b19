package gpt_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
    model.save_pretrained(os.path.join(root, kind))
    tok.save_pretrained(os.path.join(root, kind))
`

// answerAll prints what transformers has of each folder, and its answer to a question.
const answerAll = `
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
for folder in sys.argv[1:]:
    tok, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    prompt = tok.apply_chat_template([{"role": "user", "content": "which colours bend?"}], add_generation_prompt=True, tokenize=False)
    ids = tok(prompt, add_special_tokens=False, return_tensors="pt")
    out = model.generate(**ids, max_new_tokens=16, do_sample=False)
    settings = model.generation_config.to_dict()
    settings.pop("transformers_version", None)
    print(json.dumps({"kind": type(model).__name__, "template": tok.chat_template, "generation": settings, "prompt": prompt,
                      "ids": out[0, ids["input_ids"].shape[1]:].tolist()}))
`

// answer is a line of answerAll.
type answer struct {
	Kind, Template, Prompt string
	Generation             map[string]any
	IDs                    []int
}

// roundTrips are the kinds, with a tokenizer of testdata and settings.
var roundTrips = map[string][2]any{
	"gpt2": {"gpt2", map[string]any{}}, "llama": {"llama3", map[string]any{}}, "mistral": {"llama2", map[string]any{"sliding_window": 6}},
	"qwen2": {"qwen2", map[string]any{"tie_word_embeddings": true}}, "qwen3": {"qwen2", map[string]any{"head_dim": 8}},
	"phi3": {"phi3", map[string]any{"sliding_window": 9}}, "smollm3": {"smollm", map[string]any{}},
	"gemma2":      {"gemma", map[string]any{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6}},
	"gemma3_text": {"gemma", map[string]any{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 6}},
	"mixtral":     {"llama2", map[string]any{"num_local_experts": 4, "num_experts_per_tok": 2}},
	"qwen3_moe":   {"qwen2", map[string]any{"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "head_dim": 8}},
}

// trainedOn loads a folder on a layout of two ranks, trains it for 20 steps, and saves it.
func trainedOn(t *testing.T, dir string, l parallel.Layout) (path string) {
	to := t.TempDir()
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	ids := tok.Encode("which colours bend? the colours of light are very small bodies, and all the rays bend. which colours are no colours?")
	text, err := data.NewText(ids, 8, 1)
	require.NoError(t, err)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.Open(dir))
		c := parallel.Config{DDP: ddp.Config{DType: tensor.Float32}}
		if l.FSDP > 1 {
			c.FSDP = &fsdp.Config{DType: tensor.Float32}
		}
		a := disttest.Must(parallel.Attach(disttest.Must(r.Mesh(l.Mesh(m.Config.KVHeads))), m, c))
		disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: a.Params}, m.LoadConfig()))
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
		return saver.Close()
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

// TestPythonRoundTrips: a folder of transformers, trained here on ranks that divide layers, parameters or experts, is again one of
// transformers, with the settings of generation, the chat template, and the answer that the model gives here.
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
		kinds, paths = append(kinds, kind), append(paths, dir)
		for _, l := range layouts {
			kinds, paths = append(kinds, fmt.Sprintf("%s %+v", kind, l)), append(paths, trainedOn(t, dir, l))
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
		require.NotEmpty(t, got.IDs)
		require.Equal(t, answers(t, path, prompt), got.IDs, kinds[i])
		if filepath.Dir(path) == root {
			before = got
			require.Equal(t, 0.7, got.Generation["temperature"])
			continue
		}
		require.NotEqual(t, before.IDs, got.IDs, "%s: training changed nothing", kinds[i])
		got.IDs = before.IDs
		require.Equal(t, before, got, kinds[i])
	}
	require.NoError(t, c.Wait())
}
