package bert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/ckpt/safetensors"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

const (
	configName = "config.json"
	maxConfig  = 1 << 20
	maxFile    = 64 << 20
)

// origin is where a model comes from: a folder, and the settings there.
type origin struct {
	dir      string
	settings map[string]json.RawMessage
}

// fixed are settings that have one value in all models of this package; null is that value.
var fixed = map[string]string{"model_type": `"bert"`, "hidden_act": `"gelu"`, "position_embedding_type": `"absolute"`,
	"is_decoder": "false", "add_cross_attention": "false"}

// given are settings without which transformers takes those of a large model.
var given = []string{"model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
	"max_position_embeddings"}

// ReadConfig reads config.json in a folder with Hugging Face's layout, and sentence-transformers' files beside it. A setting that this
// package does not support is an error that names it.
func ReadConfig(dir string) (Config, error) {
	c, _, err := readConfig(dir)
	return c, err
}

// readConfig also returns all settings of config.json.
func readConfig(dir string) (Config, map[string]json.RawMessage, error) {
	path := filepath.Join(dir, configName)
	text, err := bounded.ReadFile(path, maxConfig)
	if err != nil {
		return Config{}, nil, fmt.Errorf("bert: %w", err)
	}
	c, all, err := parseConfig(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if err != nil {
		return Config{}, nil, fmt.Errorf("bert: %s: %w", path, bounded.Explain(err, text))
	}
	if err := c.readModules(dir); err != nil {
		return Config{}, nil, fmt.Errorf("bert: %w", err)
	}
	return c, all, c.check()
}

func parseConfig(text []byte) (Config, map[string]json.RawMessage, error) {
	c := Config{Types: 2, Eps: 1e-12}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return c, nil, err
	}
	var wrong []error
	for _, name := range given {
		if all[name] == nil {
			wrong = append(wrong, fmt.Errorf("%s is not given", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fixed)) {
		if raw := string(all[name]); raw != "" && raw != "null" && raw != fixed[name] {
			wrong = append(wrong, fmt.Errorf("%s is %s, and only %s is computed here", name, bounded.Plain(raw), fixed[name]))
		}
	}
	return c, all, errors.Join(append(wrong, json.Unmarshal(text, &c))...)
}

// Open returns the model of a folder with Hugging Face's or sentence-transformers' layout, without values. Attach of a parallel package or
// nn.Init makes the values. Then ckpt.Load, with LoadConfig, reads them from the folder's files. A model that is far larger than the
// folder's files is an error: New takes any Config. A folder without sentence-transformers' files pools by Mean, as sentence-transformers
// does.
func Open(dir string) (*Model, error) {
	c, all, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	size, pooler, err := files(dir)
	if err == nil {
		err = bounded.New(size).Take(c.memory())
	}
	if err != nil {
		return nil, fmt.Errorf("bert: the model that %s describes: %w; to train it from the beginning, give the Config of ReadConfig to New",
			filepath.Join(dir, configName), err)
	}
	m, err := New(c)
	if err != nil {
		return nil, err
	}
	m.origin = origin{dir, all}
	if pooler {
		m.Pooler = linear(c.Width, c.Width)
		for _, p := range []*tensor.Param{m.Pooler.W, m.Pooler.B} {
			p.Freeze()
		}
	}
	return m, nil
}

// files returns the size of the files in a folder, and whether they have a pooler. What is wrong with them is for ckpt.Load to say.
func files(dir string) (size int64, pooler bool, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // in a cache, they are links
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		size += info.Size()
		pooler = pooler || strings.HasSuffix(path, ".safetensors") && hasPooler(path)
	}
	return size, pooler, err
}

func hasPooler(path string) bool {
	f, size, err := bounded.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // opened for reading only
	h, err := safetensors.Read(path, f, size)
	return err == nil && slices.ContainsFunc(h.Tensors, func(t safetensors.Tensor) bool {
		return strings.TrimPrefix(t.Name, "bert.") == "pooler.dense.weight"
	})
}

// LoadConfig returns the settings of ckpt.Load for Hugging Face's files: types are converted, names may begin with "bert.", and the table
// of positions' numbers in older files, and heads of other tasks, are ignored.
func (m *Model) LoadConfig() ckpt.LoadConfig {
	return ckpt.LoadConfig{Cast: true, Rename: func(name string) string { return strings.TrimPrefix(name, "bert.") },
		AllowUnexpected: []string{"embeddings.position_ids", "cls.*"}}
}

// keptFiles are the other files of a model. Training does not change them.
var keptFiles = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
	"sentence_bert_config.json", "config_sentence_transformers.json"}

// Files returns the small files of the model, for ckpt.State: config.json, and what sentence-transformers needs to open a checkpoint. Call
// it when the model has values, whose type config.json says. Of a model that Open made, it has the settings of the folder, and its
// tokenizer unchanged.
func (m *Model) Files() (map[string][]byte, error) {
	all, files := map[string]any{}, map[string][]byte{}
	for name, value := range m.origin.settings {
		all[name] = value
	}
	for name, value := range fixed {
		if all[name] == nil {
			all[name] = json.RawMessage(value)
		}
	}
	delete(all, "torch_dtype") // of transformers 4
	delete(all, "dtype")
	if v := nn.Within(m)[0].Local; !v.IsZero() {
		all["dtype"] = v.DType().String()
	}
	all["architectures"] = []string{"BertModel"}
	text, err := json.Marshal(m.Config)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, err
	}
	if m.origin.dir != "" {
		for _, name := range keptFiles {
			text, err := bounded.ReadFile(filepath.Join(m.origin.dir, name), maxFile)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("bert: %w", err)
			} else if err == nil {
				files[name] = text
			}
		}
	}
	text, err = json.MarshalIndent(all, "", "  ")
	files[configName] = text
	return files, cmp.Or(err, m.Config.writeModules(files))
}
