package ckpt

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// A large model has thousands of tensors, and a job hundreds of ranks. Plans are sent in a binary form, because
// decoding JSON would take most of the planning time.

// wire encodes values, or decodes them if reads is set. Each type has one function for both directions.
type wire struct {
	b     []byte
	reads bool
	err   error // of decoding
}

func (w *wire) int(x *int) {
	if !w.reads {
		w.b = binary.AppendVarint(w.b, int64(*x))
		return
	}
	v, n := binary.Varint(w.b)
	if n <= 0 {
		w.b, w.err = nil, errors.New("a plan ends too early")
		return
	}
	*x, w.b = int(v), w.b[n:]
}

func (w *wire) bool(x *bool) {
	n := 0
	if *x {
		n = 1
	}
	w.int(&n)
	*x = n != 0
}

// length encodes or decodes the number of elements that follow. Each of them has at least one byte.
func (w *wire) length(n int) int {
	w.int(&n)
	if w.reads && (n < 0 || n > len(w.b)) {
		w.b, w.err = nil, fmt.Errorf("a plan has a list of %d elements", n)
		return 0
	}
	return n
}

func (w *wire) text(x *string) {
	n := w.length(len(*x))
	if !w.reads {
		w.b = append(w.b, *x...)
		return
	}
	*x, w.b = string(w.b[:n]), w.b[n:]
}

// ints decodes an empty list as a list that is not nil, because manifests need [] and not null.
func (w *wire) ints(x *[]int) {
	n := w.length(len(*x))
	if w.reads {
		*x = make([]int, n)
	}
	for i := range *x {
		w.int(&(*x)[i])
	}
}

func wireList[E any](w *wire, x *[]E, one func(e *E)) {
	n := w.length(len(*x))
	if w.reads && n > 0 {
		*x = make([]E, n)
	}
	for i := range *x {
		one(&(*x)[i])
	}
}

func (w *wire) box(x *tensor.Box) {
	w.ints(&x.Lo)
	w.ints(&x.Hi)
}

// gather returns on rank 0 the values of all ranks, in rank order, and nil on the other ranks. It is collective.
func gather(g *dist.Group, mine []byte) ([][]byte, error) {
	sizes := make([]int64, g.Size())
	if err := g.AllGather(tensor.FromSlice(sizes, len(sizes)), tensor.FromSlice([]int64{int64(len(mine))}, 1)).Wait(); err != nil {
		return nil, err
	}
	n := int(slices.Max(sizes))
	var all []byte
	var dst tensor.Tensor
	if g.Rank() == 0 {
		all = make([]byte, n*len(sizes))
		dst = tensor.FromSlice(all, len(all))
	}
	src := append(make([]byte, 0, n), mine...)[:n]
	if err := g.Gather(dst, tensor.FromSlice(src, n), 0).Wait(); err != nil || g.Rank() != 0 {
		return nil, err
	}
	out := make([][]byte, len(sizes))
	for r, size := range sizes {
		out[r] = all[r*n:][:size]
	}
	return out, nil
}

// gatherObjects is gather for small values, which it sends as JSON.
func gatherObjects[V any](g *dist.Group, mine V) ([]V, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		g.Abort(err)
		return nil, err
	}
	texts, err := gather(g, text)
	all := make([]V, len(texts))
	for r, text := range texts {
		if err := json.Unmarshal(text, &all[r]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return all, err
}

// scatter returns on each rank its element of all, which rank 0 gives. It is collective.
func scatter(g *dist.Group, all [][]byte) ([]byte, error) {
	sizes := make([]int64, g.Size())
	for r, b := range all {
		sizes[r] = int64(len(b))
	}
	if err := g.Broadcast(tensor.FromSlice(sizes, len(sizes)), 0).Wait(); err != nil {
		return nil, err
	}
	n := int(slices.Max(sizes))
	var src tensor.Tensor
	if g.Rank() == 0 {
		b := make([]byte, n*len(sizes))
		for r, x := range all {
			copy(b[r*n:], x)
		}
		src = tensor.FromSlice(b, len(b))
	}
	mine := make([]byte, n)
	err := g.Scatter(tensor.FromSlice(mine, n), src, 0).Wait()
	return mine[:sizes[g.Rank()]], err
}
