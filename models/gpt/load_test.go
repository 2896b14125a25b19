package gpt_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// opened returns a model from Hugging Face's files on one rank.
func opened(t *testing.T, dir string, d tensor.DType) (*gpt.Model, nn.Params, tensor.Device) {
	m, err := gpt.Open(dir)
	require.NoError(t, err)
	params, dev := filled(t, m, d)
	loaded(t, dir, params, m.LoadConfig())
	return m, params, dev
}

func filled(t *testing.T, m *gpt.Model, d tensor.DType) (nn.Params, tensor.Device) {
	dev := cpu.New(1)
	t.Cleanup(func() { dev.Close() })
	return nn.Init(m, dev, d, 1), dev
}

func loaded(t *testing.T, path string, params nn.Params, c ckpt.LoadConfig) {
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		_, err := ckpt.Load(ctx, r.World, path, &ckpt.State{Params: params}, c)
		return err
	}))
}

func logitsOf(m *gpt.Model, dev tensor.Device) []float64 {
	tape := tensor.NewTape(dev, tensor.NoGrad())
	defer tape.Close()
	return tensor.Floats(m.Forward(tape.Input(torchIDs(0))))
}

// GPT-2 in the form of its first files in Hugging Face's cache: links, bfloat16, masks, no prefix.
func TestOpenOldFiles(t *testing.T) {
	m, _, dev := opened(t, filepath.Join("testdata", "gpt2"), tensor.Float32)
	want := logitsOf(m, dev)
	root := t.TempDir()
	dir := filepath.Join(root, "snapshots", "main")
	require.NoError(t, os.MkdirAll(dir, 0o777))
	require.NoError(t, os.Mkdir(filepath.Join(root, "blobs"), 0o777))
	for name, hash := range map[string]string{"config.json": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
		"model.safetensors": "248dfc3911869ec493c76e65bf2fcf7f615828b0254c12b473182f0f81d3a707"} {
		text, err := os.ReadFile(filepath.Join("testdata", "old", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, "blobs", hash), text, 0o666))
		require.NoError(t, os.Symlink("../../blobs/"+hash, filepath.Join(dir, name)))
	}
	m, _, dev = opened(t, dir, tensor.Float32)
	require.InDeltaSlice(t, want, logitsOf(m, dev), 0.1, "bfloat16 has eight bits")
}

func filesOf(t *testing.T, m *gpt.Model) map[string][]byte {
	files, err := m.Files()
	require.NoError(t, err)
	return files
}

// tuned opens a model on two ranks with ZeRO 3, trains it, or adapters, for a few steps, and saves it with its config.
func tuned(t *testing.T, dir string, adapters ...nn.LoRAConfig) (path string) {
	to := t.TempDir()
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.Open(dir))
		saved := nn.ParamsOf(m)
		for _, cfg := range adapters {
			saved = nn.LoRA(m, cfg)
		}
		s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float64})
		s.Keep(m.Tok, m.Head, m.Norm, m.Pos)
		for _, b := range m.Blocks {
			if l, ok := b.MLP.(*moe.Layer); ok { // for its balance loss
				disttest.OK(moe.Parallelize(moe.Ranks{Tokens: r.World}, l))
			}
			s.Unit(b)
		}
		params := disttest.Must(s.Attach(m))
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Norm: s})
		disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params.Base()}, m.LoadConfig()))
		text := disttest.Must(data.NewText(someTokens, 6, 1))
		tape, loader := tensor.NewTape(r.Device), data.NewLoader(text, data.Config{Batch: 3, Sharder: r.World, Device: r.Device})
		for _, b := range loader.Epoch(ctx, 0) {
			tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y))
			disttest.OK(opt.Step())
			tape.Reset()
		}
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Step: 3, Params: saved, Optimizer: opt, Tape: tape, Files: filesOf(t, m)}))
		return saver.Close()
	}))
	path, err := ckpt.Latest(to)
	require.NoError(t, err)
	v, err := inspect.Verify(t.Context(), path, inspect.VerifyConfig{Layout: "fsdp=3"})
	require.NoError(t, err)
	require.True(t, v.OK, v.Errors)
	return path
}

var someTokens = []int{1, 4, 9, 3, 12, 10, 10, 12, 3, 9, 4, 1, 0, 1, 4, 9, 3}

