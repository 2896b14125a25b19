package gpt_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/peft"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// The layers with adapters. GPT-2 and Phi-3 have several in one matrix of the files.
var adapted = map[string][]string{
	"gpt2":    {"blocks.*"},
	"llama":   {"blocks.*", "head"},
	"phi3":    {"blocks.*.attn.*", "blocks.*.mlp.*"},
	"mixtral": {"blocks.*.attn.*"},

	"mixtral, router": {"blocks.*.attn.*", "blocks.*.mlp.gate"},
	"qwen3_moe":       {"blocks.*.gate"},
}

// The modules that are trained beside adapters.
var alsoSaved = map[string][]string{
	"gpt2":    {"wpe", "ln_f", "h.1.attn.c_attn", "h.0.mlp"},
	"llama":   {"embed_tokens", "norm", "layers.1.mlp"},
	"mixtral": {"gate"},

	"mixtral, router": {"norm"},
}

// names are their names in PEFT.
var names = map[string]string{
	"gpt2": `^base_model\.model\.transformer\.h\.\d\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.lora_[AB]\.weight$` +
		`|^base_model\.model\.transformer\.(wpe\.weight|(ln_f|h\.1\.attn\.c_attn|h\.0\.mlp\.c_(fc|proj))\.(weight|bias))$`,
	"mixtral": `^base_model\.model\.model\.layers\.\d\.(self_attn\.[qkvo]_proj\.lora_[AB]\.weight|mlp\.gate\.weight)$`,
	"mixtral, router": `^base_model\.model\.model\.layers\.\d\.(self_attn\.[qkvo]_proj|mlp\.gate)\.lora_[AB]\.weight$` +
		`|^base_model\.model\.model\.(layers\.\d\.(input|post_attention)_layer)?norm\.weight$`,
	"qwen3_moe": `^base_model\.model\.model\.layers\.\d\.mlp\.gate\.lora_[AB]\.weight$`,
	"phi3":      `^base_model\.model\.model\.layers\.\d\.(self_attn\.(qkv|o)_proj|mlp\.(gate_up|down)_proj)\.lora_[AB]\.weight$`,
	"llama": `^base_model\.model\.(model\.layers\.\d\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)|lm_head)\.lora_[AB]\.weight$` +
		`|^base_model\.model\.model\.(embed_tokens|norm|layers\.(\d\.(input|post_attention)_layernorm|1\.mlp\.(gate|up|down)_proj))\.weight$`,
}

// withAdapters opens a base on one rank, and the adapters in a PEFT folder.
func withAdapters(t *testing.T, base, dir string) (*gpt.Model, tensor.Device) {
	m, err := gpt.Open(base)
	require.NoError(t, err)
	adapters, err := peft.Apply(m, dir)
	require.NoError(t, err)
	params, dev := filled(t, m, tensor.Float64)
	loaded(t, base, params.Base(), m.LoadConfig())
	loaded(t, filepath.Join(dir, peft.File), adapters, peft.LoadConfig(m))
	return m, dev
}

// exported trains adapters on two ranks with ZeRO 3, and makes a PEFT folder from the checkpoint, which has only adapters.
func exported(t *testing.T, name string) (base, dir string) {
	folder, _, _ := strings.Cut(name, ",")
	base = filepath.Join("testdata", folder)
	cfg := nn.LoRAConfig{Rank: 3, Alpha: 5, RSLoRA: name == "llama", Targets: adapted[name], Save: alsoSaved[name]}
	path := tuned(t, base, cfg)
	m, err := gpt.Open(base)
	require.NoError(t, err)
	nn.LoRA(m, cfg)
	dir = filepath.Join(t.TempDir(), "adapters")
	require.NoError(t, peft.Export(m, path, dir))
	return base, dir
}

