package tensortest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
)

const crossHead = 4

// attended is attention of queries x[0] over keys x[1] and values x[2], by the definition.
func attended(x []Array, o tensor.AttentionOptions) Array {
	q, k, v := x[0], x[1], x[2]
	y := Array{q.Dims, make([]float64, len(q.V))}
	heads, kv := q.Dims[2]/crossHead, k.Dims[2]/crossHead
	for b := range q.Dims[0] {
		for i := range q.Dims[1] {
			for h := range heads {
				at := (b*q.Dims[1]+i)*q.Dims[2] + h*crossHead
				key := func(j int) int { return (b*k.Dims[1]+j)*k.Dims[2] + h*kv/heads*crossHead }
				var p []float64
				sum := 0.0
				for j := range k.Dims[1] {
					if o.Causal && j > i+o.Offset {
						break
					}
					dot := 0.0
					for d := range crossHead {
						dot += q.V[at+d] * k.V[key(j)+d]
					}
					p = append(p, math.Exp(dot/math.Sqrt(crossHead)))
					sum += p[j]
				}
				for j, p := range p {
					for d := range crossHead {
						y.V[at+d] += p / sum * v.V[key(j)+d]
					}
				}
			}
		}
	}
	return y
}

// crossings are what attention over other keys is tested with: queries, keys, heads of queries and of keys.
var crossings = []struct {
	tq, tk, heads, kv int
	o                 tensor.AttentionOptions
}{
	{5, 3, 2, 2, tensor.AttentionOptions{}},
	{3, 5, 4, 2, tensor.AttentionOptions{Causal: true, Offset: 2}},
	{6, 4, 3, 1, tensor.AttentionOptions{Causal: true, Offset: -2}},
	{1, 40, 2, 1, tensor.AttentionOptions{Causal: true, Offset: 39}},
}

func crossDims(batch, tq, tk, heads, kv int) [][]int {
	return [][]int{{batch, tq, heads * crossHead}, {batch, tk, kv * crossHead}, {batch, tk, kv * crossHead}}
}

func attentionCases() (cases []ValueCase) {
	for _, c := range crossings {
		dims := [][][]int{crossDims(2, c.tq, c.tk, c.heads, c.kv), crossDims(0, c.tq, c.tk, c.heads, c.kv), crossDims(1, 0, c.tk, c.heads, c.kv), crossDims(1, c.tq, 0, c.heads, c.kv)}
		cases = append(cases, ValueCase{Name: fmt.Sprintf("cross attention of %d over %d, %d heads over %d, %+v", c.tq, c.tk, c.heads, c.kv, c.o), Dims: dims,
			F:    func(x []tensor.Tensor) tensor.Tensor { return tensor.CrossAttention(x[0], x[1], x[2], crossHead, c.o) },
			Want: func(x []Array) Array { return attended(x, c.o) }})
	}
	return cases
}

func attentionGrads() map[tensor.Op][]GradCase {
	var cases []GradCase
	for i, c := range crossings {
		if i == 1 {
			c.o.Drop, c.o.Layer = 0.4, 3
		}
		cases = append(cases, GradCase{Name: fmt.Sprintf("%d over %d, %+v", c.tq, c.tk, c.o),
			Shapes: func(r *rand.Rand) [][]int { return crossDims(1+r.IntN(2), c.tq, c.tk, c.heads, c.kv) },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return tensor.CrossAttention(x[0], x[1], x[2], crossHead, c.o)
			}})
	}
	return map[tensor.Op][]GradCase{tensor.OpCrossAttention: cases}
}
