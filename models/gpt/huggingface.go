package gpt

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/internal/bounded"
)

// configFile is config.json of Hugging Face's transformers, as far as it says what a model computes. Pointers are what need not be there.
type configFile struct {
	Type  string   `json:"model_type"`
	Arch  []string `json:"architectures,omitempty"`
	Vocab int      `json:"vocab_size"`
	Tied  *bool    `json:"tie_word_embeddings,omitempty"`

	// of gpt2
	Positions2 int     `json:"n_positions,omitempty"`
	Width2     int     `json:"n_embd,omitempty"`
	Layers2    int     `json:"n_layer,omitempty"`
	Heads2     int     `json:"n_head,omitempty"`
	Hidden2    *int    `json:"n_inner,omitempty"`
	Eps2       float64 `json:"layer_norm_epsilon,omitempty"`
	Act2       string  `json:"activation_function,omitempty"`
	Unscaled   *bool   `json:"scale_attn_weights,omitempty"`
	ByLayer    bool    `json:"scale_attn_by_inverse_layer_idx,omitempty"`
	Cross      bool    `json:"add_cross_attention,omitempty"`

	// of llama
	Positions int       `json:"max_position_embeddings,omitempty"`
	Width     int       `json:"hidden_size,omitempty"`
	Layers    int       `json:"num_hidden_layers,omitempty"`
	Heads     int       `json:"num_attention_heads,omitempty"`
	KVHeads   int       `json:"num_key_value_heads,omitempty"`
	HeadDim   int       `json:"head_dim,omitempty"`
	Hidden    int       `json:"intermediate_size,omitempty"`
	Eps       float64   `json:"rms_norm_eps,omitempty"`
	Act       string    `json:"hidden_act,omitempty"`
	AttnBias  bool      `json:"attention_bias,omitempty"`
	MLPBias   bool      `json:"mlp_bias,omitempty"`
	Base      float64   `json:"rope_theta,omitempty"`
	Scaling   *ropeFile `json:"rope_scaling,omitempty"`
	Rope      *ropeFile `json:"rope_parameters,omitempty"` // from version 5 on, in place of both
}

type ropeFile struct {
	Type     string  `json:"rope_type,omitempty"`
	OldType  string  `json:"type,omitempty"`
	Base     float64 `json:"rope_theta,omitempty"`
	Factor   float64 `json:"factor,omitempty"`
	Low      float64 `json:"low_freq_factor,omitempty"`
	High     float64 `json:"high_freq_factor,omitempty"`
	Original int     `json:"original_max_position_embeddings,omitempty"`
}

const configName = "config.json"

// ReadConfig reads config.json in a folder of Hugging Face's layout. What this package does not compute is an error that names it.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, configName)
	text, err := bounded.ReadFile(path, maxConfig)
	if err != nil {
		return Config{}, fmt.Errorf("gpt: %w", err)
	}
	c, err := parseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("gpt: %s: %w", path, err)
	}
	return c, nil
}

// Open returns the model, without values, that config.json in a folder of Hugging Face's layout describes. Attach of a parallel
// package or nn.Init makes the values, and ckpt.Load, with LoadConfig, reads them from the folder's files: on every layout, each rank
// its part.
func Open(dir string) (*Model, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	return New(c)
}

// LoadConfig is what ckpt.Load needs to know of files of Hugging Face's form, old and new: types are converted, names of GPT-2's
// tensors may begin with "transformer.", and masks and tables that some files have are left alone.
func (m *Model) LoadConfig() ckpt.LoadConfig {
	c := ckpt.LoadConfig{Cast: true}
	if m.Config.Kind == GPT2 {
		c.Prefix = "transformer."
		c.AllowUnexpected = []string{"h.*.attn.bias", "h.*.attn.masked_bias"}
	} else {
		c.AllowUnexpected = []string{"model.layers.*.self_attn.rotary_emb.inv_freq"}
	}
	if m.Config.Tied {
		c.AllowUnexpected = append(c.AllowUnexpected, "lm_head.weight")
	}
	return c
}

const maxConfig = 1 << 20

