package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// plan is the global plan: the checkpoint, and which rank writes which piece.
type plan struct {
	storage.Draft
	counted map[string][]int // the ranks whose optimizer has a parameter, by its stored name
}

// owned is a tensor with the parts that ranks hold, in the order of the ranks.
type owned struct {
	writeItem
	parts []ownedPart
}

// ownedPart is a rank's part of a tensor: an item of its local plan.
type ownedPart struct {
	*writeItem
	rank, index int
}

// newPlan returns the plan and the work of each rank. The error says how the local plans differ, or what is missing.
func newPlan(locals []localPlan, rules Rules, fileBytes int64) (*plan, []work, error) {
	tensors, err := collect(locals)
	if err != nil {
		return nil, nil, err
	}
	p := &plan{Draft: *storage.NewDraft(len(locals)), counted: map[string][]int{}}
	load := make([]int64, len(locals)) // bits that each rank writes so far
	shares := 0                        // largest number of shares of a tensor
	for _, t := range tensors {
		shares = max(shares, t.shares())
	}
	extents := map[string][]extent{} // of each tensor
	var model, opt []storage.TensorEntry
	for _, t := range tensors {
		e, list, err := t.entry(rules, shares, load)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		extents[t.key()] = list
		if t.Model {
			model = append(model, e)
		} else {
			opt = append(opt, e)
		}
	}
	if p.Manifest.Model, err = p.LayOut("model", model, fileBytes); err != nil {
		return nil, nil, err
	}
	if locals[0].Optimizer {
		p.Manifest.Optimizer = &storage.OptimizerEntry{}
		if p.Manifest.Optimizer.Tensors, err = p.LayOut("optimizer", opt, fileBytes); err != nil {
			return nil, nil, err
		}
	}
	for r, l := range locals {
		for _, name := range l.Counted {
			p.counted[name] = append(p.counted[name], r)
		}
	}
	return p, p.share(extents, len(locals)), nil
}

// entry returns a tensor's entry in the manifest, and its extents with their writers.
func (o *owned) entry(rules Rules, shares int, load []int64) (e storage.TensorEntry, extents []extent, err error) {
	boxes, whole, err := o.byBox()
	if err != nil {
		return e, nil, err
	}
	if extents, err = o.extents(boxes, whole, load); err != nil {
		return e, nil, err
	}
	e = storage.TensorEntry{Name: o.Name, DType: o.DType, Shape: o.Shape, Transposed: o.Transposed, Expert: o.Expert}
	for _, x := range extents {
		e.Pieces = append(e.Pieces, x.piece(o.Transposed))
	}
	if e.TP = rules.Find(storage.ParamName(o.Model, o.Name)); e.TP == nil {
		e.TP = o.rule(boxes, whole, shares)
	}
	if e.TP == nil {
		return e, extents, nil
	}
	if o.Transposed {
		e.TP = e.TP.Transposed()
	}
	if _, err := e.TP.Boxes(o.Shape, 0, 1); err != nil {
		return e, nil, fmt.Errorf("the rule does not fit: %w", err)
	}
	return e, extents, nil
}

// share returns the work of each rank.
func (p *plan) share(extents map[string][]extent, ranks int) []work {
	todo := make([]work, ranks)
	for r := range todo {
		for _, f := range p.Files {
			todo[r].Files = append(todo[r].Files, f.Name)
		}
	}
	index := -1
	p.EachPiece(func(model bool, t *storage.TensorEntry, k int) {
		index++
		key := storage.ItemKey(model, t.Name)
		x, at := &extents[key][k], p.At[key]
		for _, h := range x.holders {
			mine, shared := h.rank == x.rank, len(x.holders) > 1
			if mine || shared {
				todo[h.rank].Pieces = append(todo[h.rank].Pieces, pieceWork{Index: index, Item: h.index, At: h.at, N: x.Len(),
					File: at.File, Offset: int(at.Offset), Mine: mine, Shared: shared})
			}
		}
	})
	return todo
}

