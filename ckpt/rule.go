package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
)

// Rule says how tensor parallelism cuts a tensor: along the dimension Dim, each part on its own. Parts are the widths
// along Dim; none means one part. A fused projection has one part each for queries, keys and values, so that every rank
// gets a share of all three. Unit, if not 0, is the number of elements along Dim that must stay together, such as those
// of a head. The ranks divide the units of a part. If there are fewer units than ranks, neighbouring ranks hold the same
// unit, as with grouped-query attention.
type Rule = shard.Rule

// Rules maps names of tensors to their Rule. A name may be a pattern of path.Match, such as "layers.*.attn.qkv.weight".
// Tensors without a Rule are whole on every rank.
type Rules = shard.Rules

// ParseRules reads Rules from JSON: {"*.qkv.weight": {"dim": 0, "parts": [64, 16, 16]}}.
func ParseRules(text []byte) (Rules, error) {
	var r Rules
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a misspelt "dim" would be 0
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("there is more behind the rules")
	}
	for pattern := range r {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
	}
	return r, nil
}
