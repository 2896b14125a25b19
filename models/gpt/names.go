package gpt

import (
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// names is what Hugging Face's files call a part of a model, by what its fields are called.
var names = [...]map[string]string{
	GPT2: {"tok": "wte", "pos": "wpe", "blocks": "h", "norm": "ln_f", "head": "lm_head",
		"norm1": "ln_1", "attn.out": "attn.c_proj", "norm2": "ln_2", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"},
	Llama: {"tok": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm", "head": "lm_head",
		"norm1": "input_layernorm", "attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj", "attn.v": "self_attn.v_proj",
		"attn.out": "self_attn.o_proj", "norm2": "post_attention_layernorm"},
}

// Stored says under which names Hugging Face's files keep a parameter (nn.Storer). GPT-2's have queries, keys and values behind each
// other in one matrix, and all matrices but the tables as [in, out].
func (m *Model) Stored(name string, dims []int) (as []tensor.Stored, transposed bool) {
	table := names[m.Config.Kind]
	part, kind := cut(name)
	at := table[part]
	if len(dims) == 0 || at == "" && !strings.HasPrefix(part, "blocks.") {
		return nil, false // a parameter that somebody has added
	}
	if rest, ok := strings.CutPrefix(part, "blocks."); ok { // 3.attn.q
		layer, part, _ := strings.Cut(rest, ".")
		prefix := table["blocks"] + "." + layer + "."
		if s, ok := m.fused(part, dims); ok {
			s.Name = prefix + "attn.c_attn." + kind
			return []tensor.Stored{s}, len(dims) == 2
		}
		if at = table[part]; at == "" { // nn.GatedMLP has the names itself
			at = part
		}
		at = prefix + at
		transposed = m.Config.Kind == GPT2 && len(dims) == 2
	}
	return []tensor.Stored{{Name: at + "." + kind, Rows: dims[0], Total: dims[0]}}, transposed
}

// cut splits "tok.weight" at the last point.
func cut(name string) (part, kind string) {
	i := max(strings.LastIndexByte(name, '.'), 0)
	return name[:i], strings.TrimPrefix(name[i:], ".")
}

// fused says where queries, keys or values are in GPT-2's matrix.
func (m *Model) fused(part string, dims []int) (s tensor.Stored, ok bool) {
	if m.Config.Kind != GPT2 {
		return s, false
	}
	q, kv := m.Config.Heads*m.Config.HeadDim, m.Config.KVHeads*m.Config.HeadDim
	first, ok := map[string]int{"attn.q": 0, "attn.k": q, "attn.v": q + kv}[part]
	return tensor.Stored{Rows: dims[0], First: first, Total: q + 2*kv}, ok
}
