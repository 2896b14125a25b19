package bert_test

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/data/tokenizer"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/autograd"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/bert"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// tuned opens a folder on two ranks with ZeRO 3, trains it for some epochs with an uneven last batch, and saves it.
func tuned(t *testing.T, dir string, epochs int) (path string) {
	to, e := t.TempDir(), expect(t)
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
		m, tok := disttest.Must(bert.Open(dir)), disttest.Must(tokenizer.Open(dir))
		s := fsdp.New(fsdp.Config{Shard: r.World, DType: tensor.Float32})
		s.Keep(m.Embeddings, m.Pooler)
		for _, b := range m.Blocks {
			s.Unit(b)
		}
		params := disttest.Must(s.Attach(m))
		disttest.Must(ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig()))
		opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Norm: s})
		left, right := columns(e.Pairs)
		d := disttest.Must(m.Config.NewTexts(tok, left, right))
		loader, tape := data.NewLoader(d, data.Config{Batch: 4, Sharder: r.World, Device: r.Device}), tensor.NewTape(r.Device)
		gather := &autograd.AllGather{Group: r.World}
		for epoch := range epochs {
			for _, b := range loader.Epoch(ctx, epoch) {
				tape.Backward(nn.InfoNCE(m.Embed(d.Input(tape, b, 0)), m.Embed(d.Input(tape, b, 1)), 20, gather))
				disttest.OK(opt.Step())
				tape.Reset()
			}
		}
		saver := ckpt.NewSaver(r.World, to, ckpt.Config{})
		disttest.OK(saver.Save(ctx, ckpt.State{Step: 1, Params: params, Files: disttest.Must(m.Files())}))
		return saver.Close()
	}))
	path, err := ckpt.Latest(to)
	require.NoError(t, err)
	v, err := inspect.Verify(t.Context(), path, inspect.VerifyConfig{})
	require.NoError(t, err)
	require.True(t, v.OK, v.Errors)
	return path
}

// A saved folder opens with the same config, vectors and tokenizer; with no training in between, it has the same vectors.
func TestSaved(t *testing.T) {
	e := expect(t)
	for name, before := range map[string][]float64{"mean": e.Mean.Before, "cls": e.CLS.Before, "old": e.Old.Before} {
		dir := filepath.Join("testdata", name)
		m, _, dev, tok := opened(t, tuned(t, dir, 0), tensor.Float64)
		require.InDeltaSlice(t, before, vectors(t, m, dev, tok, e.Texts), 1e-5, name)
		was, err := bert.Open(dir)
		require.NoError(t, err)
		began, err := bert.ReadConfig(dir)
		require.NoError(t, err)
		require.Equal(t, was.Config, began, "to train it from the beginning")
		require.Equal(t, was.Config, m.Config)
		require.Equal(t, was.Pooler == nil, m.Pooler == nil)
		require.Equal(t, name == "old", m.Pooler == nil)
	}
}

const python = `
import json, sys
from sentence_transformers import SentenceTransformer
texts, *folders = sys.argv[1:]
for folder in folders:
    m = SentenceTransformer(folder, device="cpu")
    print(json.dumps({"modules": [type(x).__name__ for x in m], "longest": m.max_seq_length, "dtype": str(next(m.parameters()).dtype),
                      "vectors": m.encode(json.loads(texts)).flatten().tolist()}))
`

// TestPythonSentenceTransformers: sentence-transformers opens folders that were trained and saved here, with the same vectors.
func TestPythonSentenceTransformers(t *testing.T) {
	name := pythonWith(t, "sentence_transformers")
	e := expect(t)
	text, err := json.Marshal(e.Texts)
	require.NoError(t, err)
	for dir, before := range map[string][]float64{"mean": e.Mean.Before, "cls": e.CLS.Before, "old": e.Old.Before} {
		path := tuned(t, filepath.Join("testdata", dir), 5)
		c := exec.Command(name, "-I", "-c", python, string(text), path)
		c.Stderr = os.Stderr
		out, err := c.Output()
		require.NoError(t, err)
		var got struct {
			Modules []string
			Longest int
			DType   string
			Vectors []float64
		}
		require.NoError(t, json.Unmarshal(out, &got))
		m, _, dev, tok := opened(t, path, tensor.Float32)
		require.InDeltaSlice(t, vectors(t, m, dev, tok, e.Texts), got.Vectors, 1e-5, dir)
		require.NotEqual(t, before, got.Vectors)
		require.Equal(t, []string{"Transformer", "Pooling", "Normalize"}[:len(got.Modules)], got.Modules)
		require.Equal(t, m.Config.Normalize, len(got.Modules) == 3)
		require.Equal(t, m.Config.Longest, got.Longest)
		require.Equal(t, "torch.float32", got.DType)
	}
}

func pythonWith(t *testing.T, module string) string {
	name := cmp.Or(os.Getenv("RINGO_PYTHON"), "python3")
	if out, err := exec.Command(name, "-I", "-c", "import "+module).CombinedOutput(); err != nil {
		if os.Getenv("RINGO_PYTHON") != "" {
			t.Fatalf("%v: %s", err, out)
		}
		t.Skip("no Python with " + module)
	}
	return name
}

// changed returns a copy of a folder of testdata in which a text of a file is replaced.
func changed(t *testing.T, from, file, old, text string) (dir string) {
	dir = t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", from))))
	was, err := os.ReadFile(filepath.Join(dir, file))
	require.NoError(t, err)
	require.Contains(t, string(was), old)
	require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.Replace(string(was), old, text, 1)), 0o666))
	return dir
}

