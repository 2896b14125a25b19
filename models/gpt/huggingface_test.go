package gpt_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

var files = map[string]gpt.Config{
	"gpt2": {Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 3, KVHeads: 3, HeadDim: 4, Hidden: 48, Tied: true, Eps: 1e-5,
		Base: 10_000},
	"old": {Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 3, KVHeads: 3, HeadDim: 4, Hidden: 48, Tied: true, Eps: 1e-5, Base: 10_000},
	"llama": {Kind: gpt.Llama, Vocab: 13, Positions: 12, Width: 12, Layers: 2, Heads: 6, KVHeads: 2, HeadDim: 2, Hidden: 20, Eps: 1e-6,
		Base: 10_000, Scaling: nn.RotaryScaling{Type: "default"}},
	"scaled": {Kind: gpt.Llama, Vocab: 13, Positions: 12, Width: 12, Layers: 1, Heads: 6, KVHeads: 2, HeadDim: 6, Hidden: 20, Tied: true,
		Eps: 1e-6, Base: 500, Scaling: nn.RotaryScaling{Type: "llama3", Factor: 4, Low: 1, High: 4, Original: 8}},
	"mistral": tiny(gpt.Config{Kind: gpt.Mistral, HeadDim: 4, Eps: 1e-6, Window: 12}),
	"window":  tiny(gpt.Config{Kind: gpt.Mistral, HeadDim: 2, Eps: 1e-6, Window: 3}),
	"late":    tiny(gpt.Config{Kind: gpt.Qwen2, Layers: 2, HeadDim: 2, Eps: 1e-6, Window: 4, FullLayers: 1}),
	"qwen2":   tiny(gpt.Config{Kind: gpt.Qwen2, HeadDim: 2, Eps: 1e-6, Tied: true}),
	"qwen3":   tiny(gpt.Config{Kind: gpt.Qwen3, HeadDim: 4, Eps: 1e-6}),
	"phi3":    tiny(gpt.Config{Kind: gpt.Phi3, HeadDim: 2, Eps: 1e-5}),
	"mixtral": tiny(gpt.Config{Kind: gpt.Mixtral, HeadDim: 4, Hidden: 6, Eps: 1e-5, Window: 4, Base: 1e6,
		Experts: 4, Top: 2, Balance: 0.2}),
	"qwen3_moe":    tiny(gpt.Config{Kind: gpt.Qwen3MoE, HeadDim: 4, Hidden: 6, Eps: 1e-6, Experts: 4, Top: 2, Normalize: true}),
	"unnormalized": tiny(gpt.Config{Kind: gpt.Qwen3MoE, HeadDim: 2, Hidden: 6, Eps: 1e-6, Experts: 4, Top: 2}),
	"smollm3":      tiny(gpt.Config{Kind: gpt.SmolLM3, Layers: 2, HeadDim: 4, Eps: 1e-6, Tied: true, Base: 2e6, NoRopeEvery: 2}),
	"yarn": tiny(gpt.Config{Kind: gpt.Qwen2, HeadDim: 8, Eps: 1e-6, Base: 20,
		Scaling: nn.RotaryScaling{Type: "yarn", Factor: 4, Original: 8, Fast: 2, Slow: 0.5}}),
	"gemma2": {Kind: gpt.Gemma2, Vocab: 13, Positions: 12, Width: 4, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 4, Hidden: 10, Tied: true,
		Eps: 1e-6, Base: 10_000, Scaling: nn.RotaryScaling{Type: "default"}, Window: 3, FullEvery: 2, QueryScalar: 2, AttnSoftCap: 0.5,
		LogitSoftCap: 2},
	"gemma3": {Kind: gpt.Gemma3, Vocab: 13, Positions: 12, Width: 4, Layers: 3, Heads: 2, KVHeads: 1, HeadDim: 4, Hidden: 10, Tied: true,
		Eps: 1e-6, Base: 500, Scaling: nn.RotaryScaling{Type: "linear", Factor: 2}, LocalBase: 20, Window: 3, FullEvery: 2, QueryScalar: 2},
}

