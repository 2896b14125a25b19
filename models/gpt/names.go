package gpt

import (
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// names maps the fields of a model to the names of its parts in Hugging Face's files.
var names = [...]map[string]string{
	GPT2: {"tok": "wte", "pos": "wpe", "blocks": "h", "norm": "ln_f", "head": "lm_head",
		"norm1": "ln_1", "attn.out": "attn.c_proj", "norm2": "ln_2", "mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"},
	Llama: {"tok": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm", "head": "lm_head",
		"norm1": "input_layernorm", "attn.q": "self_attn.q_proj", "attn.k": "self_attn.k_proj", "attn.v": "self_attn.v_proj",
		"attn.out": "self_attn.o_proj", "norm2": "post_attention_layernorm"},
}

// Stored returns the names of a parameter in Hugging Face's files (nn.Storer). GPT-2's files have queries, keys and values in one matrix,
// one after the other, and all matrices except the tables as [in, out]. Adapters (nn.LoRA) have the names of Hugging Face's PEFT. An
// adapter of a part of GPT-2's matrix has no such name: PEFT cannot express it.
func (m *Model) Stored(name string, dims []int) (as []tensor.Stored, transposed bool) {
	part, kind := cut(name)
	if of, matrix := cut(part); strings.HasPrefix(matrix, "lora_") {
		module, fused, ok := m.module(of)
		if !ok || fused != nil {
			return nil, false
		}
		if m.Config.Kind == GPT2 && of != "head" {
			module = "transformer." + module
		}
		return []tensor.Stored{{Name: "base_model.model." + module + "." + matrix + "." + kind, Rows: dims[0], Total: dims[0]}}, false
	}
	if as, transposed, ok := m.ofMLP(name, dims); ok {
		return as, transposed
	}
	module, fused, ok := m.module(part)
	if !ok || len(dims) == 0 {
		return nil, false // a parameter that is not part of the model
	}
	s := tensor.Stored{Name: module + "." + kind, Rows: dims[0], Total: dims[0]}
	if fused != nil {
		s.First, s.Total = fused[0], fused[1]
	}
	return []tensor.Stored{s}, m.Config.Kind == GPT2 && strings.HasPrefix(part, "blocks.") && len(dims) == 2
}

// ofMLP asks a block's MLP if that is a Storer, such as a mixture of experts.
func (m *Model) ofMLP(name string, dims []int) (as []tensor.Stored, transposed, ok bool) {
	for i, b := range m.Blocks {
		if b == nil { // of another stage
			continue
		}
		s, is := b.MLP.(nn.Storer)
		rest, in := strings.CutPrefix(name, fmt.Sprintf("blocks.%d.mlp.", i))
		if !is || !in {
			continue
		}
		as, transposed = s.Stored(rest, dims)
		for k := range as {
			as[k].Name = fmt.Sprintf("%s.%d.mlp.%s", names[m.Config.Kind]["blocks"], i, as[k].Name)
		}
		return as, transposed, as != nil
	}
	return nil, false, false
}

// module returns the name in Hugging Face's model of a part such as "blocks.3.attn.q". If that is a part of a matrix, fused has its first
// row and the number of all rows.
func (m *Model) module(part string) (name string, fused []int, ok bool) {
	table := names[m.Config.Kind]
	rest, inBlock := strings.CutPrefix(part, "blocks.")
	if !inBlock {
		name, ok = table[part]
		return name, nil, ok
	}
	layer, part, _ := strings.Cut(rest, ".")
	prefix := table["blocks"] + "." + layer + "."
	if m.Config.Kind == GPT2 {
		q, kv := m.Config.Heads*m.Config.HeadDim, m.Config.KVHeads*m.Config.HeadDim
		if first, ok := map[string]int{"attn.q": 0, "attn.k": q, "attn.v": q + kv}[part]; ok {
			return prefix + "attn.c_attn", []int{first, q + 2*kv}, true
		}
	}
	if name = table[part]; name == "" { // nn.GatedMLP uses the same names
		name = part
	}
	return prefix + name, nil, true
}

// cut splits "tok.weight" at the last point.
func cut(name string) (part, kind string) {
	i := max(strings.LastIndexByte(name, '.'), 0)
	return name[:i], strings.TrimPrefix(name[i:], ".")
}
