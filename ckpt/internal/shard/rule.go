package shard

import (
	"maps"
	"path"
	"slices"

	"github.com/ringo-ml/ringo/layout"
)

// Rules is ckpt.Rules, and explained there.
type Rules map[string]layout.Division

// Find returns the rule of a tensor, or nil. An exact name wins over patterns. Of several matching patterns, the
// alphabetically last one wins.
func (r Rules) Find(name string) *layout.Division {
	if rule, ok := r[name]; ok {
		return &rule
	}
	for _, pattern := range slices.Backward(slices.Sorted(maps.Keys(r))) {
		if ok, err := path.Match(pattern, name); ok && err == nil {
			rule := r[pattern]
			return &rule
		}
	}
	return nil
}