func parseConfig(text []byte) (c Config, err error) {
	var h configFile
	if err := json.Unmarshal(text, &h); err != nil {
		return c, err
	}
	switch h.Type {
	case "gpt2":
		c, err = h.gpt2()
	case "llama":
		c, err = h.llama()
	default:
		err = fmt.Errorf("model_type is %q: there are gpt2 and llama", h.Type)
	}
	if err == nil {
		err = c.check()
	}
	return c, err
}

// needs is an error where a setting has another value than the one that is computed here.
func needs(setting string, got, want any) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s is %#v, and only %#v is computed here", setting, got, want)
}

func (h *configFile) gpt2() (Config, error) {
	c := Config{Kind: GPT2, Vocab: h.Vocab, Positions: h.Positions2, Width: h.Width2, Layers: h.Layers2, Heads: h.Heads2, Tied: or(h.Tied, true), Eps: h.Eps2}
	c.Hidden = or(h.Hidden2, 0)
	return c, errors.Join(needs("activation_function", h.Act2, "gelu_new"), needs("scale_attn_weights", or(h.Unscaled, true), true),
		needs("scale_attn_by_inverse_layer_idx", h.ByLayer, false), needs("add_cross_attention", h.Cross, false))
}

func (h *configFile) llama() (Config, error) {
	c := Config{Kind: Llama, Vocab: h.Vocab, Positions: h.Positions, Width: h.Width, Layers: h.Layers, Heads: h.Heads, KVHeads: h.KVHeads,
		HeadDim: h.HeadDim, Hidden: h.Hidden, Tied: or(h.Tied, false), Eps: h.Eps, Base: h.Base}
	if c.Eps == 0 {
		c.Eps = 1e-6
	}
	if c.Hidden == 0 {
		return c, errors.New("intermediate_size is not given")
	}
	for _, r := range []*ropeFile{h.Scaling, h.Rope} {
		if r == nil {
			continue
		}
		c.Scaling = Scaling{Type: r.Type, Factor: r.Factor, Low: r.Low, High: r.High, Original: r.Original}
		if r.Type == "" {
			c.Scaling.Type = r.OldType
		}
		if r.Base != 0 {
			c.Base = r.Base
		}
	}
	return c, errors.Join(needs("hidden_act", h.Act, "silu"), needs("attention_bias", h.AttnBias, false), needs("mlp_bias", h.MLPBias, false))
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// Files returns config.json, for ckpt.State: transformers, and Open, read a checkpoint with it as this model.
func (m *Model) Files() (map[string][]byte, error) {
	c := m.Config
	h := configFile{Type: c.Kind.String(), Vocab: c.Vocab, Tied: &c.Tied}
	if c.Kind == GPT2 {
		if c.KVHeads != c.Heads || c.HeadDim*c.Heads != c.Width {
			return nil, fmt.Errorf("gpt: %s of GPT-2 cannot say %d heads of %d features over %d, of %d", configName, c.Heads, c.HeadDim, c.KVHeads, c.Width)
		}
		h.Arch = []string{"GPT2LMHeadModel"}
		h.Positions2, h.Width2, h.Layers2, h.Heads2, h.Hidden2, h.Eps2, h.Act2 = c.Positions, c.Width, c.Layers, c.Heads, &c.Hidden, c.Eps, "gelu_new"
	} else {
		h.Arch = []string{"LlamaForCausalLM"}
		h.Positions, h.Width, h.Layers, h.Heads, h.KVHeads, h.HeadDim, h.Hidden = c.Positions, c.Width, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Hidden
		h.Eps, h.Act, h.Base = c.Eps, "silu", c.Base
		s := c.Scaling
		h.Rope = &ropeFile{Type: "default", Base: c.Base, Factor: s.Factor, Low: s.Low, High: s.High, Original: s.Original}
		if !s.none() {
			h.Rope.Type = s.Type
			h.Scaling = h.Rope // where versions before 5 look
		}
	}
	text, err := json.MarshalIndent(h, "", "  ")
	return map[string][]byte{configName: append(text, '\n')}, err
}