// Adapters trained on two ranks have their own checkpoint. It can be opened on the same base, and the merged model is one without adapters.
func TestAdaptersOpen(t *testing.T) {
	for name := range adapted {
		if (name == "mixtral" || name == "qwen3_moe") && !reliability.Long(t) {
			continue
		}
		base, path := exported(t, name)
		_, list, err := inspect.List(filepath.Join(path, peft.File))
		require.NoError(t, err)
		for _, x := range list {
			require.Regexp(t, names[name], x.Name)
		}
		config, err := os.ReadFile(filepath.Join(path, "adapter_config.json"))
		require.NoError(t, err)
		require.Contains(t, string(config), `"base_model_name_or_path": "`+base+`"`)
		plain, _, dev := opened(t, base, tensor.Float64)
		without := logitsOf(plain, dev)
		m, dev := withAdapters(t, base, path)
		want := logitsOf(m, dev)
		require.Greater(t, math.Abs(without[0]-want[0]), 1e-6)
		nn.Merge(m)
		require.InDeltaSlice(t, want, logitsOf(m, dev), 1e-12)
		whole := merged(t, m)
		plain, _, dev = opened(t, whole, tensor.Float64)
		require.InDeltaSlice(t, want, logitsOf(plain, dev), 1e-12)
	}
}

func TestLongAdaptersOpen(t *testing.T) { reliability.AsLong(t, TestAdaptersOpen) }

// Adapters without a name in PEFT are an error.
func TestAdaptersWithoutNames(t *testing.T) {
	for target, want := range map[string]string{
		"head": "peft: the weight of head is also that of wte, and PEFT would save it with the adapter",
		"":     "peft: the model has no adapters",
	} {
		m, err := gpt.Open(filepath.Join("testdata", "gpt2"))
		require.NoError(t, err)
		if target != "" {
			nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 5, Targets: []string{target}})
		}
		require.EqualError(t, peft.Export(m, "none", t.TempDir()), want)
	}
}

// Modules to save are whole, and their names are those of PEFT. A tied table is also the head.
func TestSavedModules(t *testing.T) {
	cfg := nn.LoRAConfig{Rank: 3, Alpha: 5, Targets: []string{"blocks.*"}}
	for end, want := range map[string]string{
		"lm_head": "the module lm_head cannot be saved: its weight is tied, as that of tok.weight and of head.weight, which would change both",
		"wte":     "the module wte cannot be saved: its weight is tied",
	} {
		m, err := gpt.Open(filepath.Join("testdata", "gpt2"))
		require.NoError(t, err)
		cfg.Save = []string{end}
		require.ErrorContains(t, tensor.Try(func() { nn.LoRA(m, cfg) }), want)
	}
	m, err := gpt.Open(filepath.Join("testdata", "mixtral"))
	require.NoError(t, err)
	cfg.Targets, cfg.Save = []string{"blocks.*.attn.*"}, []string{"experts.0.w1"}
	require.ErrorContains(t, tensor.Try(func() { nn.LoRA(m, cfg) }), "is several modules in files")
	m, err = gpt.Open(filepath.Join("testdata", "gpt2"))
	require.NoError(t, err)
	cfg.Targets, cfg.Save = []string{"blocks.*"}, nil
	nn.LoRA(m, cfg)
	m.Norm.(*nn.LayerNorm).B.Unfreeze()
	require.ErrorContains(t, peft.Export(m, "none", t.TempDir()), "peft: PEFT saves modules as a whole, and not all of ln_f is trained")
}

// A part of a matrix of the files has no adapter of its own.
func TestAdaptersOfParts(t *testing.T) {
	for name, want := range map[string]string{"gpt2": "blocks.0.attn.q is a part of h.0.attn.c_attn.weight, one matrix in files",
		"phi3": "blocks.0.attn.q is a part of model.layers.0.self_attn.qkv_proj.weight, one matrix in files"} {
		m, err := gpt.Open(filepath.Join("testdata", name))
		require.NoError(t, err)
		for _, part := range []string{"blocks.0.attn.q", "blocks.0.attn.[qv]"} {
			require.ErrorContains(t, tensor.Try(func() { nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 5, Targets: []string{part}}) }), want)
		}
		for _, p := range nn.ParamsOf(m) {
			require.False(t, p.Frozen())
		}
	}
}

// A router is a target of its name alone, and no Linear for Muon and 8-bit floats.
func TestRouterIsATargetByName(t *testing.T) {
	for target, want := range map[string]bool{"blocks.*": false, "*": false, "blocks.*.mlp.gate": true, "*gate": true} {
		m, err := gpt.Open(filepath.Join("testdata", "mixtral"))
		require.NoError(t, err)
		router := m.Blocks[0].MLP.(*moe.Layer).Router
		for _, x := range nn.Matrices(m, m.Head.W) {
			require.NotSame(t, router.W, x.W)
		}
		require.ErrorContains(t, tensor.Try(func() { nn.Float8(m, ops.PerRow, "blocks.*.mlp.gate") }), "matches no Linear of the model")
		nn.LoRA(m, nn.LoRAConfig{Rank: 3, Alpha: 5, Targets: []string{target, "head"}})
		require.Equal(t, want, router.Adapter != nil, target)
	}
}