// finetuned trains all of a model on a text, with parameters of a type, on two ranks, for some steps, and saves it.
func finetuned(t *testing.T, dir string, d tensor.DType, text []int, steps int) (path string) {
	to := t.TempDir()
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.Open(dir))
		params := disttest.Must(ddp.Attach(r.World, m, ddp.Config{DType: d}))
		disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig()))
		opt, tape := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2}), tensor.NewTape(r.Device)
		set := disttest.Must(data.NewText(text, 6, 1))
		batches := data.NewLoader(set, data.Config{Batch: set.Len(), Sharder: r.World, Device: r.Device})
		for epoch := range steps {
			for _, b := range batches.Epoch(ctx, epoch) {
				tape.Backward(nn.CrossEntropy(m.Forward(tape.Input(b.X)), b.Y))
				disttest.OK(opt.Step())
				tape.Reset()
			}
		}
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Step: steps, Params: params, Files: filesOf(t, m)}))
		return saver.Close()
	}))
	path, err := ckpt.Latest(to)
	require.NoError(t, err)
	return path
}

// dtypes returns the type of a folder's tensors, and those that its config.json says.
func dtypes(t *testing.T, dir string) (tensors, dtype, old string) {
	names, err := filepath.Glob(filepath.Join(dir, "model*.safetensors"))
	require.NoError(t, err)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		h, err := safetensors.Read("", bytes.NewReader(text), int64(len(text)))
		require.NoError(t, err)
		for _, x := range h.Tensors {
			if tensors == "" {
				tensors = string(x.DType)
			}
			require.Equal(t, tensors, string(x.DType), x.Name)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	var c struct {
		DType string `json:"dtype"`
		Old   string `json:"torch_dtype"`
	}
	require.NoError(t, json.Unmarshal(text, &c))
	return tensors, c.DType, c.Old
}

// config.json says the type that the tensors have, whatever that of the folder was, as after save_pretrained.
func TestDTypeOfFiles(t *testing.T) {
	whole := filepath.Join("testdata", "llama")
	half := finetuned(t, whole, tensor.BFloat16, someTokens, 0)
	text, err := os.ReadFile(filepath.Join(half, "config.json"))
	require.NoError(t, err)
	of4 := t.TempDir() // as transformers 4 writes it
	require.NoError(t, os.CopyFS(of4, os.DirFS(half)))
	require.NoError(t, os.Remove(filepath.Join(of4, "ringo.json")))
	text = bytes.Replace(text, []byte(`"dtype"`), []byte(`"torch_dtype"`), 1)
	require.NoError(t, os.WriteFile(filepath.Join(of4, "config.json"), text, 0o666))
	_, err = gpt.Open(filepath.Dir(half))
	require.ErrorContains(t, err, "config.json: no such file or directory; it has checkpoints: name one, such as "+half)
	_, err = gpt.Open(t.TempDir())
	require.ErrorContains(t, err, "; it is beside the weights where they come from, and save_pretrained of transformers writes it")
	for _, c := range []struct {
		dir            string
		in             tensor.DType
		tensors, dtype string
	}{
		{whole, tensor.Float64, "F64", "float64"},
		{whole, tensor.Float32, "F32", "float32"},
		{half, tensor.BFloat16, "BF16", "bfloat16"},
		{half, tensor.Float32, "F32", "float32"},
		{of4, tensor.BFloat16, "BF16", "bfloat16"},
		{of4, tensor.Float32, "F32", "float32"},
	} {
		tensors, dtype, old := dtypes(t, finetuned(t, c.dir, c.in, someTokens, 2))
		assert.Equal(t, [2]string{c.tensors, c.dtype}, [2]string{tensors, dtype})
		assert.Equal(t, map[bool]string{true: dtype}[c.dir == of4], old)
	}
}

// Parameters that are added to a model keep their own names.
func TestAddedParameters(t *testing.T) {
	m, err := gpt.New(small["gpt2"])
	require.NoError(t, err)
	m.Tok.W.SetStored(nil)
	params := nn.ParamsOf(&struct {
		*gpt.Model
		Value *nn.Linear
		Scale *tensor.Param
	}{m, nn.NewLinear(12, 1), tensor.NewParam(tensor.Constant(1))})
	require.Nil(t, params.ByName("value.weight").Stored())
	require.Nil(t, params.ByName("scale").Stored())
	require.Equal(t, "wte.weight", params.ByName("tok.weight").Stored()[0].Name)
}

// A model trained on two ranks can be opened on one, and as three copies, with the same logits, which differ from those before training.
func TestTunedOpens(t *testing.T) {
	for _, name := range transformed {
		if !reliability.Long(t) && !slices.Contains([]string{"gpt2", "phi3", "mixtral", "gemma3"}, name) {
			continue
		}
		dir := filepath.Join("testdata", name)
		path := tuned(t, dir)
		m, _, dev := opened(t, path, tensor.Float64)
		want := logitsOf(m, dev)
		m, _, dev = opened(t, dir, tensor.Float64)
		require.NotEqual(t, want, logitsOf(m, dev))
		require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 3, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
			m := disttest.Must(gpt.Open(path))
			params := disttest.Must(ddp.Attach(r.World, m, ddp.Config{DType: tensor.Float64}))
			st := &ckpt.State{Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2}), Tape: tensor.NewTape(r.Device)}
			disttest.Must(ckpt.Load(ctx, r.World, path, st, ckpt.LoadConfig{Strategy: ckpt.Broadcast}))
			require.Equal(t, want, logitsOf(m, r.Device), name)
			return nil
		}))
	}
}