// setState adds everything except the tensors to the plan.
func (p *plan) setState(all []summary, files map[string][]byte) error {
	first := all[0]
	p.Manifest.Step, p.Manifest.Random, p.Manifest.Extra, p.Manifest.Base = first.Step, first.Random, first.Extra, first.Base
	p.SetBeside(files)
	o := p.Manifest.Optimizer
	if o == nil {
		return nil
	}
	o.Steps, o.LR, o.Scaler, o.Counts = first.Steps, first.LR, first.Scaler, map[string]int{}
	unlike := map[string]bool{} // parameters whose count is not the optimizer's steps on some rank
	for r := range all {
		for name := range all[r].Counts {
			unlike[name] = true
		}
	}
	for name, ranks := range p.counted {
		o.Counts[name] = first.Steps
		if !unlike[name] {
			continue
		}
		o.Counts[name] = all[ranks[0]].count(name)
		for _, r := range ranks {
			if n := all[r].count(name); n != o.Counts[name] {
				return fmt.Errorf("ranks differ: rank %d has %d optimizer steps of %s where rank %d has %d", r, n, name, ranks[0], o.Counts[name])
			}
		}
	}
	return nil
}

// count returns the steps that the optimizer has done for a parameter.
func (c *summary) count(name string) int {
	if n, ok := c.Counts[name]; ok {
		return n
	}
	return c.Steps
}

// compare returns an error if summaries differ in what must be the same on all ranks.
func compare(all []summary) error {
	var errs []error
	for r, c := range all {
		if c.Err != "" {
			errs = append(errs, fmt.Errorf("rank %d: %s", r, c.Err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	first := all[0]
	differ := func(r int, what string, mine, want any) error {
		return fmt.Errorf("ranks differ: rank %d has %s %v where rank 0 has %v", r, what, mine, want)
	}
	for r, c := range all {
		switch {
		case !maps.Equal(c.Calls, first.Calls):
			return differ(r, "called", c.Calls, first.Calls)
		case c.Step != first.Step:
			return differ(r, "step", c.Step, first.Step)
		case c.Optimizer != first.Optimizer:
			return differ(r, "an optimizer:", c.Optimizer, first.Optimizer)
		case c.Steps != first.Steps:
			return differ(r, "optimizer steps", c.Steps, first.Steps)
		case c.LR != first.LR:
			return differ(r, "learning rate", c.LR, first.LR)
		case !equal(c.Scaler, first.Scaler):
			return differ(r, "scaler", text(c.Scaler), text(first.Scaler))
		case !equal(c.Random, first.Random):
			return differ(r, "randomness", text(c.Random), text(first.Random))
		case !maps.EqualFunc(c.Extra, first.Extra, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }):
			return differ(r, "extra state", text(c.Extra), text(first.Extra))
		case !maps.Equal(c.Files, first.Files):
			return differ(r, "files", c.Files, first.Files)
		case !equal(c.Base, first.Base):
			return differ(r, "base", c.Base, first.Base)
		}
	}
	return nil
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func text(state any) string {
	b, _ := json.Marshal(state) // JSON and numbers only: cannot fail
	return string(b)
}

// collect joins the ranks' parts of each tensor. The tensors are in rank 0's order, followed by those that rank 0 does
// not have.
func collect(locals []localPlan) ([]*owned, error) {
	var order []*owned
	byKey := map[string]*owned{}
	for r := range locals {
		for i := range locals[r].Items {
			x := &locals[r].Items[i]
			key := x.key()
			o := byKey[key]
			if o == nil {
				o = &owned{writeItem: *x}
				byKey[key] = o
				order = append(order, o)
			}
			if !o.sameTensor(x) {
				return nil, fmt.Errorf("ranks differ: rank %d has %s as %s where rank %d has %s", r, x.Name, x.kind(), o.parts[0].rank, o.kind())
			}
			o.parts = append(o.parts, ownedPart{x, r, i})
		}
	}
	return order, nil
}
