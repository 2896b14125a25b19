package ckpt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/ckpt/safetensors"
)

// plan is what all ranks derive from all claims: which files there will be, and who writes what to where.
type plan struct {
	man   manifest // complete but for hashes
	files []plannedFile
	at    map[string]place // of tensors, by key

	beside map[string][]byte // small files

	extents map[string][]extent // of the pieces of each tensor, by key; not of a conversion
}

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

// owned is a tensor with the claims of all ranks that list it.
type owned struct {
	claimItem
	ranks []int
	parts []claimItem // of these ranks
}

// newPlan returns the plan, or an error that says how the ranks' claims differ or what is missing.
func newPlan(claims []claim, rules Rules, fileBytes int64) (*plan, error) {
	if err := compare(claims); err != nil {
		return nil, err
	}
	p, err := planTensors(claims, rules, fileBytes)
	if err != nil {
		return nil, err
	}
	p.setState(claims)
	return p, nil
}

// setState plans what a save has beside tensors.
func (p *plan) setState(claims []claim) {
	first := claims[0]
	p.man.Step, p.man.Random, p.man.Extra, p.man.Base = first.Step, first.Random, first.Extra, first.Base
	p.setBeside(first.Files)
	if o := p.man.Optimizer; o != nil {
		o.Steps, o.LR, o.Scaler, o.Counts = first.Steps, first.LR, first.Scaler, map[string]int{}
		for _, c := range claims {
			maps.Copy(o.Counts, c.Counts)
		}
	}
}

// planTensors plans the tensors.
func planTensors(claims []claim, rules Rules, fileBytes int64) (*plan, error) {
	tensors, err := collect(claims)
	if err != nil {
		return nil, err
	}
	p := &plan{at: map[string]place{}, extents: map[string][]extent{}, man: manifest{Version: formatVersion, Ranks: len(claims)}}
	load := make([]int64, len(claims)) // bytes that each rank writes
	shares := 0                        // of tensors that are cut
	for _, t := range tensors {
		shares = max(shares, t.shares())
	}
	var model, opt []tensorEntry
	for _, t := range tensors {
		e := tensorEntry{Name: t.Name, DType: t.DType, Shape: t.Shape, Transposed: t.Transposed, Expert: t.Expert}
		extents, err := t.extents(load)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		for _, x := range extents {
			e.Pieces = append(e.Pieces, x.piece(t.Transposed))
		}
		p.extents[t.key()] = extents
		if e.TP = rules.find(t.paramName()); e.TP == nil {
			e.TP = t.rule(shares)
		}
		if e.TP != nil {
			if t.Transposed {
				e.TP = e.TP.transposed()
			}
			if _, err := e.TP.Boxes(t.Shape, 0, 1); err != nil {
				return nil, fmt.Errorf("%s: the rule does not fit: %w", t.Name, err)
			}
		}
		if t.Model {
			model = append(model, e)
		} else {
			opt = append(opt, e)
		}
	}
	if p.man.Model, err = p.layOut("model", model, fileBytes); err != nil {
		return nil, err
	}
	if claims[0].Counts == nil {
		return p, nil
	}
	p.man.Optimizer = &optimizerEntry{}
	p.man.Optimizer.Tensors, err = p.layOut("optimizer", opt, fileBytes)
	return p, err
}

// paramName returns the name of the parameter: the optimizer's state has that and a key behind the last dot.
func (c claimItem) paramName() string {
	if i := strings.LastIndexByte(c.Name, '.'); !c.Model && i >= 0 {
		return c.Name[:i]
	}
	return c.Name
}

// compare finds what must be the same on all ranks and is not.
func compare(claims []claim) error {
	var errs []error
	for r, c := range claims {
		if c.Err != "" {
			errs = append(errs, fmt.Errorf("rank %d: %s", r, c.Err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	first := claims[0]
	differ := func(r int, what string, mine, want any) error {
		return fmt.Errorf("ranks differ: rank %d has %s %v where rank 0 has %v", r, what, mine, want)
	}
	counts := map[string]int{}
	for r, c := range claims {
		switch {
		case !maps.Equal(c.Calls, first.Calls):
			return differ(r, "called", c.Calls, first.Calls)
		case c.Step != first.Step:
			return differ(r, "step", c.Step, first.Step)
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
		case !maps.EqualFunc(c.Files, first.Files, bytes.Equal):
			return differ(r, "files", sizes(c.Files), sizes(first.Files))
		case !equal(c.Base, first.Base):
			return differ(r, "base", c.Base, first.Base)
		case (c.Counts == nil) != (first.Counts == nil):
			return differ(r, "an optimizer:", c.Counts != nil, first.Counts != nil)
		}
		for name, n := range c.Counts {
			if have, ok := counts[name]; ok && have != n {
				return fmt.Errorf("ranks differ: rank %d has %d optimizer steps of %s where another one has %d", r, n, name, have)
			}
			counts[name] = n
		}
	}
	return nil
}

func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func text(state any) string {
	b, _ := json.Marshal(state) // of JSON and numbers: cannot fail
	return string(b)
}

// collect joins the claims about each tensor, in the order in which rank 0 lists them, then the others.
func collect(claims []claim) ([]*owned, error) {
	var order []*owned
	byKey := map[string]*owned{}
	for r, c := range claims {
		for _, x := range c.Items {
			o := byKey[x.key()]
			if o == nil {
				o = &owned{claimItem: x}
				byKey[x.key()] = o
				order = append(order, o)
			}
			if !o.sameTensor(x) {
				return nil, fmt.Errorf("ranks differ: rank %d has %s as %s where rank %d has %s", r, x.Name, x.kind(), o.ranks[0], o.kind())
			}
			o.ranks, o.parts = append(o.ranks, r), append(o.parts, x)
		}
	}
	return order, nil
}

// layOut cuts the tensors into files of at most fileBytes, where a tensor allows it, and adds them to the plan.
func (p *plan) layOut(kind string, tensors []tensorEntry, fileBytes int64) ([]tensorEntry, error) {
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

// eachPiece calls fn for every piece, the kth of its tensor, in an order that is the same on all ranks.
func (p *plan) eachPiece(fn func(model bool, t *tensorEntry, k int)) {
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

// setHashes puts in the hashes that each rank reported for its pieces.
func (p *plan) setHashes(hashes [][]string) error {
	var err error
	p.eachPiece(func(_ bool, t *tensorEntry, k int) {
		x := &t.Pieces[k]
		if len(hashes[x.Rank]) == 0 {
			err = fmt.Errorf("rank %d reported no hash of %s", x.Rank, t.Name)
			return
		}
		x.SHA256, hashes[x.Rank] = hashes[x.Rank][0], hashes[x.Rank][1:]
	})
	return err
}