// tiny sets what the small models of newer kinds have alike.
func tiny(c gpt.Config) gpt.Config {
	c.Vocab, c.Positions, c.Width, c.Layers, c.Heads, c.KVHeads, c.Hidden = 13, 12, 8, max(c.Layers, 1), 4, 2, cmp.Or(c.Hidden, 10)
	c.Base, c.Scaling = cmp.Or(c.Base, 10_000), cmp.Or(c.Scaling, nn.RotaryScaling{Type: "default"})
	return c
}

// Files of transformers can be read, and what is written reads as the same.
func TestConfigFiles(t *testing.T) {
	for name, want := range files {
		got, err := gpt.ReadConfig(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.Equal(t, want, got, name)
		m, err := gpt.New(got)
		require.NoError(t, err)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), filesOf(t, m)["config.json"], 0o666))
		again, err := gpt.ReadConfig(dir)
		require.NoError(t, err)
		require.Equal(t, want, again, name)
	}
}

// Where no layer sees all positions, or all layers have positions, files say so with a number that Python can divide by.
func TestFilesOfOneSortOfLayers(t *testing.T) {
	for setting, c := range map[string]gpt.Config{
		"sliding_window_pattern": tiny(gpt.Config{Kind: gpt.Gemma3, HeadDim: 4, Window: 3, Layers: 3}),
		"no_rope_layer_interval": tiny(gpt.Config{Kind: gpt.SmolLM3, HeadDim: 4, Layers: 3})} {
		m, err := gpt.New(c)
		require.NoError(t, err)
		text := filesOf(t, m)["config.json"]
		require.Contains(t, string(text), `"`+setting+`": 4`)
		got, err := gpt.ReadConfig(configIn(t, string(text)))
		require.NoError(t, err)
		require.Equal(t, m.Config, got)
	}
}

// Which layers have windows: layer_types count more than max_window_layers, and without use_sliding_window nothing has one.
func TestWindowsOfFiles(t *testing.T) {
	text, err := os.ReadFile("testdata/late/config.json")
	require.NoError(t, err)
	types := regexp.MustCompile(`(?s)"layer_types": \[.*?\]`)
	for change, want := range map[string][2]int{
		`"layer_types": null, "max_window_layers": 0`:                               {4, 0},
		`"layer_types": null, "max_window_layers": 28`:                              {4, 28},
		`"layer_types": ["full_attention", "full_attention"]`:                       {4, 2},
		`"layer_types": ["sliding_attention", "sliding_attention"]`:                 {4, 0},
		`"use_sliding_window": false, "sliding_window": 4, "layer_types": null`:     {},
		`"sliding_window": null, "layer_types": null`:                               {},
		`"sliding_window": 12, "layer_types": ["full_attention", "full_attention"]`: {12, 2},
	} {
		text := types.ReplaceAllString(string(text), `"other": 1`)
		got, err := gpt.ReadConfig(configIn(t, strings.TrimSuffix(strings.TrimSpace(text), "}")+", "+change+"}"))
		require.NoError(t, err, change)
		require.Equal(t, want, [2]int{got.Window, got.FullLayers}, change)
	}
}

