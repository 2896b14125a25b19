package gpt

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Stored returns the names of a parameter in Hugging Face's files (nn.Storer). GPT-2's files have queries, keys and values in one matrix,
// one after the other, and all matrices except the tables as [in, out]. Adapters (nn.LoRA) have the names of Hugging Face's PEFT. Parts
// of a matrix share one: its Down is in files once, and they have their rows of Up.
func (m *Model) Stored(name string, dims []int) (as []tensor.Stored, transposed bool) {
	part, kind := cut(name)
	of, matrix := cut(part)
	adapter := strings.HasPrefix(matrix, "lora_")
	if adapter {
		part = of
	} else if as, transposed, ok := m.ofMLP(name, dims); ok {
		return as, transposed
	}
	module, fused, ok := m.module(part)
	if !ok || len(dims) == 0 {
		return nil, false // a parameter that is not part of the model
	}
	if adapter {
		if part != "head" {
			module = m.Config.kind().prefix + strings.Replace(module, "."+m.Config.kind().mlp()+".", ".mlp.", 1)
		}
		module, kind = "base_model.model."+module, matrix+"."+kind
	}
	s := tensor.Stored{Name: module + "." + kind, Rows: dims[0], Total: dims[0]}
	if fused != nil && matrix != "lora_A" {
		s.First, s.Total = fused[0], fused[1]
	}
	return []tensor.Stored{s}, m.Config.kind().transposed && !adapter && strings.HasPrefix(part, "blocks.") && len(dims) == 2
}

// ofMLP asks a block's MLP if that is a Storer, such as a mixture of experts.
func (m *Model) ofMLP(name string, dims []int) (as []tensor.Stored, transposed, ok bool) {
	names := m.Config.kind().names
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
			as[k].Name = fmt.Sprintf("%s.%d.%s.%s", names["blocks"], i, m.Config.kind().mlp(), as[k].Name)
		}
		return as, transposed, as != nil
	}
	return nil, false, false
}

// module returns the name in Hugging Face's model of a part such as "blocks.3.attn.q". If that is a part of a matrix, fused has its first
// row and the number of all rows.
func (m *Model) module(part string) (name string, fused []int, ok bool) {
	k := m.Config.kind()
	rest, inBlock := strings.CutPrefix(part, "blocks.")
	if !inBlock {
		name, ok = k.names[part]
		return name, nil, ok
	}
	layer, part, _ := strings.Cut(rest, ".")
	prefix := k.names["blocks"] + "." + layer + "."
	for matrix, parts := range k.fused {
		if first, total, ok := m.Config.place(part, parts); ok {
			return prefix + matrix, []int{first, total}, true
		}
	}
	return prefix + cmp.Or(k.names[part], part), nil, true
}

// place returns the first row of a part in a matrix of several, and the number of all rows.
func (c *Config) place(part string, parts []string) (first, total int, ok bool) {
	rows := map[string]int{"attn.q": c.Heads * c.HeadDim, "attn.k": c.KVHeads * c.HeadDim, "attn.v": c.KVHeads * c.HeadDim,
		"mlp.gate_proj": c.Hidden, "mlp.up_proj": c.Hidden}
	for _, p := range parts {
		if p == part {
			first, ok = total, true
		}
		total += rows[p]
	}
	return first, total, ok
}

// mlp is the name of a block's MLP in files.
func (k *kind) mlp() string { return cmp.Or(k.names["mlp"], "mlp") }

// cut splits "tok.weight" at the last point.
func cut(name string) (part, kind string) {
	i := max(strings.LastIndexByte(name, '.'), 0)
	return name[:i], strings.TrimPrefix(name[i:], ".")
}
