package gpt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/nn"
)

const (
	configName = "config.json"
	maxConfig  = 1 << 20
	maxFile    = 64 << 20
)

// ReadConfig reads config.json in a folder with Hugging Face's layout. A setting that this package does not support is an error that names
// it.
func ReadConfig(dir string) (Config, error) {
	c, _, err := readConfig(dir)
	return c, err
}

// readConfig also returns all settings.
func readConfig(dir string) (Config, map[string]json.RawMessage, error) {
	path := filepath.Join(dir, configName)
	text, err := bounded.ReadFile(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w%s", err, wayOut(dir))
	}
	if err != nil {
		return Config{}, nil, fmt.Errorf("gpt: %w", err)
	}
	c, all, err := parseConfig(text)
	if err != nil {
		return Config{}, nil, fmt.Errorf("gpt: %s: %w", path, bounded.Explain(err, text))
	}
	return c, all, nil
}

// wayOut says, for an error, where the config of a folder without one may be.
func wayOut(dir string) string {
	if latest, err := ckpt.Latest(dir); err == nil {
		return "; it has checkpoints: name one, such as " + latest
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return "; it is beside the weights where they come from, and save_pretrained of transformers writes it"
}

// Open returns the model that config.json describes, in a folder with Hugging Face's layout, without values. Attach of a parallel package
// or nn.Init makes the values. Then ckpt.Load, with LoadConfig, reads them from the folder's files, with any parallel layout: each rank
// reads its part. A model that is far larger than the folder's files is an error: New takes any Config. A model with a head of its own in
// the files is not tied, whatever config.json says. Files returns what else is in the folder.
func Open(dir string) (*Model, error) {
	c, all, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(dir)
	if err == nil {
		err = bounded.New(size).Take(c.memory())
	}
	if err != nil {
		return nil, fmt.Errorf("gpt: the model that %s describes: %w; to train it from the beginning, give the Config of ReadConfig to New",
			filepath.Join(dir, configName), err)
	}
	c.Tied = c.Tied && !c.Kind.ownHead(dir)
	m, err := New(c)
	if err == nil {
		m.origin = origin{dir, all}
	}
	return m, err
}

// sizeOf returns the size of the files in a folder.
func sizeOf(dir string) (size int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name())) // in a cache, they are links
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
	}
	return size, err
}

// memory returns how many bytes the parameters take in float32, with the tables of positions and the layers themselves.
func (c *Config) memory() int64 {
	const layer = 8 << 10
	n := func(sizes ...int) (n float64) {
		n = 4
		for _, size := range sizes {
			n *= float64(size)
		}
		return n
	}
	matrices, positions := 2, n(c.Positions, c.Width)
	if c.kind().rotary {
		matrices, positions = 3, n(c.Positions, c.HeadDim)
	}
	if c.kind().localRope {
		positions *= 2
	}
	block := n(2, c.Width, c.HeadDim, c.Heads+c.KVHeads) + n(matrices, c.Width, c.Hidden, max(c.Experts, 1)) + n(c.Width, c.Experts) + layer
	all := n(c.Vocab, c.Width) + positions + float64(float64(c.Layers)*block)
	if !c.Tied {
		all += n(c.Vocab, c.Width)
	}
	return int64(min(all, math.MaxInt64/2))
}

// LoadConfig returns the settings of ckpt.Load for Hugging Face's files, old and new: types are converted, names of GPT-2's tensors may
// begin with "transformer.", and masks and tables in some files are ignored.
func (m *Model) LoadConfig() ckpt.LoadConfig {
	k := m.Config.kind()
	c := ckpt.LoadConfig{Cast: true, AllowUnexpected: slices.Clone(k.ignored), Rename: func(name string) string { // or an end, of PEFT
		return strings.Replace("."+strings.TrimPrefix(name, k.prefix), ".mlp.", "."+k.mlp()+".", 1)[1:]
	}}
	if m.Config.Tied {
		c.AllowUnexpected = append(c.AllowUnexpected, "lm_head.weight")
	}
	return c
}

func parseConfig(text []byte) (c Config, all map[string]json.RawMessage, err error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if err := json.Unmarshal(text, &all); err != nil {
		return Config{}, nil, err
	}
	model := string(all["model_type"])
	at := slices.IndexFunc(kinds[:], func(k kind) bool { return model == strconv.Quote(k.model) })
	if at < 0 {
		return c, nil, fmt.Errorf("model_type is %s: there are %s", bounded.Plain(cmp.Or(model, "not given")), allKinds())
	}
	k := &kinds[at]
	c = k.missing
	c.Kind = Kind(at)
	var wrong []error
	settings := k.settings(&c)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if at, is := settings[name]; is {
			wrong = append(wrong, named(name, json.Unmarshal(all[name], at)))
		}
		if want, is := k.fixed[name]; is {
			wrong = append(wrong, mustEqual(name, all[name], want))
		}
	}
	wrong = append(wrong, k.check(all), c.readWindow(all), c.readNoRope(all))
	if k.rotary {
		wrong = append(wrong, c.readRopes(all))
		for name, at := range settings {
			if at == any(&c.Hidden) && c.Hidden == 0 {
				wrong = append(wrong, fmt.Errorf("%s is not given", name))
			}
		}
	}
	if string(all["output_router_logits"]) != "true" { // then transformers does not train with it either
		c.Balance = 0
	}
	for _, name := range []string{"rms_norm_eps", "layer_norm_epsilon", "rope_theta", "rope_local_base_freq", "attn_logit_softcapping",
		"final_logit_softcapping"} { // in Config, 0 is the default
		if x, is := settings[name].(*float64); is && *x == 0 && all[name] != nil && string(all[name]) != "null" {
			wrong = append(wrong, fmt.Errorf("%s is 0, and must be positive", name))
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return c, nil, err
	}
	return c, all, c.check()
}

