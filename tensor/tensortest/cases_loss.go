package tensortest

import (
	"math"
	"math/rand/v2"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// lossCase is a call of CrossEntropy. labels is nil for soft targets: the softmax of the second input.
type lossCase struct {
	name      string
	labels    []int64
	weights   bool
	smoothing float64
	ignore    *int64
	perRow    bool
	count     float64
}

func generalLosses() []lossCase {
	labels, some, ignore := []int64{1, 3, 0, 1, 2}, []int64{1, -7, 0, -7, 2}, int64(-7)
	return []lossCase{
		{name: "rows", labels: labels, perRow: true},
		{name: "rows, smoothing, ignored", labels: some, perRow: true, smoothing: 0.2, ignore: &ignore},
		{name: "weights", labels: labels, weights: true},
		{name: "weights, ignored", labels: some, weights: true, ignore: &ignore},
		{name: "weights, ignored, rows", labels: some, weights: true, ignore: &ignore, perRow: true},
		{name: "weights, ignored, smoothing", labels: some, weights: true, ignore: &ignore, smoothing: 0.1},
		{name: "weights, counted", labels: labels, weights: true, smoothing: 0.3, count: 17},
		{name: "soft"},
		{name: "soft, smoothing, weights", smoothing: 0.1, weights: true},
		{name: "soft, rows", perRow: true, weights: true},
		{name: "soft, counted", count: 9},
	}
}

// weightOf is the weight of class c.
func weightOf(c int) float64 { return 0.5 + 0.75*float64(c) }

// call computes the case for logits [5, classes].
func (c lossCase) call(x []tensor.Tensor) tensor.Tensor {
	classes := x[0].Dim(-1)
	o := ops.CrossEntropyOptions{Smoothing: c.smoothing, Ignore: c.ignore, PerRow: c.perRow, Count: c.count}
	if c.weights {
		w := make([]float64, classes)
		for i := range w {
			w[i] = weightOf(i)
		}
		o.Weights = Of(tensor.Float32, w, classes)
		if x[0].DType() == tensor.Float64 {
			o.Weights = Of(tensor.Float64, w, classes)
		}
	}
	if c.labels == nil {
		if x[1].DType().IsHalf() {
			x[1] = x[1].Cast(tensor.Float32)
		}
		return ops.CrossEntropy(x[0], ops.Softmax(x[1]), o)
	}
	return ops.CrossEntropy(x[0], tensor.FromSlice(c.labels, len(c.labels)), o)
}

// want computes the same with plain loops, by the formulas of torch.nn.CrossEntropyLoss.
func (c lossCase) want(x []Array) Array {
	classes := x[0].Dims[1]
	losses, sum, count := make([]float64, 5), 0.0, 0.0
	for r := range losses {
		line := x[0].V[r*classes:][:classes]
		q, weight := make([]float64, classes), 1.0
		switch {
		case c.labels == nil:
			q = softmaxOf(x[1].V[r*classes:][:classes])
		case c.ignore != nil && c.labels[r] == *c.ignore:
			continue
		default:
			q[c.labels[r]] = 1
			if c.weights {
				weight = weightOf(int(c.labels[r]))
			}
		}
		for i := range q {
			w := 1.0
			if c.weights {
				w = weightOf(i)
			}
			q[i] = q[i]*(1-c.smoothing) + c.smoothing/float64(classes)
			losses[r] -= w * q[i] * (line[i] - logSumExpOf(line))
		}
		sum, count = sum+losses[r], count+weight
	}
	if c.perRow {
		return Array{[]int{5}, losses}
	}
	if c.count != 0 {
		count = c.count
	}
	return Array{nil, []float64{sum / count}}
}

func generalLossCases() (cs []ValueCase) {
	for _, l := range generalLosses() {
		dims := [][][]int{{{5, 4}}, {{5, 40}}}
		if l.labels == nil {
			dims = [][][]int{{{5, 4}, {5, 4}}, {{5, 40}, {5, 40}}}
		}
		cs = append(cs, ValueCase{Name: "cross_entropy " + l.name, Loss: true, Dims: dims, F: l.call, Want: l.want})
	}
	return cs
}

func generalLossGrads() map[tensor.Op][]GradCase {
	all := map[tensor.Op][]GradCase{}
	for _, l := range generalLosses() {
		op := ops.OpCrossEntropyRows
		if l.labels == nil || l.weights && l.smoothing != 0 {
			op = ops.OpLogSoftmax
		}
		shapes := func(r *rand.Rand) [][]int {
			d := []int{5, 4 + r.IntN(3)}
			if l.labels == nil {
				return [][]int{d, d}
			}
			return [][]int{d}
		}
		all[op] = append(all[op], GradCase{Name: "cross_entropy " + l.name, Shapes: shapes, Hi: math.Sqrt2,
			F: func(_ *tensor.Tape, x []tensor.Tensor) tensor.Tensor { return l.call(x) }})
	}
	return all
}
