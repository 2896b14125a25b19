package ckpt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// draft is a checkpoint that is being written: the files, and where the tensors are in them.
type draft struct {
	man    manifest // complete except for hashes
	files  []plannedFile
	at     map[string]place  // where each tensor begins, by key
	beside map[string][]byte // small files
}

// plan is the global plan: the checkpoint, and which rank writes which piece.
type plan struct {
	draft
	counted map[string][]int // the ranks whose optimizer has a parameter, by its stored name
}

// newDraft returns a draft without tensors.
func newDraft(ranks int) *draft {
	return &draft{at: map[string]place{}, man: manifest{Version: formatVersion, Ranks: ranks}}
}

// plannedFile is a file that is being written.
type plannedFile struct {
	name   string
	header []byte
	size   int64
}

// place is where the data of a tensor begins.
type place struct {
	file   int
	offset int64
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
	p := &plan{draft: *newDraft(len(locals)), counted: map[string][]int{}}
	load := make([]int64, len(locals)) // bits that each rank writes so far
	shares := 0                        // largest number of shares of a tensor
	for _, t := range tensors {
		shares = max(shares, t.shares())
	}
	extents := map[string][]extent{} // of each tensor
	var model, opt []tensorEntry
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
	if p.man.Model, err = p.layOut("model", model, fileBytes); err != nil {
		return nil, nil, err
	}
	if locals[0].Optimizer {
		p.man.Optimizer = &optimizerEntry{}
		if p.man.Optimizer.Tensors, err = p.layOut("optimizer", opt, fileBytes); err != nil {
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
func (o *owned) entry(rules Rules, shares int, load []int64) (e tensorEntry, extents []extent, err error) {
	boxes, whole, err := o.byBox()
	if err != nil {
		return e, nil, err
	}
	if extents, err = o.extents(boxes, whole, load); err != nil {
		return e, nil, err
	}
	e = tensorEntry{Name: o.Name, DType: o.DType, Shape: o.Shape, Transposed: o.Transposed, Expert: o.Expert}
	for _, x := range extents {
		e.Pieces = append(e.Pieces, x.piece(o.Transposed))
	}
	if e.TP = rules.find(paramName(o.Model, o.Name)); e.TP == nil {
		e.TP = o.rule(boxes, whole, shares)
	}
	if e.TP == nil {
		return e, extents, nil
	}
	if o.Transposed {
		e.TP = e.TP.transposed()
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
		for _, f := range p.files {
			todo[r].Files = append(todo[r].Files, f.name)
		}
	}
	index := -1
	p.eachPiece(func(model bool, t *tensorEntry, k int) {
		index++
		key := itemKey(model, t.Name)
		x, at := &extents[key][k], p.at[key]
		for _, h := range x.holders {
			mine, shared := h.rank == x.rank, len(x.holders) > 1
			if mine || shared {
				todo[h.rank].Pieces = append(todo[h.rank].Pieces, pieceWork{Index: index, Item: h.index, At: h.at, N: x.len(),
					File: at.file, Offset: int(at.offset), Mine: mine, Shared: shared})
			}
		}
	})
	return todo
}

// setState adds everything except the tensors to the plan.
func (p *plan) setState(all []summary, files map[string][]byte) error {
	first := all[0]
	p.man.Step, p.man.Random, p.man.Extra, p.man.Base = first.Step, first.Random, first.Extra, first.Base
	p.setBeside(files)
	o := p.man.Optimizer
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

// paramName returns the name of a tensor's parameter. Names of the optimizer's tensors are that name, a dot and a key.
func paramName(model bool, name string) string {
	if i := strings.LastIndexByte(name, '.'); !model && i >= 0 {
		return name[:i]
	}
	return name
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

// layOut divides the tensors into files of at most fileBytes (a larger tensor gets its own file), and adds the files to
// the plan.
func (p *draft) layOut(kind string, tensors []tensorEntry, fileBytes int64) ([]tensorEntry, error) {
	var cuts [][]tensorEntry
	size := int64(0)
	for i, t := range tensors {
		n := int64(product(t.Shape)) * int64(t.DType.Bits()) / 8
		if i == 0 || size+n > fileBytes {
			cuts, size = append(cuts, nil), 0
		}
		size += n
		cuts[len(cuts)-1] = append(cuts[len(cuts)-1], t)
	}
	for i, cut := range cuts {
		name := fmt.Sprintf("%s-%05d-of-%05d.safetensors", kind, i+1, len(cuts))
		if len(cuts) == 1 {
			name = kind + ".safetensors"
		}
		var list []safetensors.Tensor
		for k := range cut {
			cut[k].File = name
			list = append(list, safetensors.Tensor{Name: cut[k].Name, DType: cut[k].DType, Shape: cut[k].Shape})
		}
		h, err := safetensors.New(list, map[string]string{"format": "pt"})
		if err != nil {
			return nil, err
		}
		for _, t := range h.Tensors {
			p.at[itemKey(kind == "model", t.Name)] = place{len(p.files), h.Size + t.Start}
		}
		head := h.Encode()
		p.files = append(p.files, plannedFile{name, head, h.Size + h.DataSize()})
		p.man.Files = append(p.man.Files, fileEntry{name, h.Size + h.DataSize(), sum(head)})
	}
	return slices.Concat(cuts...), nil
}

// eachPiece calls fn for every piece; k is its index among the pieces of its tensor. The order is the same on all
// ranks.
func (p *draft) eachPiece(fn func(model bool, t *tensorEntry, k int)) {
	each := func(model bool, list []tensorEntry) {
		for i := range list {
			for k := range list[i].Pieces {
				fn(model, &list[i], k)
			}
		}
	}
	each(true, p.man.Model)
	if p.man.Optimizer != nil {
		each(false, p.man.Optimizer.Tensors)
	}
}

// setHashes stores the hashes that each rank reported, in the order of its pieces.
func (p *draft) setHashes(hashes [][]byte) error {
	var err error
	p.eachPiece(func(_ bool, t *tensorEntry, k int) {
		x := &t.Pieces[k]
		if len(hashes[x.Rank]) < sha256.Size {
			err = fmt.Errorf("rank %d reported no hash of %s", x.Rank, t.Name)
			return
		}
		x.SHA256, hashes[x.Rank] = hex.EncodeToString(hashes[x.Rank][:sha256.Size]), hashes[x.Rank][sha256.Size:]
	})
	return err
}