func TestLongTunedOpens(t *testing.T) { reliability.AsLong(t, TestTunedOpens) }

// python makes transformers read a folder and print the logits.
const python = `
import json, sys, torch
from transformers import AutoModelForCausalLM
for folder in sys.argv[1:]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, experts_implementation="eager").eval()
    ids = torch.tensor([((i * i + 3 * i) // 2) % 13 for i in range(27)]).reshape(3, 9)
    with torch.inference_mode():
        print(json.dumps({"kind": type(model).__name__, "logits": model(ids).logits.flatten().tolist()}))
`

// pythonWith returns a Python with the packages, or skips the test.
func pythonWith(t *testing.T, packages string) (name string) {
	name = cmp.Or(os.Getenv("RINGO_PYTHON"), "python3")
	if out, err := exec.Command(name, "-I", "-c", "import "+packages).CombinedOutput(); err != nil {
		if os.Getenv("RINGO_PYTHON") != "" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("no Python with " + packages)
	}
	return name
}

// TestPythonTransformers: transformers opens a model that was trained and saved here, and one that began here, with the same logits.
func TestPythonTransformers(t *testing.T) {
	name := pythonWith(t, "transformers")
	kinds := map[string]string{"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "scaled": "LlamaForCausalLM",
		"mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM",
		"window": "MistralForCausalLM", "late": "Qwen2ForCausalLM", "mixtral": "MixtralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
		"unnormalized": "Qwen3MoeForCausalLM", "smollm3": "SmolLM3ForCausalLM",
		"yarn": "Qwen2ForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3": "Gemma3ForCausalLM"}
	var paths []string
	for _, model := range transformed {
		paths = append(paths, tuned(t, filepath.Join("testdata", model)), begun(t, files[model]))
	}
	c := exec.Command(name, append([]string{"-I", "-c", python}, paths...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err)
	lines := json.NewDecoder(bytes.NewReader(out))
	for i, path := range paths {
		model := transformed[i/2]
		var got struct {
			Kind   string
			Logits []float64
		}
		require.NoError(t, lines.Decode(&got))
		require.Equal(t, kinds[model], got.Kind)
		m, _, dev := opened(t, path, tensor.Float64)
		require.InDeltaSlice(t, logitsOf(m, dev), got.Logits, 1e-5, "%s; transformers computes norms, angles and softmax in float32", model)
	}
}

// begun saves a model that has no folder yet.
func begun(t *testing.T, c gpt.Config) (path string) {
	to := t.TempDir()
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m := disttest.Must(gpt.New(c))
		params := nn.Init(m, r.Device, tensor.Float64, 1)
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Params: params, Files: filesOf(t, m)}))
		return saver.Close()
	}))
	path, err := ckpt.Latest(to)
	require.NoError(t, err)
	return path
}

