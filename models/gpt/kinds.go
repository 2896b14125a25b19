package gpt

import (
	"fmt"
	"maps"
	"strings"

	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/moe/router"
)

// Kind is the architecture of a model.
type Kind uint8

const (
	// GPT2 has learned positions, LayerNorm, biases, and an MLP with GELU (its tanh approximation).
	GPT2 Kind = iota
	// Llama has rotary positions, RMSNorm, no biases, and an MLP with SwiGLU. Several heads of queries may share one of keys and values.
	Llama
	// Mistral is Llama with a window of attention, if Config says so.
	Mistral
	// Qwen2 is Llama with biases of queries, keys and values, and a window in its last layers, if Config says so.
	Qwen2
	// Qwen3 is Llama with an RMSNorm of each head's queries and keys, before positions turn them, and windows as Qwen2's.
	Qwen3
	// Phi3 is Mistral, in files with fused matrices.
	Phi3
	// Mixtral is Mistral with experts in place of MLPs. The weights of a token's experts have the sum 1.
	Mixtral
	// Qwen3MoE is Qwen3 with experts in place of MLPs, without windows.
	Qwen3MoE
	// SmolLM3 is Llama with layers that have no positions.
	SmolLM3
	// Gemma2 has a window in every second layer, norms also behind attention and the MLP, soft caps of scores and logits, and an MLP with
	// GeGLU.
	Gemma2
	// Gemma3 is Gemma2 with norms of queries and keys in place of soft caps, and rotary positions of another base in layers with a window:
	// five of six.
	Gemma3
)

// kind is what distinguishes a Kind from others, in the model and in Hugging Face's files.
type kind struct {
	model, class string // model_type and architectures in config.json
	rotary       bool   // positions are rotary, norms RMSNorm, and the MLP is gated
	biases       bool   // of all layers
	qkvBiases    bool   // of queries, keys and values
	qkNorms      bool   // of each head
	gemma        bool   // norms scale by 1 + W, and are behind attention and MLP, too; embeddings are times √Width; the MLP has GELU
	softCaps     bool   // of scores and logits
	localRope    bool   // layers with a window have rotary positions of another base
	noRope       bool   // some layers have no positions
	unscaled     bool   // rotary positions are
	windows      windows
	experts      *moe.Config // in place of MLPs; Config says how many

	settings func(c *Config) map[string]any // names in config.json, and where their values are
	missing  Config                         // what config.json means if it does not say these
	fixed    map[string]any                 // settings that have the same value in all models of this kind
	given    []string                       // settings that config.json must say: transformers takes the numbers of a large model else
	nulls    []string                       // settings that are null if nothing says them: transformers takes numbers of a large model else

	names      map[string]string   // of the model's parts in the files; others have their own
	fused      map[string][]string // matrices of the files that have several parts, one after the other
	transposed bool                // matrices of blocks are [in, out]
	prefix     string              // that names in files may have, and those of PEFT do
	ignored    []string            // tensors of some files that are not parameters
}

