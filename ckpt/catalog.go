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
	storage.Training                         // its optimizer has no tensors
	Hash             string                  // of the other fields, which must be the same on all ranks
	ManifestHash     string                  // of ringo.json, which describes the pieces
	Tensors          map[string]tensor.Shape // by key
	Foreign          map[string]string       // by key: types that package tensor has not
}

func newCatalog(src *storage.Reader) (catalog, error) {
	c := catalog{Tensors: map[string]tensor.Shape{}, Foreign: map[string]string{}}
	for key, x := range src.Tensors {
		d, ok := storage.DTypeOf(x.DType)
		if !ok {
			d, c.Foreign[key] = tensor.NumDTypes, string(x.DType)
		}
		c.Tensors[key] = tensor.Shape{DType: d, Dims: x.Shape}
	}
	c.ManifestHash = src.ManifestHash
	if src.Manifest != nil {
		c.Training = src.Manifest.Training
	}
	if c.Optimizer != nil {
		o := *c.Optimizer
		o.Tensors, c.Optimizer = nil, &o
	}
	text, err := json.Marshal(c)
	c.Hash = storage.Sum(text)
	return c, err
}

// agree returns an error if the ranks do not read the same checkpoint. mine is this rank's error from opening it.
func (l *loader) agree(mine error) (err error) {
	if l.c.Strategy == Broadcast {
		l.cat, err = dist.OnRank0(l.g, func() (catalog, error) { return l.cat, mine })
		return err
	}
	if err := gatherErrors(l.g, mine); err != nil || l.g == nil {
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