// Which layers have no positions: no_rope_layers count more than the interval, which is 4 in files that say neither.
func TestNoRopeOfFiles(t *testing.T) {
	text, err := os.ReadFile("testdata/smollm3/config.json")
	require.NoError(t, err)
	lists := regexp.MustCompile(`(?s)"no_rope_layers": \[.*?\]`)
	for change, want := range map[string]int{
		`"no_rope_layers": null`:                                   2,
		`"no_rope_layers": null, "no_rope_layer_interval": 3`:      3,
		`"no_rope_layers": [1, 1], "no_rope_layer_interval": 1`:    0,
		`"no_rope_layers": [0, 0, 1], "no_rope_layer_interval": 4`: 1,
	} {
		text := lists.ReplaceAllString(string(text), `"other": 1`)
		got, err := gpt.ReadConfig(configIn(t, strings.TrimSuffix(strings.TrimSpace(text), "}")+", "+change+"}"))
		require.NoError(t, err, change)
		require.Equal(t, want, got.NoRopeEvery, change)
	}
	both := strings.Replace(lists.ReplaceAllString(string(text), `"other": 1`), `"no_rope_layer_interval": 2,`, "", 1)
	got, err := gpt.ReadConfig(configIn(t, both))
	require.NoError(t, err)
	require.Equal(t, 4, got.NoRopeEvery)
}

// Gemma's files of version 4 of transformers say less, and say it elsewhere.
func TestOldGemma(t *testing.T) {
	const start = `{"vocab_size": 5, "max_position_embeddings": 8, "hidden_size": 4, "num_hidden_layers": 7, "num_attention_heads": 2,
		"head_dim": 2, "num_key_value_heads": 1, "intermediate_size": 7, "sliding_window": 4, "query_pre_attn_scalar": 3, `
	want := gpt.Config{Vocab: 5, Positions: 8, Width: 4, Layers: 7, Heads: 2, KVHeads: 1, HeadDim: 2, Hidden: 7, Tied: true, Eps: 1e-6,
		Window: 4, QueryScalar: 3}
	gemma2, gemma3 := want, want
	gemma2.Kind, gemma2.FullEvery, gemma2.Base, gemma2.AttnSoftCap = gpt.Gemma2, 2, 10_000, 50
	gemma3.Kind, gemma3.FullEvery, gemma3.Base, gemma3.LocalBase = gpt.Gemma3, 6, 1e6, 10_000
	other := gemma3
	other.FullEvery, other.Base, other.LocalBase, other.Scaling = 3, 2e6, 20_000, nn.RotaryScaling{Type: "linear", Factor: 8}
	for rest, want := range map[string]gpt.Config{
		`"model_type": "gemma2", "attn_logit_softcapping": 50, "final_logit_softcapping": null}`: gemma2,
		`"model_type": "gemma3_text"}`: gemma3,
		`"model_type": "gemma3_text", "sliding_window_pattern": 3, "rope_theta": 2e6, "rope_local_base_freq": 20000,
			"rope_scaling": {"rope_type": "linear", "factor": 8.0}}`: other,
	} {
		got, err := gpt.ReadConfig(configIn(t, start+rest))
		require.NoError(t, err, rest)
		require.Equal(t, want, got, rest)
	}
	_, err := gpt.ReadConfig(configIn(t, start+`"model_type": "gemma3_text", "sliding_window_pattern": 0}`))
	require.ErrorContains(t, err, "sliding_window_pattern is 0, and must be positive")
}

// The positions of Llama 2 and 3 in files of older versions of transformers.
func TestOldRope(t *testing.T) {
	const start = `{"model_type": "llama", "vocab_size": 5, "max_position_embeddings": 8, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
		"intermediate_size": 7, "hidden_act": "silu"`
	for rope, want := range map[string]gpt.Config{
		``: {Eps: 1e-6, Base: 10_000},
		`, "rope_theta": 500000.0, "rope_scaling": null, "rms_norm_eps": 1e-5, "head_dim": null`: {Eps: 1e-5, Base: 500_000},
		`, "rope_scaling": {"type": "linear", "factor": 2.0}`: {Eps: 1e-6, Base: 10_000,
			Scaling: nn.RotaryScaling{Type: "linear", Factor: 2}},
		`, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}`: {
			Eps: 1e-6, Base: 10_000, Scaling: nn.RotaryScaling{Type: "llama3", Factor: 8, Low: 1, High: 4, Original: 8192}},
	} {
		want.Kind, want.Vocab, want.Positions, want.Width, want.Layers, want.Heads, want.KVHeads, want.HeadDim, want.Hidden = gpt.Llama, 5, 8, 4,
			1, 2, 2, 2, 7
		got, err := gpt.ReadConfig(configIn(t, start+rope+"}"))
		require.NoError(t, err, rope)
		require.Equal(t, want, got, rope)
		marked, err := gpt.ReadConfig(configIn(t, "\xef\xbb\xbf"+start+rope+"}"))
		require.NoError(t, err, "a byte order mark")
		require.Equal(t, got, marked, rope)
	}
}