var kinds = [...]kind{
	GPT2: {model: "gpt2", class: "GPT2LMHeadModel", biases: true, qkvBiases: true, settings: gpt2Settings, missing: Config{Tied: true},
		fixed: map[string]any{"activation_function": "gelu_new", "scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false,
			"add_cross_attention": false},
		names: map[string]string{"tok": "wte", "pos": "wpe", "blocks": "h", "norm": "ln_f", "head": "lm_head",
			"norm1": "ln_1", "attn.out": "attn.c_proj", "norm2": "ln_2", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"},
		fused:      map[string][]string{"attn.c_attn": {"attn.q", "attn.k", "attn.v"}},
		transposed: true, prefix: "transformer.", ignored: []string{"h.*.attn.bias", "h.*.attn.masked_bias"}},
	Llama: {model: "llama", class: "LlamaForCausalLM", rotary: true, settings: rotarySettings, missing: Config{Eps: 1e-6},
		fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "mlp_bias": false},
		names: rotaryNames, ignored: rotaryIgnored},
	Mistral: {model: "mistral", class: "MistralForCausalLM", rotary: true, windows: allLayers, settings: rotarySettings,
		missing: Config{Eps: 1e-6}, fixed: map[string]any{"hidden_act": "silu"}, given: []string{"num_key_value_heads", "sliding_window"},
		nulls: []string{"sliding_window"},
		names: rotaryNames, ignored: rotaryIgnored},
	Qwen2: {model: "qwen2", class: "Qwen2ForCausalLM", rotary: true, qkvBiases: true, windows: lastLayers, settings: rotarySettings,
		missing: Config{Eps: 1e-6}, fixed: map[string]any{"hidden_act": "silu"}, given: []string{"num_key_value_heads"},
		names: rotaryNames, ignored: rotaryIgnored},
	Qwen3: {model: "qwen3", class: "Qwen3ForCausalLM", rotary: true, qkNorms: true, windows: lastLayers, settings: rotarySettings,
		missing: Config{Eps: 1e-6}, fixed: map[string]any{"hidden_act": "silu", "attention_bias": false},
		given: []string{"num_key_value_heads", "head_dim"}, names: rotaryNames, ignored: rotaryIgnored},
	Phi3: {model: "phi3", class: "Phi3ForCausalLM", rotary: true, unscaled: true, windows: allLayers, settings: rotarySettings,
		missing: Config{Eps: 1e-5}, fixed: map[string]any{"hidden_act": "silu"},
		nulls: []string{"sliding_window", "pad_token_id", "eos_token_id"}, names: rotaryNames, ignored: rotaryIgnored,
		fused: map[string][]string{"self_attn.qkv_proj": {"attn.q", "attn.k", "attn.v"},
			"mlp.gate_up_proj": {"mlp.gate_proj", "mlp.up_proj"}}},
	Mixtral: {model: "mixtral", class: "MixtralForCausalLM", rotary: true, windows: allLayers,
		experts: &moe.Config{Mixtral: true, Router: router.Config{Scoring: router.Chosen}}, settings: mixtralSettings,
		missing: Config{Eps: 1e-5, Base: 1e6, Balance: 0.001}, fixed: map[string]any{"hidden_act": "silu", "router_jitter_noise": decimal(0)},
		given: []string{"num_key_value_heads", "num_local_experts", "num_experts_per_tok"},
		names: mixtralNames, ignored: rotaryIgnored},
	Qwen3MoE: {model: "qwen3_moe", class: "Qwen3MoeForCausalLM", rotary: true, qkNorms: true, experts: &moe.Config{},
		settings: qwen3MoESettings, missing: Config{Eps: 1e-6, Balance: 0.001},
		fixed: map[string]any{"hidden_act": "silu", "attention_bias": false, "use_sliding_window": false, "decoder_sparse_step": 1,
			"mlp_only_layers": []int{}},
		given: []string{"num_key_value_heads", "num_experts_per_tok"}, names: rotaryNames, ignored: rotaryIgnored},
	SmolLM3: {model: "smollm3", class: "SmolLM3ForCausalLM", rotary: true, noRope: true, settings: smolSettings,
		missing: Config{Eps: 1e-6, Base: 2e6, Tied: true, NoRopeEvery: 4},
		fixed:   map[string]any{"hidden_act": "silu", "attention_bias": false, "mlp_bias": false, "use_sliding_window": false},
		given:   []string{"num_key_value_heads"}, nulls: []string{"pad_token_id", "bos_token_id", "eos_token_id"},
		names: rotaryNames, ignored: rotaryIgnored},
	Gemma2: {model: "gemma2", class: "Gemma2ForCausalLM", rotary: true, gemma: true, softCaps: true, windows: allButNth,
		settings: gemma2Settings, missing: Config{Eps: 1e-6, Tied: true, FullEvery: 2},
		fixed: map[string]any{"hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "use_bidirectional_attention": false},
		given: []string{"num_key_value_heads", "head_dim", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping"},
		names: gemmaNames, ignored: rotaryIgnored},
	Gemma3: {model: "gemma3_text", class: "Gemma3ForCausalLM", rotary: true, gemma: true, qkNorms: true, windows: allButNth,
		localRope: true, settings: gemma3Settings, missing: Config{Eps: 1e-6, Tied: true, FullEvery: 6, Base: 1e6, LocalBase: 10_000},
		fixed: map[string]any{"hidden_activation": "gelu_pytorch_tanh", "attention_bias": false, "use_bidirectional_attention": false,
			"attn_logit_softcapping": nil, "final_logit_softcapping": nil},
		given: []string{"num_key_value_heads", "head_dim", "query_pre_attn_scalar"}, names: gemmaNames, ignored: rotaryIgnored},
}

// windows says which layers may have windows of attention.
type windows uint8

const (
	noWindows  windows = iota
	allLayers          // if sliding_window is not null
	lastLayers         // from max_window_layers on, if use_sliding_window is true
	allButNth          // but each second one, or those of sliding_window_pattern, or as layer_types says
)

func (c *Config) kind() *kind { return &kinds[c.Kind] }

// String returns model_type of config.json, such as "gpt2".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].model
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// allKinds is "gpt2, llama and mistral" and so on.
func allKinds() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.model)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func gpt2Settings(c *Config) map[string]any {
	return map[string]any{"vocab_size": &c.Vocab, "n_positions": &c.Positions, "n_embd": &c.Width, "n_layer": &c.Layers, "n_head": &c.Heads,
		"n_inner": &c.Hidden, "layer_norm_epsilon": &c.Eps, "tie_word_embeddings": &c.Tied}
}

func rotarySettings(c *Config) map[string]any {
	return map[string]any{"vocab_size": &c.Vocab, "max_position_embeddings": &c.Positions, "hidden_size": &c.Width,
		"num_hidden_layers": &c.Layers, "num_attention_heads": &c.Heads, "num_key_value_heads": &c.KVHeads, "head_dim": &c.HeadDim,
		"intermediate_size": &c.Hidden, "rms_norm_eps": &c.Eps, "tie_word_embeddings": &c.Tied, "rope_theta": &c.Base}
}

func mixtralSettings(c *Config) map[string]any {
	return with(rotarySettings(c), map[string]any{"num_local_experts": &c.Experts, "num_experts_per_tok": &c.Top,
		"router_aux_loss_coef": &c.Balance})
}

// qwen3MoESettings has num_experts, too, as version 4 of transformers; version 5 reads num_local_experts if a file has both.
func qwen3MoESettings(c *Config) map[string]any {
	all := with(mixtralSettings(c), map[string]any{"num_experts": &c.Experts, "moe_intermediate_size": &c.Hidden,
		"norm_topk_prob": &c.Normalize})
	delete(all, "intermediate_size") // of layers without experts
	return all
}

func smolSettings(c *Config) map[string]any {
	return with(rotarySettings(c), map[string]any{"no_rope_layer_interval": &c.NoRopeEvery})
}

func gemma2Settings(c *Config) map[string]any {
	return with(rotarySettings(c), map[string]any{"query_pre_attn_scalar": &c.QueryScalar, "attn_logit_softcapping": &c.AttnSoftCap,
		"final_logit_softcapping": &c.LogitSoftCap})
}

func gemma3Settings(c *Config) map[string]any {
	return with(rotarySettings(c), map[string]any{"query_pre_attn_scalar": &c.QueryScalar, "sliding_window_pattern": &c.FullEvery,
		"rope_local_base_freq": &c.LocalBase})
}

// with returns m with more entries.
func with[V any](m, more map[string]V) map[string]V {
	m = maps.Clone(m)
	maps.Copy(m, more)
	return m
}

// rotaryNames are those of Llama and of its successors. nn.GatedMLP has the names of the files.
var rotaryNames = map[string]string{"tok": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm", "head": "lm_head",
	"norm1": "input_layernorm", "attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj", "attn.v": "self_attn.v_proj",
	"attn.q_norm": "self_attn.q_norm", "attn.k_norm": "self_attn.k_norm",
	"attn.out": "self_attn.o_proj", "norm2": "post_attention_layernorm"}

// In Mixtral's files, the experts' layer has a name of its own, which transformers 5 and PEFT do not use; nn.Storer gives the names in it.
var mixtralNames = with(rotaryNames, map[string]string{"mlp": "block_sparse_moe", "mlp.gate": "block_sparse_moe.gate"})

// gemmaNames has four norms: the one behind attention has the name that others give to that before the MLP.
var gemmaNames = with(rotaryNames, map[string]string{"post_attn": "post_attention_layernorm", "norm2": "pre_feedforward_layernorm",
	"post_mlp": "post_feedforward_layernorm"})

var rotaryIgnored = []string{"model.layers.*.self_attn.rotary_emb.inv_freq"}
