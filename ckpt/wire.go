package ckpt

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// A large model has thousands of tensors, and a job hundreds of ranks. What ranks send to each other is in package gob's
// form, because decoding JSON would take most of the planning time.

// gather returns on rank 0 the values of all ranks, in rank order, and nil on the other ranks. It is collective.
func gather[V any](g *dist.Group, mine V) ([]V, error) {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(mine); err != nil {
		g.Abort(err)
		return nil, err
	}
	sizes := make([]int64, g.Size())
	if err := g.AllGather(tensor.FromSlice(sizes, len(sizes)), tensor.FromSlice([]int64{int64(text.Len())}, 1)).Wait(); err != nil {
		return nil, err
	}
	n := int(slices.Max(sizes))
	var b []byte
	var dst tensor.Tensor
	if g.Rank() == 0 {
		b = make([]byte, n*len(sizes))
		dst = tensor.FromSlice(b, len(b))
	}
	src := append(make([]byte, 0, n), text.Bytes()...)[:n]
	if err := g.Gather(dst, tensor.FromSlice(src, n), 0).Wait(); err != nil || g.Rank() != 0 {
		return nil, err
	}
	all := make([]V, len(sizes))
	for r := range all {
		if err := gob.NewDecoder(bytes.NewReader(b[r*n:][:n])).Decode(&all[r]); err != nil {
			err = fmt.Errorf("rank %d: %w", r, err)
			g.Abort(err) // the other ranks wait for what rank 0 makes of it
			return nil, err
		}
	}
	return all, nil
}

// scatter returns on each rank its element of all, which rank 0 gives. It is collective.
func scatter[V any](g *dist.Group, all []V) (mine V, err error) {
	sizes := make([]int64, g.Size())
	texts := make([]bytes.Buffer, len(all))
	for r := range all {
		if err := gob.NewEncoder(&texts[r]).Encode(all[r]); err != nil {
			g.Abort(err)
			return mine, err
		}
		sizes[r] = int64(texts[r].Len())
	}
	if err := g.Broadcast(tensor.FromSlice(sizes, len(sizes)), 0).Wait(); err != nil {
		return mine, err
	}
	n := int(slices.Max(sizes))
	var src tensor.Tensor
	if g.Rank() == 0 {
		b := make([]byte, n*len(sizes))
		for r := range texts {
			copy(b[r*n:], texts[r].Bytes())
		}
		src = tensor.FromSlice(b, len(b))
	}
	text := make([]byte, n)
	if err := g.Scatter(tensor.FromSlice(text, n), src, 0).Wait(); err != nil {
		return mine, err
	}
	return mine, gob.NewDecoder(bytes.NewReader(text)).Decode(&mine)
}