// Version 4 of transformers wants floats, and warns of a setting in rope_scaling that it does not know.
func TestRopeFiles(t *testing.T) {
	for _, c := range []struct {
		scaling nn.RotaryScaling
		want    string
		old     bool
	}{
		{nn.RotaryScaling{}, `{"rope_type": "default"}`, false},
		{nn.RotaryScaling{Type: "linear", Factor: 2.5}, `{"rope_type": "linear", "factor": 2.5}`, true},
		{nn.RotaryScaling{Type: "llama3", Factor: 8, Low: 1, High: 4, Original: 32},
			`{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}`, true},
	} {
		m, err := gpt.New(gpt.Config{Kind: gpt.Llama, Vocab: 5, Positions: 8, Width: 4, Layers: 1, Heads: 2, Base: 500_000, Scaling: c.scaling})
		require.NoError(t, err)
		files, err := m.Files()
		require.NoError(t, err)
		decode := func(text []byte) (all map[string]any) {
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber() // 8.0 is not 8
			require.NoError(t, d.Decode(&all))
			return all
		}
		got, want := decode(files["config.json"]), decode([]byte(c.want))
		if c.old {
			require.Equal(t, want, got["rope_scaling"])
		} else {
			require.NotContains(t, got, "rope_scaling")
		}
		require.Equal(t, json.Number("500000.0"), got["rope_theta"])
		want["rope_theta"] = json.Number("500000.0")
		require.Equal(t, want, got["rope_parameters"])
	}
}

func configIn(t testing.TB, text string) (dir string) {
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o666))
	return dir
}