// mustEqual returns an error for a setting that is not the only one that is computed; null is the default.
func mustEqual(name string, raw json.RawMessage, want any) error {
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	var got any
	if err := cmp.Or(json.Unmarshal(raw, &got), json.Unmarshal(text, &want)); err != nil {
		return err
	}
	if got != nil && !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %s, and only %s is computed here", name, bounded.Plain(string(raw)), text)
	}
	return nil
}

// check returns an error for what is missing.
func (k *kind) check(all map[string]json.RawMessage) (err error) {
	for _, name := range k.given {
		if raw := all[name]; raw == nil || name == "head_dim" && string(raw) == "null" {
			err = errors.Join(err, fmt.Errorf("%s is not given", name))
		}
	}
	return err
}

// decimal is a number that Python reads as a float: transformers warns of others in these settings.
func decimal(x float64) json.RawMessage {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return json.RawMessage(text)
}

func named(setting string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", setting, err)
	}
	return nil
}

// origin is where a model comes from: a folder, and the settings there.
type origin struct {
	dir      string
	settings map[string]json.RawMessage
}

// Origin returns the folder that Open read, or "" for a model of New.
func (m *Model) Origin() string { return m.origin.dir }

// keptFiles are the other files of a model in Hugging Face's layout. Training does not change them.
var keptFiles = []string{"generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
	"added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"}

// setDType says the type of the values in config.json, as save_pretrained does: a model need not be trained in that of its folder. Of a
// model without values, it says nothing, and readers take the type of the tensors.
func (m *Model) setDType(all map[string]any) {
	_, old := all["torch_dtype"] // of transformers 4
	delete(all, "torch_dtype")
	delete(all, "dtype")
	values := nn.Within(m)[0].Local
	if values.IsZero() {
		return
	}
	all["dtype"] = values.DType().String()
	if old {
		all["torch_dtype"] = all["dtype"]
	}
}

// Files returns config.json, for ckpt.State. With it, transformers and Open read a checkpoint as this model: call it when the model has
// values, whose type dtype is. Of a model that Open made, it has the settings of the folder's, such as the numbers of special tokens, also
// those that this package does not use. The tokenizer, the settings of generation and the chat template come from the folder unchanged;
// several chat templates are in tokenizer_config.json.
func (m *Model) Files() (map[string][]byte, error) {
	c, k, all, files := m.Config, m.Config.kind(), maps.Clone(m.Config.kind().fixed), map[string][]byte{}
	for _, name := range k.nulls {
		all[name] = nil
	}
	for name, value := range m.origin.settings { // where a fixed setting is null, it is the same
		all[name] = value
	}
	m.setDType(all)
	c.FullEvery, c.NoRopeEvery = cmp.Or(c.FullEvery, c.Layers+1), cmp.Or(c.NoRopeEvery, c.Layers+1) // Python divides by them
	all["model_type"] = k.model
	all["architectures"] = []string{k.class}
	for name, value := range k.settings(&c) {
		x, float := value.(*float64)
		_, size := value.(*int)
		switch {
		case size && m.origin.dir != "" && value != any(&c.Experts): // as there; versions 4 and 5 read experts in different places
		case !float:
			all[name] = value
		case *x != 0:
			all[name] = decimal(*x)
		case x != &c.Balance: // output_router_logits says that there is none
			all[name] = nil
		}
	}
	if k.experts != nil {
		all["output_router_logits"] = c.Balance != 0
	}
	c.writeWindow(all)
	c.writeNoRope(all)
	if !k.rotary && (c.KVHeads != c.Heads || c.HeadDim*c.Heads != c.Width) {
		return nil, fmt.Errorf("gpt: %s of GPT-2 cannot say %d heads of %d features over %d, of %d",
			configName, c.Heads, c.HeadDim, c.KVHeads, c.Width)
	}
	if k.rotary {
		rope := ropeSettings(c.Scaling)
		all["rope_parameters"] = rope
		if !c.Scaling.None() {
			all["rope_scaling"] = maps.Clone(rope) // versions before 5 read it there, and rope_theta beside it
		}
		rope["rope_theta"] = decimal(c.Base)
		if c.kind().localRope {
			all["rope_parameters"] = map[string]any{full: rope,
				sliding: map[string]any{"rope_type": "default", "rope_theta": decimal(c.LocalBase)}}
		}
	}
	if m.origin.dir != "" {
		for _, name := range keptFiles {
			text, err := bounded.ReadFile(filepath.Join(m.origin.dir, name), maxFile)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("gpt: %w", err)
			} else if err == nil {
				files[name] = text
			}
		}
		if err := joinTemplates(m.origin.dir, files); err != nil {
			return nil, err
		}
	}
	text, err := object(all)
	files[configName] = text
	return files, err
}