// A checkpoint that has more than adapters is not exported.
func TestExportOfAModel(t *testing.T) {
	base, dir := exported(t, "llama")
	m, _ := withAdapters(t, base, dir)
	to := filepath.Join(t.TempDir(), "to")
	require.ErrorContains(t, peft.Export(m, merged(t, m), to), "peft: model.safetensors has ")
	require.ErrorContains(t, peft.Export(m, base, to), "which is not of the model's adapters")
	require.ErrorIs(t, peft.Export(m, dir, to), os.ErrNotExist)
	require.NoDirExists(t, to)
}

// merged saves a model on one rank.
func merged(t *testing.T, m *gpt.Model) (path string) {
	to := t.TempDir()
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Step: 1, Params: nn.ParamsOf(m), Files: filesOf(t, m)}))
		return saver.Close()
	}))
	path, err := ckpt.Latest(to)
	require.NoError(t, err)
	return path
}

// pythonAdapters makes PEFT read adapters on a base, and print the logits.
const pythonAdapters = `
import json, sys, torch
from transformers import AutoModelForCausalLM
from peft import PeftModel
base = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float64, experts_implementation="eager")
model = PeftModel.from_pretrained(base, sys.argv[2]).eval()
ids = torch.tensor([((i * i + 3 * i) // 2) % 13 for i in range(27)]).reshape(3, 9)
with torch.inference_mode():
    print(json.dumps(model(ids).logits.flatten().tolist()))
model.save_pretrained(sys.argv[3], save_embedding_layers=False)
`

// pythonTargets makes adapters of PEFT's own for each [base, settings, folder], and prints their logits.
const pythonTargets = `
import json, sys, torch
from transformers import AutoModelForCausalLM
from peft import LoraConfig, get_peft_model
ids = torch.tensor([((i * i + 3 * i) // 2) % 13 for i in range(27)]).reshape(3, 9)
result = []
for base, settings, to in json.loads(sys.argv[1]):
    base = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64, experts_implementation="eager")
    torch.manual_seed(1)
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=6, use_rslora=True, init_lora_weights=False, **settings)).eval()
    for name, p in model.named_parameters():
        if "modules_to_save" in name:
            p.data += 0.3 * torch.randn_like(p)
    with torch.inference_mode():
        result.append(model(ids).logits.flatten().tolist())
    model.save_pretrained(to, save_embedding_layers=False)
print(json.dumps(result))
`

// TestPythonTargets: patterns, rank-stabilized adapters, and modules_to_save, which PEFT made, give its logits.
func TestPythonTargets(t *testing.T) {
	python := pythonWith(t, "transformers, peft")
	var all [][3]any
	for _, c := range [][2]string{{"llama", "all-linear"}, {"llama", `.*\.(q|v)_proj`}, {"llama", `model\.layers\.0\.mlp\.(up|down)_proj`},
		{"gpt2", `transformer\.h\.\d+\.mlp\.c_(fc|proj)`}, {"gpt2", "all-linear"}, {"gpt2", `.*\.c_attn`}, {"phi3", "all-linear"},
		{"phi3", `.*\.(qkv|gate_up)_proj`}, {"mixtral", `.*\.(mlp\.gate|q_proj)`}, {"qwen3_moe", `.*\.gate`}} {
		all = append(all, [3]any{filepath.Join("testdata", c[0]), map[string]string{"target_modules": c[1]}, t.TempDir()})
	}
	for _, c := range []struct {
		base    string
		targets any
		save    []string
	}{
		{"llama", []string{"q_proj", "o_proj"}, []string{"embed_tokens", "lm_head", "model.norm", "o_proj"}},
		{"llama", "all-linear", []string{"tokens", "layernorm", "layers.0.mlp"}},
		{"gpt2", []string{"c_attn", "c_fc"}, []string{"transformer.wpe", "ln_f", "c_proj"}},
		{"phi3", []string{"o_proj", "qkv_proj"}, []string{"qkv_proj", "lm_head"}},
		{"mixtral", []string{"o_proj", "q_proj"}, []string{"mlp.gate", "lm_head"}},
		{"mixtral", []string{"o_proj"}, []string{"gate"}},
		{"qwen3_moe", []string{"v_proj"}, []string{"mlp.gate"}},
		{"mixtral", []string{"k_proj", "mlp.gate"}, []string{"lm_head"}},
		{"qwen3_moe", []string{"model.layers.0.mlp.gate", "o_proj"}, nil},
	} {
		settings := map[string]any{"target_modules": c.targets, "modules_to_save": c.save}
		all = append(all, [3]any{filepath.Join("testdata", c.base), settings, t.TempDir()})
	}
	arg, err := json.Marshal(all)
	require.NoError(t, err)
	c := exec.Command(python, "-I", "-c", pythonTargets, string(arg))
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	var want [][]float64
	require.NoError(t, json.Unmarshal(out, &want))
	for i, x := range all {
		m, dev := withAdapters(t, x[0].(string), x[2].(string))
		require.InDeltaSlice(t, want[i], logitsOf(m, dev), 1e-5, x[1])
	}
}

