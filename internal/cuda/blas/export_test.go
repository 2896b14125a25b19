package blas

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/cuda"
)

// Tune makes the handle time algorithms, and keep its choices in a folder.
func (h *Handle) Tune(folder string) { h.folder = folder }

// Folder is where choices are kept.
func (h *Handle) Folder() string { return h.folder }

// SetTimer makes f time what it is given.
func (h *Handle) SetTimer(f func(run func() error) (ms float32, err error)) {
	h.timed = func(_ *cuda.Stream, run func() error) (float32, error) { return f(run) }
}

// Algorithm returns which of the candidates for a product is used, and how many there are.
func (h *Handle) Algorithm(g *Gemm) (at, of int) {
	p := h.plans[g.key()]
	return slices.IndexFunc(p.found, func(r heuristic) bool { return r.algo == p.algo.algo }), len(p.found)
}

// ChoicePath is the file of a choice.
func (h *Handle) ChoicePath(g *Gemm) string { return h.choicePath(g) }