// wrongConfigs are changes of a folder's config, and what is said of them.
var wrongConfigs = []struct{ file, old, new, want string }{
	{"gpt2", `"model_type": "gpt2",`, ``, `model_type is not given: there are gpt2, llama, `},
	{"gpt2", `"model_type": "gpt2"`, `"model_type": "bert"`, `model_type is "bert": there are gpt2, llama, `},
	{"gpt2", `"gelu_new"`, `"relu"`, `activation_function is "relu", and only "gelu_new" is computed here`},
	{"gpt2", `"scale_attn_weights": true`, `"scale_attn_weights": false`, "scale_attn_weights is false"},
	{"gpt2", `"add_cross_attention": false`, `"add_cross_attention": true`, "add_cross_attention is true"},
	{"gpt2", `"scale_attn_by_inverse_layer_idx": false`, `"scale_attn_by_inverse_layer_idx": true`,
		"scale_attn_by_inverse_layer_idx is true"},
	{"gpt2", `"n_head": 3`, `"n_head": 5`, "12 features do not divide into 5 heads"},
	{"gpt2", `"n_layer": 2`, `"n_layer": "two"`, "n_layer"},
	{"gpt2", `"n_layer": 2`, `"n_layer": -2`, "Layers is -2, and must be positive"},
	{"gpt2", `{`, ``, "invalid character"},
	{"gpt2", `{`, strings.Repeat(" ", 1<<20) + `{`, "longer than 1048576 bytes"},
	{"llama", `"hidden_act": "silu"`, `"hidden_act": "gelu"`, `hidden_act is "gelu"`},
	{"llama", `"attention_bias": false`, `"attention_bias": true`, "attention_bias is true"},
	{"llama", `"mlp_bias": false`, `"mlp_bias": true`, "mlp_bias is true"},
	{"llama", `"intermediate_size": 20,`, ``, "intermediate_size is not given"},
	{"scaled", `"llama3"`, `"dynamic"`, `rotary positions of type "dynamic"`},
	{"yarn", `"rope_type": "yarn"`, `"rope_type": "yarn", "mscale": 1.0`, "mscale is 1, which is not computed here"},
	{"yarn", `"rope_type": "yarn"`, `"rope_type": "yarn", "truncate": false`, "truncate is false, which is not computed here"},
	{"yarn", `"rope_type": "yarn"`, `"rope_type": "yarn", "attention_factor": 0`, "attention_factor is 0, and must be positive"},
	{"yarn", `"original_max_position_embeddings"`, `"other"`, "rotary positions cannot be scaled by"},
	{"llama", `"mlp_bias": false`, `"rope_scaling": {"rope_type": "linear", "factor": 2.0}`, "rope_scaling and rope_parameters differ"},
	{"llama", `"rms_norm_eps": 1e-06`, `"rms_norm_eps": 0.0`, "rms_norm_eps is 0, and must be positive"},
	{"llama", `"rope_parameters": {`, `"rope_theta": 0, "other": {`, "rope_theta is 0, and must be positive"},
	{"mistral", `"sliding_window": 12`, `"layer_types": ["chunked_attention"], "sliding_window": 12`,
		`layer_types has "chunked_attention" for layer 0, and only sliding_attention is computed there`},
	{"window", `"sliding_window": 3`, `"layer_types": ["full_attention"], "sliding_window": 3`,
		`layer_types has "full_attention" for layer 0, and only sliding_attention`},
	{"window", `"sliding_window": 3`, `"sliding_window": -3`, "sliding_window is -3, and must be positive"},
	{"late", `"sliding_window": 4,`, ``, "sliding_window is not given"},
	{"late", `"max_window_layers": 1`, `"max_window_layers": -1, "layer_types": null`, "FullLayers -1 must not be negative"},
	{"late", `"max_window_layers": 1,`, `"layer_types": null,`, "max_window_layers is not given"},
	{"late", `"use_sliding_window": true`, `"use_sliding_window": false`, `layer_types has "sliding_attention" for layer 1`},
	{"late", `"full_attention",`, `"sliding_attention", "full_attention",`, "layer_types has 3 layers, and num_hidden_layers is 2"},
	{"mistral", `"sliding_window": 12`, `"sliding_window": 0`, "sliding_window is 0, and must be positive"},
	{"mistral", `"sliding_window": 12,`, ``, "sliding_window is not given"},
	{"mistral", `"num_key_value_heads": 2,`, ``, "num_key_value_heads is not given"},
	{"qwen2", `"num_key_value_heads": 2,`, ``, "num_key_value_heads is not given"},
	{"qwen2", `"use_sliding_window": false`, `"use_sliding_window": 1`, "use_sliding_window: json"},
	{"qwen2", `"full_attention"`, `"sliding_attention"`,
		`layer_types has "sliding_attention" for layer 0, and only full_attention is computed there`},
	{"qwen3", `"head_dim": 4,`, ``, "head_dim is not given"},
	{"qwen3", `"head_dim": 4`, `"head_dim": null`, "head_dim is not given"},
	{"qwen3", `"attention_bias": false`, `"attention_bias": true`, "attention_bias is true"},
	{"phi3", `"sliding_window": null`, `"sliding_window": 0`, "sliding_window is 0"},
	{"phi3", `"partial_rotary_factor": 1.0`, `"partial_rotary_factor": 0.5`, "partial_rotary_factor is 0.5, and only 1 is computed here"},
	{"phi3", `"resid_pdrop": 0.0`, `"partial_rotary_factor": 0.75`, "partial_rotary_factor is 0.75, and only 1 is computed here"},
	{"phi3", `"rope_type": "default"`, `"rope_type": "longrope", "short_factor": [1.0]`, `rotary positions of type "longrope"`},
	{"phi3", `"resid_pdrop": 0.0`, `"rope_scaling": {"type": "su", "long_factor": [1.0]}`, "rope_scaling and rope_parameters differ"},
	{"phi3", `"rope_type": "default"`, `"rope_type": "linear", "factor": 2.0`, `rotary positions of type "linear": phi3 has none`},
	{"smollm3", `"use_sliding_window": false`, `"use_sliding_window": true`, "use_sliding_window is true"},
	{"smollm3", `"no_rope_layers": [`, `"no_rope_layers": [0, 1,`, "no_rope_layers has 1 for layer 1: only each n-th layer"},
	{"smollm3", `"num_hidden_layers": 2`, `"num_hidden_layers": 3`, "no_rope_layers has 2 layers, and num_hidden_layers is 3"},
	{"smollm3", `"no_rope_layers": [`, `"no_rope_layers": ["x",`, "no_rope_layers: json"},
	{"smollm3", "\"no_rope_layer_interval\": 2,\n  \"no_rope_layers\"", `"no_rope_layer_interval": 0, "other"`,
		"no_rope_layer_interval is 0, and must be positive"},
	{"gemma2", `"use_bidirectional_attention": null`, `"use_bidirectional_attention": true`,
		"use_bidirectional_attention is true"},
	{"gemma2", `"hidden_activation": "gelu_pytorch_tanh"`, `"hidden_activation": "gelu"`, `hidden_activation is "gelu"`},
	{"gemma2", `"attn_logit_softcapping": 0.5,`, ``, "attn_logit_softcapping is not given"},
	{"gemma2", `"final_logit_softcapping": 2.0`, `"final_logit_softcapping": 0.0`, "final_logit_softcapping is 0, and must be positive"},
	{"gemma2", `"final_logit_softcapping": 2.0`, `"final_logit_softcapping": -2.0`, "LogitSoftCap is -2, and must not be negative"},
	{"gemma2", `"query_pre_attn_scalar": 2,`, ``, "query_pre_attn_scalar is not given"},
	{"gemma2", `"sliding_window": 3`, `"sliding_window": null`, "sliding_window is not given"},
	{"gemma2", `"full_attention"`, `"full_attention", "other"`, "layer_types has"},
	{"gemma3", `"attn_logit_softcapping": null`, `"attn_logit_softcapping": 50.0`,
		"attn_logit_softcapping is 50.0, and only null is computed here"},
	{"gemma3", `"rope_type": "default"`, `"rope_type": "linear", "factor": 2.0`,
		`rotary positions of type "linear" for sliding_attention: only default is computed there`},
	{"gemma3", `"full_attention": {`, `"other": {`, "rope_parameters has nothing for full_attention"},
	{"gemma3", `"sliding_attention",`, `"full_attention",`, `layer_types has "sliding_attention" for layer 2`},
	{"mixtral", `"router_jitter_noise": 0.0`, `"router_jitter_noise": 0.1`, "router_jitter_noise is 0.1, and only 0.0 is computed here"},
	{"mixtral", `"num_local_experts": 4,`, ``, "num_local_experts is not given"},
	{"mixtral", `"num_experts_per_tok": 2`, `"num_experts_per_tok": 5`, "Top is 5, and must be 1 to Experts"},
	{"qwen3_moe", `"mlp_only_layers": []`, `"mlp_only_layers": [0]`, "mlp_only_layers is [0], and only [] is computed here"},
	{"qwen3_moe", `"decoder_sparse_step": 1`, `"decoder_sparse_step": 2`, "decoder_sparse_step is 2, and only 1 is computed here"},
	{"qwen3_moe", `"use_sliding_window": false`, `"use_sliding_window": true`, "use_sliding_window is true, and only false"},
	{"qwen3_moe", `"num_local_experts": 4,`, ``, "Experts is 0, and must be 1"},
	{"qwen3_moe", `"moe_intermediate_size": 6,`, ``, "moe_intermediate_size is not given"},
	{"scaled", `"num_key_value_heads": 2`, `"num_key_value_heads": 4`, "6 heads of queries cannot share 4"},
}

