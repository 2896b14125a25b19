package measure

import (
	"errors"
	"fmt"
	"math"

	"github.com/ringo-ml/ringo/tensor"
)

// head is the last head of the last sequence of causal attention. Its outputs and gradients are checked at some positions.
type head struct {
	qkv, gout        tensor.Tensor // [batch, steps, 3·width], [batch, steps, width]
	steps, width, hd int
}

// loose is the bound of attention: on tensor cores, probabilities have 8 bits.
var loose = bound{1. / 64, 1. / 32}

// at reads the head's features at a position of a tensor with rows of so many features.
func (h *head) at(x tensor.Tensor, position, features, end int) []float64 {
	rows := x.Len() / features
	return part(x, (rows-h.steps+position)*features+end-h.hd, h.hd)
}

func (h *head) query(i int) []float64 { return h.at(h.qkv, i, 3*h.width, h.width) }
func (h *head) keys() [][]float64     { return h.all(2 * h.width) }
func (h *head) values() [][]float64   { return h.all(3 * h.width) }

func (h *head) all(end int) (rows [][]float64) {
	for i := range h.steps {
		rows = append(rows, h.at(h.qkv, i, 3*h.width, end))
	}
	return rows
}

// scalar is the product of two vectors.
func scalar(x, y []float64) (sum float64) {
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// add is to += f·x.
func add(to []float64, f float64, x []float64) {
	for i := range to {
		to[i] += f * x[i]
	}
}

// attend returns the probabilities of the keys that query i sees, and its output.
func (h *head) attend(i int, k, v [][]float64) (p, out []float64) {
	q := h.query(i)
	p, out = make([]float64, i+1), make([]float64, h.hd)
	for j := range p {
		p[j] = scalar(q, k[j]) / math.Sqrt(float64(h.hd))
	}
	softmaxRow(p, nil, nil, nil)
	for j := range p {
		add(out, p[j], v[j])
	}
	return p, out
}

// outputs checks the outputs at some positions.
func (h *head) outputs(out tensor.Tensor) (failed error) {
	k, v := h.keys(), h.values()
	for _, i := range []int{0, h.steps / 2, h.steps - 1} {
		_, want := h.attend(i, k, v)
		if err := loose.near(h.at(out, i, h.width, h.width), want); err != nil {
			failed = errors.Join(failed, fmt.Errorf("output of position %d: %w", i, err))
		}
	}
	return failed
}

// behind is how many of the last queries see the key whose gradient is checked.
const behind = 20

// gradients checks the gradients of the last query, and of a key and a value near the end.
func (h *head) gradients(grad tensor.Tensor) (failed error) {
	k, v, scale := h.keys(), h.values(), 1/math.Sqrt(float64(h.hd))
	key := h.steps - behind
	gq, gk, gv := make([]float64, h.hd), make([]float64, h.hd), make([]float64, h.hd)
	for i := key; i < h.steps; i++ {
		g := h.at(h.gout, i, h.width, h.width)
		p, out := h.attend(i, k, v)
		less := scalar(g, out)
		add(gv, p[key], g)
		add(gk, scale*p[key]*(scalar(g, v[key])-less), h.query(i))
		if i == h.steps-1 {
			for j := range p {
				add(gq, scale*p[j]*(scalar(g, v[j])-less), k[j])
			}
		}
	}
	for _, c := range []struct {
		what          string
		position, end int
		want          []float64
	}{{"query", h.steps - 1, h.width, gq}, {"key", key, 2 * h.width, gk}, {"value", key, 3 * h.width, gv}} {
		if err := loose.near(h.at(grad, c.position, 3*h.width, c.end), c.want); err != nil {
			failed = errors.Join(failed, fmt.Errorf("gradient of the %s of position %d: %w", c.what, c.position, err))
		}
	}
	return failed
}
