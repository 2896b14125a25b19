package bert

import (
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// names are those of the model's parts in Hugging Face's files.
var names = map[string]string{
	"embeddings.tok": "embeddings.word_embeddings", "embeddings.pos": "embeddings.position_embeddings",
	"embeddings.type": "embeddings.token_type_embeddings", "embeddings.norm": "embeddings.LayerNorm", "pooler": "pooler.dense",
	"attn.q": "attention.self.query", "attn.k": "attention.self.key", "attn.v": "attention.self.value", "attn.out": "attention.output.dense",
	"norm1": "attention.output.LayerNorm", "mlp.up": "intermediate.dense", "mlp.down": "output.dense", "norm2": "output.LayerNorm",
}

// Stored returns the name of a parameter in Hugging Face's files (nn.Storer).
func (m *Model) Stored(name string, dims []int) (as []tensor.Stored, transposed bool) {
	at := strings.LastIndexByte(name, '.')
	part, kind := name[:max(at, 0)], name[max(at, 0):]
	prefix := ""
	if rest, is := strings.CutPrefix(part, "blocks."); is {
		var layer string
		layer, part, _ = strings.Cut(rest, ".")
		prefix = "encoder.layer." + layer + "."
	}
	of, is := names[part]
	if !is || len(dims) == 0 {
		return nil, false // a parameter that is not part of the model, such as an adapter's
	}
	return []tensor.Stored{{Name: prefix + of + kind, Rows: dims[0], Total: dims[0]}}, false
}
