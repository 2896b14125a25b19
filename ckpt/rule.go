package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/layout"
)

// Rule says how ranks divide a tensor. That of a parameter is of its placement (tensor.Param.Place).
type Rule = layout.Cut

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