// TestPythonPEFT: PEFT opens adapters that were trained here, with the same logits, and its own files can be opened here.
func TestPythonPEFT(t *testing.T) {
	python := pythonWith(t, "transformers, peft")
	for name := range adapted {
		base, path := exported(t, name)
		theirs := t.TempDir()
		c := exec.Command(python, "-I", "-c", pythonAdapters, base, path, theirs)
		c.Stderr = os.Stderr
		out, err := c.Output()
		require.NoError(t, err)
		var got []float64
		require.NoError(t, json.Unmarshal(out, &got))
		m, dev := withAdapters(t, base, path)
		want := logitsOf(m, dev)
		require.InDeltaSlice(t, want, got, 1e-5, name)
		m, dev = withAdapters(t, base, theirs)
		require.Equal(t, want, logitsOf(m, dev), name)
	}
}

// A checkpoint of several files, with an index, is exported as one of one file.
func TestExportOfSeveralFiles(t *testing.T) {
	base, cfg := filepath.Join("testdata", "llama"), nn.LoRAConfig{Rank: 3, Alpha: 5, Targets: adapted["llama"]}
	path, m := tuned(t, base, cfg), disttest.Must(gpt.Open(base))
	nn.LoRA(m, cfg)
	one := t.TempDir()
	require.NoError(t, peft.Export(m, path, one))
	text, err := os.ReadFile(filepath.Join(path, "model.safetensors"))
	require.NoError(t, err)
	h, err := safetensors.Read("", bytes.NewReader(text), int64(len(text)))
	require.NoError(t, err)
	from, files := t.TempDir(), map[string]string{}
	for k, part := range [][]safetensors.Tensor{h.Tensors[5:], h.Tensors[:5]} {
		name := fmt.Sprintf("model-0000%d-of-00002.safetensors", k+1)
		some, err := safetensors.New(part, nil)
		require.NoError(t, err)
		file := some.Encode()
		for _, x := range some.Tensors {
			files[x.Name] = name
			i := slices.IndexFunc(h.Tensors, func(y safetensors.Tensor) bool { return y.Name == x.Name })
			file = append(file, text[h.Size:][h.Tensors[i].Start:h.Tensors[i].End]...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(from, name), file, 0o666))
	}
	index := func() {
		list, err := json.Marshal(map[string]any{"weight_map": files})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(from, "model.safetensors.index.json"), list, 0o666))
	}
	index()
	several := t.TempDir()
	require.NoError(t, peft.Export(m, from, several))
	for _, name := range []string{peft.File, "adapter_config.json"} {
		want, err := os.ReadFile(filepath.Join(one, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(several, name))
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	for _, x := range h.Tensors[:5] {
		files[x.Name] = "model-00001-of-00002.safetensors"
	}
	index()
	require.ErrorContains(t, peft.Export(m, from, several), "model-00001-of-00002.safetensors lacks base_model.model.")
	clear(files)
	index()
	require.ErrorContains(t, peft.Export(m, from, several), "peft: model.safetensors.index.json lacks base_model.model.")
	files["x"] = "../model.safetensors"
	index()
	require.ErrorContains(t, peft.Export(m, from, several), `index.json: the file "../model.safetensors" is not in the folder`)
}