// withHead writes a copy of a folder whose file, or a second file with an index, has a head, too.
func withHead(t *testing.T, from string, indexed bool, change func(head *safetensors.Tensor, values []byte)) (dir string) {
	text, err := os.ReadFile(filepath.Join(from, "model.safetensors"))
	require.NoError(t, err)
	h, err := safetensors.Read("", bytes.NewReader(text), int64(len(text)))
	require.NoError(t, err)
	contents, list, files := map[string][]byte{}, h.Tensors, map[string]string{}
	for _, x := range h.Tensors {
		contents[x.Name], files[x.Name] = text[h.Size+x.Start:h.Size+x.End], "model.safetensors"
		if strings.HasSuffix(x.Name, "wte.weight") || strings.HasSuffix(x.Name, "embed_tokens.weight") {
			head := safetensors.Tensor{Name: "lm_head.weight", DType: x.DType, Shape: x.Shape}
			contents[head.Name] = bytes.Clone(contents[x.Name])
			change(&head, contents[head.Name])
			list = append(list, head)
		}
	}
	dir = t.TempDir()
	write := func(file string, list []safetensors.Tensor) {
		h, err := safetensors.New(list, nil)
		require.NoError(t, err)
		b := h.Encode()
		for _, x := range h.Tensors {
			b = append(b, contents[x.Name]...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), b, 0o666))
	}
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	require.NoError(t, os.Remove(filepath.Join(dir, "model.safetensors")))
	if !indexed {
		write("model.safetensors", list)
		return dir
	}
	files["lm_head.weight"] = "head.safetensors"
	index, err := json.Marshal(map[string]any{"weight_map": files})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o666))
	write("model.safetensors", list[:len(list)-1])
	write("head.safetensors", list[len(list)-1:])
	return dir
}

// A head of its own in the files is loaded, although config.json says that the model is tied; a copy of the table is not.
func TestOwnHead(t *testing.T) {
	for _, from := range []string{"gpt2", "scaled"} {
		for what, change := range map[string]func(head *safetensors.Tensor, values []byte){
			"copy":  func(*safetensors.Tensor, []byte) {},
			"own":   func(_ *safetensors.Tensor, values []byte) { copy(values, make([]byte, 8)) },
			"last":  func(_ *safetensors.Tensor, values []byte) { values[len(values)-2] ^= 1 },
			"shape": func(head *safetensors.Tensor, _ []byte) { head.Shape = []int{head.Shape[1], head.Shape[0]} },
		} {
			for _, indexed := range []bool{false, true} {
				dir := withHead(t, filepath.Join("testdata", from), indexed, change)
				m, err := gpt.Open(dir)
				require.NoError(t, err)
				require.Equal(t, what == "copy", m.Config.Tied, "%s: %s, %v", from, what, indexed)
				if what == "shape" { // Load says so
					continue
				}
				m, _, _ = opened(t, dir, tensor.Float32)
				own := slices.Equal(tensor.Floats(m.Head.W.Value), tensor.Floats(m.Tok.W.Value))
				require.Equal(t, what == "copy", own, "%s: %s, %v", from, what, indexed)
			}
		}
	}
}

// A model that was opened and trained has what was in its folder: settings that this package does not use, the tokenizer, the settings of
// generation. The settings of the model are its own.
func TestFilesOfOpenedModels(t *testing.T) {
	for _, kind := range transformed {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", kind))))
		text, err := os.ReadFile(filepath.Join(dir, "config.json"))
		require.NoError(t, err)
		var was, is map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &was))
		for name, value := range map[string]string{"eos_token_id": "[7,8]", "pad_token_id": "null", "torch_dtype": `"bfloat16"`,
			"task": `{"a":1.50}`} {
			was[name] = json.RawMessage(value)
		}
		text, err = json.Marshal(was)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o666))
		want := map[string]string{"generation_config.json": `{"temperature": 0.60}`, "tokenizer_config.json": "{}",
			"special_tokens_map.json": "{ }", "chat_template.jinja": "{{ messages }}", "tokenizer.model": "\x00\xff", "merges.txt": "a b\r\n"}
		for name, text := range want {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("not of the model"), 0o666))
		m, err := gpt.Open(dir)
		require.NoError(t, err)
		files := filesOf(t, m)
		for name, text := range want {
			assert.Equal(t, text, string(files[name]), name)
		}
		assert.NotContains(t, files, "README.md")
		require.NoError(t, json.Unmarshal(files["config.json"], &is))
		for name, value := range was {
			if !strings.HasPrefix(name, "rope_") && !strings.HasSuffix(name, "dtype") && !strings.Contains(name, "eps") { // said in another way
				assert.Equal(t, strings.Join(strings.Fields(string(value)), ""), strings.Join(strings.Fields(string(is[name])), ""), name)
			}
		}
		assert.Equal(t, was["head_dim"], is["head_dim"], "%s: sizes that follow from others stay unsaid", kind)
		assert.NotContains(t, is, "dtype", "there are no values")
		assert.NotContains(t, is, "torch_dtype")
		to := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o666))
		}
		c, err := gpt.ReadConfig(to)
		require.NoError(t, err)
		assert.Equal(t, m.Config, c)
		assert.NotEmpty(t, nn.ParamsOf(m))
	}
	m, err := gpt.New(gpt.Config{Vocab: 5, Positions: 4, Width: 12, Layers: 1, Heads: 4})
	require.NoError(t, err)
	assert.Len(t, filesOf(t, m), 1)
}

