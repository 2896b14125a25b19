package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

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
	extents := map[string][]extent{}   // of each tensor
	var model, opt []storage.TensorEntry
	for _, t := range tensors {
		e, list, err := t.entry(rules, load)
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
func (o *owned) entry(rules Rules, load []int64) (e storage.TensorEntry, extents []extent, err error) {
	boxes, whole, err := o.byBox()
	if err != nil {
		return e, nil, err
	}
	if extents, err = o.extents(boxes, whole, load); err != nil {
		return e, nil, err
	}
	e = storage.TensorEntry{Name: o.Name, DType: o.DType, Shape: append([]int{}, o.Shape...), Transposed: o.Transposed, Expert: o.Expert}
	for _, x := range extents {
		e.Pieces = append(e.Pieces, x.piece(o.Transposed))
	}
	if e.TP = rules.Find(storage.ParamName(o.Model, o.Name)); e.TP == nil {
		e.TP = o.rule()
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
		todo[r].Files = p.Names()
	}
	index := 0
	for model, t := range p.Manifest.Entries() {
		key := storage.ItemKey(model, t.Name)
		at := p.At[key]
		for _, x := range extents[key] {
			for _, h := range x.holders {
				mine, shared := h.rank == x.rank, len(x.holders) > 1
				if mine || shared {
					todo[h.rank].Pieces = append(todo[h.rank].Pieces, pieceWork{Index: index, Item: h.index, At: h.at, N: x.Len(),
						File: at.File, Offset: int(at.Offset), Mine: mine, Shared: shared})
				}
			}
			index++
		}
	}
	return todo
}

// setState adds everything except the tensors to the plan.
func (p *plan) setState(all []summary, files map[string][]byte) error {
	first, o := all[0], p.Manifest.Optimizer
	p.Beside, p.Manifest.Beside, p.Manifest.Training = map[string][]byte{}, first.Files, first.Training
	for name, b := range files { // with Config.Async, the program may change them before they are written
		p.Beside[name] = bytes.Clone(b)
	}
	if o == nil {
		return nil
	}
	p.Manifest.Optimizer = &storage.OptimizerEntry{Steps: first.Optimizer.Steps, LR: first.Optimizer.LR, Scaler: first.Optimizer.Scaler,
		Counts: map[string]int{}, Tensors: o.Tensors}
	counts := p.Manifest.Optimizer.Counts
	unlike := map[string]bool{} // parameters whose count is not the optimizer's steps on some rank
	for r := range all {
		for name := range all[r].Optimizer.Counts {
			unlike[name] = true
		}
	}
	for name, ranks := range p.counted {
		counts[name] = first.Optimizer.Steps
		if !unlike[name] {
			continue
		}
		counts[name] = all[ranks[0]].count(name)
		for _, r := range ranks {
			if n := all[r].count(name); n != counts[name] {
				return fmt.Errorf("ranks differ: rank %d has %d optimizer steps of %s where rank %d has %d", r, n, name, ranks[0], counts[name])
			}
		}
	}
	return nil
}

// count returns the steps that the optimizer has done for a parameter.
func (c *summary) count(name string) int {
	if n, ok := c.Optimizer.Counts[name]; ok {
		return n
	}
	return c.Optimizer.Steps
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
	want := all[0].alike()
	for r := range all {
		for i, x := range all[r].alike() {
			if text(x.value) != text(want[i].value) {
				return fmt.Errorf("ranks differ: rank %d has %s %v where rank 0 has %v", r, x.what, x.value, want[i].value)
			}
		}
	}
	return nil
}

// same is something that must be the same on all ranks.
type same struct {
	what  string
	value any
}

// alike lists what must be the same on all ranks.
func (c *summary) alike() []same {
	o := c.Optimizer
	if o == nil {
		o = &storage.OptimizerEntry{}
	}
	return []same{
		{"called", c.Calls}, {"step", c.Step}, {"an optimizer:", c.Optimizer != nil}, {"optimizer steps", o.Steps}, {"learning rate", o.LR},
		{"scaler", text(o.Scaler)}, {"randomness", text(c.Random)}, {"extra state", text(c.Extra)}, {"files", c.Files}, {"base", c.Base},
	}
}

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
			if o.kind() != x.kind() {
				return nil, fmt.Errorf("ranks differ: rank %d has %s as %s where rank %d has %s", r, x.Name, x.kind(), o.parts[0].rank, o.kind())
			}
			o.parts = append(o.parts, ownedPart{x, r, i})
		}
	}
	return order, nil
}