func TestWrongConfigFiles(t *testing.T) {
	for _, c := range wrongConfigs {
		text, err := os.ReadFile(filepath.Join("testdata", c.file, "config.json"))
		require.NoError(t, err)
		require.Contains(t, string(text), c.old)
		dir := configIn(t, strings.Replace(string(text), c.old, c.new, 1))
		_, err = gpt.ReadConfig(dir)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "gpt: "+filepath.Join(dir, "config.json"))
	}
	_, err := gpt.ReadConfig("testdata/none")
	require.EqualError(t, err, "gpt: stat testdata/none/config.json: no such file or directory")
	m, err := gpt.New(gpt.Config{Vocab: 5, Positions: 4, Width: 12, Layers: 1, Heads: 4, KVHeads: 2})
	require.NoError(t, err)
	_, err = m.Files()
	require.ErrorContains(t, err, "cannot say 4 heads of 3 features over 2")
}

// A config of some hundred bytes does not make a model of billions of parameters: not without the files that have them.
func TestConfigBombs(t *testing.T) {
	gpt2 := `{"model_type": "gpt2", "n_positions": 8, "n_head": 1, `
	llama := `{"model_type": "llama", "num_attention_heads": 1, "num_hidden_layers": 1, "intermediate_size": 8, `
	for name, text := range map[string]string{
		"vocabulary": gpt2 + `"vocab_size": 67108864, "n_embd": 1024, "n_layer": 1}`,
		"width":      gpt2 + `"vocab_size": 8, "n_embd": 4096, "n_layer": 1}`,
		"layers":     gpt2 + `"vocab_size": 8, "n_embd": 1, "n_layer": 16384}`,
		"all":        gpt2 + `"vocab_size": 67108864, "n_embd": 4096, "n_layer": 16384, "n_inner": 4194304}`,
		"positions":  llama + `"vocab_size": 8, "hidden_size": 128, "max_position_embeddings": 16777216}`,
		"untied":     llama + `"vocab_size": 100000, "hidden_size": 100, "max_position_embeddings": 8}`,
	} {
		dir := configIn(t, text)
		reliability.Bounded(t, len(text), func() {
			_, err := gpt.Open(dir)
			require.ErrorContains(t, err, "gpt: the model that "+filepath.Join(dir, "config.json")+" describes: it would take more than", name)
			require.ErrorContains(t, err, "to train it from the beginning, give the Config of ReadConfig to New")
		})
	}
	dir := configIn(t, llama+`"vocab_size": 100000, "hidden_size": 100, "max_position_embeddings": 8}`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), make([]byte, 1<<20), 0o666))
	m, err := gpt.Open(dir)
	require.NoError(t, err, "the files may hold it")
	require.Equal(t, 100, m.Config.Width)
}

// FuzzConfig: what a config describes is an error, or takes no more memory than the folder's files justify.
func FuzzConfig(f *testing.F) {
	for name := range files {
		text, err := os.ReadFile(filepath.Join("testdata", name, "config.json"))
		require.NoError(f, err)
		f.Add(string(text))
	}
	f.Add(`{"model_type": "gpt2", "n_positions": 8, "n_head": 1, "vocab_size": 8, "n_embd": 1, "n_layer": 16384}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := configIn(t, text)
		reliability.Bounded(t, len(text), func() {
			if m, err := gpt.Open(dir); err == nil {
				dev := cpu.New(1)
				defer dev.Close()
				nn.Init(m, dev, tensor.Float32, 1)
			}
		})
	})
}