// Several chat templates come out as the list in the tokenizer's settings that all versions of transformers read.
func TestChatTemplates(t *testing.T) {
	for name, c := range map[string]struct {
		in       map[string]string
		settings string // tokenizer_config.json; "": none
		template string // chat_template.jinja; "": none
	}{
		"one":  {map[string]string{"chat_template.jinja": "{{ m }}", "tokenizer_config.json": "{ }"}, "{ }", "{{ m }}"},
		"none": {map[string]string{"additional_chat_templates/notes.txt": "no template"}, "", ""},
		"several": {map[string]string{"chat_template.jinja": "{{ m }}",
			"tokenizer_config.json":                    `{"model_max_length":1000000000000000019,"a":"<b>"}`,
			"additional_chat_templates/tool_use.jinja": "{{ \"é\" }}\n", "additional_chat_templates/rag.jinja": ""},
			`{"a":"<b>","chat_template":[{"name":"default","template":"{{ m }}"},{"name":"rag","template":""},` +
				`{"name":"tool_use","template":"{{ \"é\" }}\n"}],"model_max_length":1000000000000000019}`, ""},
		"without a default": {map[string]string{"additional_chat_templates/rag.jinja": "r"},
			`{"chat_template":[{"name":"rag","template":"r"}]}`, ""},
	} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "llama"))))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "additional_chat_templates"), 0o777))
		for file, text := range c.in {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o666))
		}
		m, err := gpt.Open(dir)
		require.NoError(t, err)
		files := filesOf(t, m)
		assert.Equal(t, c.template, string(files["chat_template.jinja"]), name)
		if c.settings == "" {
			assert.NotContains(t, files, "tokenizer_config.json", name)
			continue
		}
		assert.JSONEq(t, c.settings, string(files["tokenizer_config.json"]), name)
		assert.Equal(t, strings.Contains(c.settings, "0019"), bytes.Contains(files["tokenizer_config.json"], []byte("1000000000000000019")), name)
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "llama"))))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "additional_chat_templates", "x.jinja"), 0o777))
	m, err := gpt.Open(dir)
	require.NoError(t, err)
	_, err = m.Files()
	require.ErrorContains(t, err, "x.jinja is not a regular file")
}

// A tokenizer's settings take no more memory than the files justify, beside templates of their own too.
func TestFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "llama"))))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "additional_chat_templates"), 0o777))
	deep := strings.Repeat("[", 9000) + strings.Repeat("1,", 50_000) + "1" + strings.Repeat("]", 9000)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	config = append(bytes.TrimSuffix(bytes.TrimSpace(config), []byte("}")), `,"x":`+deep+"}"...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666))
	m, err := gpt.Open(dir)
	require.NoError(t, err)
	var names strings.Builder
	for i := range 350_000 {
		fmt.Fprintf(&names, `"%x":1,`, i)
	}
	for text, want := range map[string]string{
		`{"a":"` + strings.Repeat("x", 20<<20) + `"}`: "",
		`{"a":` + deep + "}":                          "",
		"{" + names.String() + `"x":1}`:               "it would take more than",
	} {
		for i, template := range []string{"t", strings.Repeat("\x00", 1<<20)} {
			if (len(text) < 1<<20 && i == 1 || want != "" && i == 0) == reliability.Long(t) {
				continue
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(text), 0o666))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "additional_chat_templates", "a.jinja"), []byte(template), 0o666))
			reliability.Bounded(t, len(text)+len(template), func() {
				files, err := m.Files()
				if want != "" {
					require.ErrorContains(t, err, want)
					return
				}
				require.NoError(t, err)
				require.True(t, json.Valid(files["tokenizer_config.json"]))
			})
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "additional_chat_templates", "a.jinja"), make([]byte, 1<<20), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "additional_chat_templates", "b.jinja"), []byte("t"), 0o666))
	_, err = m.Files()
	require.ErrorContains(t, err, "b.jinja: longer than 0 bytes")
}

func TestLongFilesAreBounded(t *testing.T) { reliability.AsLong(t, TestFilesAreBounded) }