// What is not computed exactly is an error that names it.
func TestWrongFolders(t *testing.T) {
	for _, c := range []struct{ from, file, old, text, want string }{
		{"mean", "config.json", `"model_type": "bert"`, `"model_type": "roberta"`, `model_type is "roberta", and only "bert" is computed here`},
		{"mean", "config.json", `"model_type": "bert",`, ``, "model_type is not given"},
		{"mean", "config.json", `"hidden_act": "gelu"`, `"hidden_act": "relu"`, `hidden_act is "relu", and only "gelu"`},
		{"mean", "config.json", `"is_decoder": false`, `"is_decoder": true`, "is_decoder is true, and only false"},
		{"mean", "config.json", `"add_cross_attention": false`, `"add_cross_attention": true`, "add_cross_attention is true"},
		{"mean", "config.json", `"is_decoder": false`, `"position_embedding_type": "relative_key"`,
			`position_embedding_type is "relative_key", and only "absolute"`},
		{"mean", "config.json", `"hidden_size": 12,`, ``, "hidden_size is not given"},
		{"mean", "config.json", `"hidden_size": 12`, `"hidden_size": 13`, "13 features do not divide into 3 heads"},
		{"mean", "config.json", `"hidden_size": 12`, `"hidden_size": "x"`, "hidden_size"},
		{"mean", "config.json", `"layer_norm_eps": 1e-12`, `"layer_norm_eps": 0`, "Eps is 0"},
		{"mean", "config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": -1`, "Layers is -1"},
		{"mean", "modules.json", "modules.normalize.Normalize", "modules.dense.Dense", "Dense\": only Transformer, Pooling and Normalize"},
		{"mean", "modules.json", `"1_Pooling"`, `"../1_Pooling"`, `the path of module 1 is "../1_Pooling"`},
		{"mean", "modules.json", `"1_Pooling"`, `"2_Pooling"`, filepath.Join("2_Pooling", "config.json") + " is not there"},
		{"mean", "1_Pooling/config.json", `"mean"`, `["mean", "cls"]`, "only mean and cls are computed here"},
		{"old", "1_Pooling/config.json", `"pooling_mode_max_tokens": false`, `"pooling_mode_max_tokens": true`, `is "max""mean", and only`},
		{"old", "sentence_bert_config.json", `"do_lower_case": false`, `"do_lower_case": true`, "do_lower_case is true"},
		{"old", "sentence_bert_config.json", `16`, `2`, "Longest is 2, and must be 3"},
		{"mean", "config_sentence_transformers.json", `"default_prompt_name": null`, `"default_prompt_name": "query"`,
			`default_prompt_name is "query", and only null`},
	} {
		_, err := bert.Open(changed(t, c.from, c.file, c.old, c.text))
		require.ErrorContains(t, err, c.want, c.text)
		require.ErrorContains(t, err, "bert: ")
	}
	alone := changed(t, "mean", "modules.json", "[", "[")
	text := `[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]`
	require.NoError(t, os.WriteFile(filepath.Join(alone, "modules.json"), []byte(text), 0o666))
	_, err := bert.Open(alone)
	require.ErrorContains(t, err, "there is no Pooling")
	_, err = bert.Open("testdata/none")
	require.ErrorContains(t, err, "config.json")
}

// A tensor that the model does not have, and one that is missing, are errors.
func TestEveryTensorCounts(t *testing.T) {
	for want, config := range map[string][2]string{"encoder.layer.1.": {`"num_hidden_layers": 2`, `"num_hidden_layers": 1`},
		"encoder.layer.2.": {`"num_hidden_layers": 2`, `"num_hidden_layers": 3`}} {
		dir := changed(t, "mean", "config.json", config[0], config[1])
		m, err := bert.Open(dir)
		require.NoError(t, err)
		dev := cpu.New(1)
		params := nn.Init(m, dev, tensor.Float32, 1)
		err = dist.Run(t.Context(), dist.Config{Ranks: 1, Threads: 1}, func(ctx context.Context, r *dist.Rank) error {
			_, err := ckpt.Load(ctx, r.World, dir, &ckpt.State{Params: params}, m.LoadConfig())
			return err
		})
		require.ErrorContains(t, err, want)
		dev.Close()
	}
}

// A config of some hundred bytes does not make a model of billions of parameters: not without the files that have them.
func TestConfigBombs(t *testing.T) {
	for name, text := range map[string]string{
		"vocabulary": `"vocab_size": 67108864, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8`,
		"width":      `"vocab_size": 8, "hidden_size": 65536, "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8`,
		"layers":     `"vocab_size": 8, "hidden_size": 1, "num_hidden_layers": 16384, "intermediate_size": 1, "max_position_embeddings": 8`,
		"hidden":     `"vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 4194304, "max_position_embeddings": 8`,
		"positions":  `"vocab_size": 8, "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 16777216`,
		"types": `"vocab_size": 8, "hidden_size": 1048576, "num_hidden_layers": 1, "intermediate_size": 8, "max_position_embeddings": 8,
			"type_vocab_size": 65536`,
	} {
		dir := t.TempDir()
		text = `{"model_type": "bert", "num_attention_heads": 1, ` + text + `}`
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666))
		reliability.Bounded(t, len(text), func() {
			_, err := bert.Open(dir)
			require.ErrorContains(t, err, "describes: it would take more than", name)
		})
	}
}
