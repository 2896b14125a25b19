package nn

import "github.com/ringo-ml/ringo/tensor"

// Matrix is a parameter with one or several matrices on top of each other.
type Matrix struct {
	W     *tensor.Param
	Parts []int // numbers of rows of the matrices; nil: W is one
}

// Matrices returns the weights of all Linears of a model, except that of the head, the layer whose outputs belong to classes or tokens.
// These are what optim.NewMuon updates. Embeddings, biases, norms, convolutions, adapters, routers and stacks of experts are not among
// them. If the head is the table of an Embedding, or there is none, head may be nil. It panics with a *tensor.Failure if another Linear has
// as many outputs as an Embedding has vectors: that is a head.
func Matrices(model any, head *tensor.Param) []Matrix {
	w := walk(model)
	tables := map[*tensor.Param]bool{}
	vectors := map[int]string{}
	for _, l := range w.layers {
		if e, ok := addressOf[Embedding](l.v); ok {
			tables[e.W] = true
			vectors[e.W.Global()[0]] = l.name
		}
	}
	var list []Matrix
	for _, l := range w.linears {
		if l.W == head || tables[l.W] || l.inner {
			continue
		}
		if table, ok := vectors[l.W.Global()[0]]; ok && head == nil && l.Parts == nil {
			fail("Matrices", "%q has as many outputs as %q has vectors: if it is the head, give its weight, and if not, the head's", l.name, table)
		}
		list = append(list, Matrix{l.W, l.Parts})
	}
	return list
}
