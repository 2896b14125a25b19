package ckpt

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/ringo-ml/ringo/tensor"
)

// Rule says how tensor parallelism cuts a tensor: along Dim, each of the parts on its own. A fused projection has a part
// for each of queries, keys and values, so that every rank gets a share of all three.
type Rule struct {
	Dim   int   `json:"dim"`
	Parts []int `json:"parts,omitempty"` // their widths along Dim; none: one part
}

// Rules are the Rules of tensors by name; a name may be a pattern of path.Match, such as "layers.*.attn.qkv.weight".
// Tensors without one are whole on every rank.
type Rules map[string]Rule

// ParseRules reads Rules from JSON: {"*.qkv.weight": {"dim": 0, "parts": [64, 16, 16]}}.
func ParseRules(text []byte) (Rules, error) {
	var r Rules
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	for pattern := range r {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q: %w", pattern, err)
		}
	}
	return r, nil
}

// find returns the rule of a tensor, nil for none. Where several patterns match, the last in order of the alphabet wins,
// and the name itself before all.
func (r Rules) find(name string) *Rule {
	if rule, ok := r[name]; ok {
		return &rule
	}
	var found *Rule
	best := ""
	for pattern, rule := range r {
		if ok, err := path.Match(pattern, name); ok && err == nil && (found == nil || pattern > best) {
			found, best = &rule, pattern
		}
	}
	return found
}

// transposed returns the rule for the transposed matrix.
func (r Rule) transposed() *Rule { return &Rule{1 - r.Dim, r.Parts} }

// Boxes returns what rank of size ranks holds of a tensor: a box for each part, or one for two that touch. Where the
// number of ranks does not divide a part, shares differ by one.
func (r Rule) Boxes(shape []int, rank, size int) ([]tensor.Box, error) {
	if r.Dim < 0 || r.Dim >= len(shape) || rank < 0 || rank >= size {
		return nil, fmt.Errorf("dimension %d of shape %v for rank %d of %d", r.Dim, shape, rank, size)
	}
	parts := r.Parts
	if len(parts) == 0 {
		parts = shape[r.Dim : r.Dim+1]
	}
	var boxes []tensor.Box
	at := 0
	for _, width := range parts {
		if width < 0 || width > shape[r.Dim]-at {
			return nil, fmt.Errorf("parts %v of dimension %d of shape %v", parts, r.Dim, shape)
		}
		b := tensor.Box{Lo: make([]int, len(shape)), Hi: slices.Clone(shape)}
		b.Lo[r.Dim], b.Hi[r.Dim] = at+share(width, rank, size), at+share(width, rank+1, size)
		if k := len(boxes) - 1; k >= 0 && boxes[k].Hi[r.Dim] == b.Lo[r.Dim] {
			boxes[k].Hi[r.Dim] = b.Hi[r.Dim]
		} else {
			boxes = append(boxes, b)
		}
		at += width
	}
	if at != shape[r.Dim] {
		return nil, fmt.Errorf("parts %v of dimension %d of shape %v", parts, r.Dim, shape)
	}
	return boxes, nil
}

// share returns where the share of rank begins when n elements are cut into size shares.
func share(n, rank, size int) int {
	return n/size*rank + min(n%size, rank)
}
