package ckpt

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Rule says how ranks divide a tensor. That of a parameter is of its placement (tensor.Param.Place).
type Rule = layout.Division

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

// ruleOf returns the rule by which ranks have cut a parameter, or nil: they have not, or along two dimensions.
func ruleOf(p *tensor.Param) *Rule {
	if cuts := p.Placement().Divisions(); len(cuts) == 1 {
		return &cuts[0]
	}
	return nil
}

// segmentRule returns the rule for a segment, whose rows begin at row first of the parameter, or nil if there is none.
func segmentRule(p *tensor.Param, first int, s tensor.Stored) *Rule {
	cuts := p.Placement().Divisions()
	if s.Squeeze { // ranks have other experts: that is no rule for one of them
		cuts = slices.DeleteFunc(slices.Clone(cuts), func(c Rule) bool { return c.Dim == 0 })
	}
	if len(cuts) != 1 {
		return nil
	}
	r := cuts[0]
	switch {
	case s.Squeeze:
		r.Dim--
	case r.Dim == 0:
		widths, at := r.Widths(p.Global()), 0
		for len(widths) > 0 && at < first {
			at, widths = at+widths[0], widths[1:]
		}
		r.Parts = nil
		for end := first + s.Rows; len(widths) > 0 && at+widths[0] <= end; widths = widths[1:] {
			at, r.Parts = at+widths[0], append(r.Parts, widths[0])
		}
		if at != first+s.Rows || len(r.Parts) == 0 {
			return nil // a part reaches over an end of it
		}
	}
	return &r
}

// rule returns the rule of a tensor, to which its segments add the parts of theirs, or nil if there is none.
func (o *owned) rule() *Rule {
	parts, r, end := slices.Clone(o.parts), &Rule{}, 0
	slices.SortStableFunc(parts, func(x, y ownedPart) int { return cmp.Compare(x.First, y.First) })
	for i, x := range parts {
		if x.Rule == nil || i > 0 && x.Rule.Dim != r.Dim {
			return nil
		}
		r.Dim, r.Unit = x.Rule.Dim, x.Rule.Unit
		if x.First < end {
			continue // a rank before has the segment, too
		}
		r.Parts, end = append(r.Parts, x.Rule.Parts...), x.First
		for _, n := range x.Rule.Parts {
			end += n
		}
	}
	if len(r.Parts) == 1 {
		r.Parts = nil
	}
	return r
}
