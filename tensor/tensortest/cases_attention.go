package tensortest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

const crossHead = 4

// attended is attention of queries x[0] over keys x[1] and values x[2] by its definition, with its lse.
func attended(x []Array, o ops.AttentionOptions) (y, lse Array) {
	q, k, v := x[0], x[1], x[2]
	heads, kv := q.Dims[2]/crossHead, k.Dims[2]/crossHead
	y, lse = Array{q.Dims, make([]float64, len(q.V))}, Array{Dims: []int{q.Dims[0], heads, q.Dims[1]}}
	lse.V = make([]float64, count(lse.Dims))
	for b := range q.Dims[0] {
		for i := range q.Dims[1] {
			for h := range heads {
				at := (b*q.Dims[1]+i)*q.Dims[2] + h*crossHead
				key := func(j int) int { return (b*k.Dims[1]+j)*k.Dims[2] + h*kv/heads*crossHead }
				p := make([]float64, k.Dims[1])
				sum := 0.0
				for j := range p {
					if !sees(o, b, i, j) {
						continue
					}
					dot := 0.0
					for d := range crossHead {
						dot += q.V[at+d] * k.V[key(j)+d]
					}
					dot *= cmp.Or(o.Scale, 1/math.Sqrt(crossHead))
					if o.SoftCap != 0 {
						dot = o.SoftCap * math.Tanh(dot/o.SoftCap)
					}
					p[j] = math.Exp(dot)
					sum += p[j]
				}
				lse.V[(b*heads+h)*q.Dims[1]+i] = math.Log(sum)
				for j, p := range p {
					for d := range crossHead {
						if p > 0 {
							y.V[at+d] += p / sum * v.V[key(j)+d]
						}
					}
				}
			}
		}
	}
	return y, lse
}

// crossing is a case of cross-attention: numbers of queries, of keys, of heads of queries and of heads of keys.
type crossing struct {
	tq, tk, heads, kv int
	masks             masks
	o                 ops.AttentionOptions
}

func (c crossing) name() string {
	return fmt.Sprintf("%d over %d, %d heads over %d, causal %v, %+v, %+v", c.tq, c.tk, c.heads, c.kv, c.o.Causal, c.masks,
		c.o.AttentionScores)
}

// dims are shapes of queries, keys and values, also with none of them.
func (c crossing) dims() [][][]int {
	return [][][]int{crossDims(2, c.tq, c.tk, c.heads, c.kv), crossDims(0, c.tq, c.tk, c.heads, c.kv), crossDims(1, 0, c.tk, c.heads, c.kv),
		crossDims(1, c.tq, 0, c.heads, c.kv)}
}

var crossings = []crossing{
	{1, 40, 2, 1, masks{}, ops.AttentionOptions{Causal: true, Offset: 39}},
	{3, 5, 4, 2, masks{}, ops.AttentionOptions{Causal: true, Offset: 2}},
	{5, 3, 2, 2, masks{}, ops.AttentionOptions{}},
	{6, 4, 3, 1, masks{}, ops.AttentionOptions{Causal: true, Offset: -2}},
	{3, 5, 2, 2, masks{lengths: true}, ops.AttentionOptions{}},
	{2, 7, 4, 2, masks{lengths: true, small: true}, ops.AttentionOptions{Causal: true, Offset: 4}},
	{5, 4, 2, 1, masks{docs: true}, ops.AttentionOptions{}},
	{6, 6, 2, 1, masks{docs: true, small: true}, ops.AttentionOptions{Causal: true}},
	{4, 5, 2, 2, masks{lengths: true, docs: true}, ops.AttentionOptions{Causal: true, Offset: 1}},
	{40, 40, 2, 1, masks{}, ops.AttentionOptions{Causal: true, AttentionScores: ops.AttentionScores{Window: 7}}},
	{3, 40, 2, 2, masks{}, ops.AttentionOptions{Causal: true, Offset: 45, AttentionScores: ops.AttentionScores{Window: 9}}},
	{6, 4, 3, 1, masks{}, ops.AttentionOptions{AttentionScores: ops.AttentionScores{SoftCap: 0.5, Scale: 0.8}}},
	{7, 9, 2, 1, masks{lengths: true, docs: true}, ops.AttentionOptions{Causal: true, Offset: 2,
		AttentionScores: ops.AttentionScores{Window: 3, SoftCap: 0.7}}},
}

func crossDims(batch, tq, tk, heads, kv int) [][]int {
	return [][]int{{batch, tq, heads * crossHead}, {batch, tk, kv * crossHead}, {batch, tk, kv * crossHead}}
}

func attentionCases() (cases []ValueCase) {
	for _, c := range crossings {
		cases = append(cases, ValueCase{Name: "cross attention of " + c.name(), Dims: c.dims(), Rounds: true,
			F: func(x []tensor.Tensor) tensor.Tensor {
				return ops.CrossAttention(x[0], x[1], x[2], crossHead, c.masks.of(c.o, x[0].Dim(0), x[0].Dim(1), x[1].Dim(1)))
			},
			Want: func(x []Array) Array {
				y, _ := attended(x, c.masks.of(c.o, x[0].Dims[0], x[0].Dims[1], x[1].Dims[1]))
				return y
			}})
	}
	return append(cases, lseCases()...)
}

func attentionGrads() map[tensor.Op][]GradCase {
	var cases []GradCase
	for i, c := range crossings {
		if i == 1 {
			c.o.Drop, c.o.Layer = 0.4, 3
		}
		cases = append(cases, GradCase{Name: c.name(),
			Shapes: func(r *rand.Rand) [][]int { return crossDims(1+r.IntN(2), c.tq, c.tk, c.heads, c.kv) },
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor {
				return ops.CrossAttention(x[0], x[1], x[2], crossHead, c.masks.of(c.o, x[0].Dim(0), c.tq, c.tk))
			}})
	}
	return map[tensor.Op][]GradCase{ops.OpCrossAttention: cases, tensor.OpSecond: lseGrads()}
}
