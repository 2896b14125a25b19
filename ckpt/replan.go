package ckpt

import (
	"encoding/json"
	"slices"

	"github.com/ringo-ml/ringo/dist"
)

// tensorPlan is the plan of the last save, for the next one if every rank has the same tensors then.
type tensorPlan struct {
	*plan
	hash string // of what all ranks said of their tensors
}

// structure is a hash of what a rank says of its tensors.
func (c *claim) structure(rules Rules) (string, error) {
	text, err := json.Marshal(struct {
		Items     []claimItem
		Rules     Rules
		Optimizer bool
	}{c.Items, rules, c.Counts != nil})
	return sum(text), err
}

// structures is a hash of what all ranks say, and whether every one of them has the plan of it.
func structures(claims []claim) (hash string, planned bool) {
	var all []byte
	for _, c := range claims {
		all = append(all, c.Structure...)
	}
	hash = sum(all)
	return hash, !slices.ContainsFunc(claims, func(c claim) bool { return c.Planned != hash })
}

// agreeOnPlan plans with what all ranks say. What they say of their tensors is exchanged when it is new to one of them, not at every save.
func (s *Saver) agreeOnPlan(c claim, rules Rules) (*plan, error) {
	items := c.Items
	c.Items, c.Planned = nil, s.planned.hash
	claims, err := dist.AllGatherObject(s.g, c)
	if err != nil {
		return nil, err
	}
	hash, planned := structures(claims)
	if planned {
		if err := compare(claims); err != nil {
			return nil, err
		}
		s.planned.setState(claims)
		return s.planned.plan, nil
	}
	s.planned = tensorPlan{}
	all, err := dist.AllGatherObject(s.g, items)
	if err != nil {
		return nil, err
	}
	for r := range claims {
		claims[r].Items = all[r]
	}
	p, err := newPlan(claims, rules, s.fileBytes)
	if err == nil {
		s.planned = tensorPlan{p, hash}
	}
	return p, err
}
