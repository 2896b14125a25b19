package ckpt

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/ranks"
	"github.com/ringo-ml/ringo/tensor"
)

// catalog is everything in a checkpoint except the data. It can be sent to other ranks.
type catalog struct {
	Err       string
	Hash      string // of the fields that must be the same on all ranks
	Manifest  string // hash of ringo.json, which describes the pieces
	Step      int
	Random    *tensor.TapeState
	Model     map[string]tensor.Shape
	Optimizer map[string]tensor.Shape
	Opt       *storage.OptimizerEntry // without tensors; nil: none
	Extra     map[string]json.RawMessage
	Base      *Base
}

func newCatalog(src *storage.Reader, err error) catalog {
	c := catalog{Model: map[string]tensor.Shape{}, Optimizer: map[string]tensor.Shape{}}
	if err != nil {
		c.Err = err.Error()
		return c
	}
	shape := func(x *storage.Tensor) tensor.Shape {
		d, ok := storage.DTypeOf(x.DType)
		if !ok {
			d = tensor.DType(255)
		}
		return tensor.Shape{DType: d, Dims: x.Shape}
	}
	for _, x := range src.Model {
		c.Model[x.Name] = shape(x)
	}
	for _, x := range src.Optimizer {
		c.Optimizer[x.Name] = shape(x)
	}
	c.Manifest = src.ManifestHash
	if src.Manifest != nil {
		c.Step, c.Random, c.Extra, c.Base = src.Manifest.Step, src.Manifest.Random, src.Manifest.Extra, src.Manifest.Base
		if o := src.Manifest.Optimizer; o != nil {
			c.Opt = &storage.OptimizerEntry{Steps: o.Steps, LR: o.LR, Scaler: o.Scaler, Counts: o.Counts}
		}
	}
	text, err := json.Marshal(c)
	if err != nil {
		c.Err = err.Error()
	}
	c.Hash = storage.Sum(text)
	return c
}

// agree returns an error if the ranks do not read the same checkpoint.
func (l *loader) agree() error {
	if l.c.Strategy == Broadcast {
		var err error
		if l.cat, err = dist.BroadcastObject(l.g, l.cat, 0); err != nil {
			return err
		}
		if l.cat.Err != "" {
			return errors.New(l.cat.Err)
		}
		return nil
	}
	if err := gatherErrors(l.g, asError(l.cat.Err)); err != nil || l.g == nil {
		return err
	}
	hashes, err := dist.AllGatherObject(l.g, l.cat.Hash)
	if err != nil {
		return err
	}
	for r, h := range hashes {
		if h != hashes[0] {
			return fmt.Errorf("rank %d and rank 0 see different checkpoints there", r)
		}
	}
	return nil
}

func asError(s string) error {
	if s == "" {
		return nil
	}
	return errors.New(s)
}

// gatherErrors returns the errors of all ranks, the same on every rank. Equal errors of several ranks appear once.
// Without a group, it returns mine.
func gatherErrors(g *dist.Group, mine error) error {
	if g == nil {
		return mine
	}
	s := ""
	if mine != nil {
		s = mine.Error()
	}
	all, err := dist.AllGatherObject(g, s)
	if err != nil {
		return errors.Join(mine, err)
	}
	var order []string
	by := map[string][]int{}
	for r, s := range all {
		if s == "" {
			continue
		}
		if by[s] == nil {
			order = append(order, s)
		}
		by[s] = append(by[s], r)
	}
	var errs []error
	for _, s := range order {
		if len(by[s]) == len(all) {
			errs = append(errs, errors.New(s))
		} else {
			errs = append(errs, fmt.Errorf("%s: %s", ranks.Names(by[s]...), s))
		}
	}
	return errors.Join(errs...)
}
