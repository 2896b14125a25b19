package tp_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
	"github.com/ringo-ml/ringo/tp"
)

// teacher is a classifier whose words ranks divide, on a NoGrad tape.
type teacher struct {
	*tensor.Tape
	logits, labels nn.T
	gather         tensor.Function
	loss           *tp.CrossEntropy
	norm           nn.Layer
	head           *nn.Linear
	row, bias      *tensor.Param // of a layer behind the words
}

func newTeacher(r *dist.Rank) teacher {
	row := nn.NewLinear(6, 2)
	c := teacher{Tape: tensor.NewTape(r.Device, tensor.NoGrad()), labels: tensor.FromSlice([]int64{0, 1, 2}, 3),
		norm: nn.NewLayerNorm(4), head: nn.NewLinear(4, 6), row: row.W, bias: row.B}
	c.head.B = nil // a bias makes LinearLoss compute the logits
	m := nn.Sequential{c.norm, c.head, row}
	disttest.OK(tp.Parallelize(m, tp.Config{Group: r.World}, func(p *tp.Parallel) {
		c.norm, c.gather, c.loss = p.Columns(c.norm, c.head), p.Logits(6), p.CrossEntropy(6)
		p.Row(row)
	}))
	nn.Init(m, r.Device, tensor.Float64, 1)
	x := tensor.FromSlice([]float64{1, 2, 3, 5, 4, 2, 1, 0, 0, 3, 1, 1}, 3, 4)
	c.logits = c.head.Forward(c.norm.Forward(c.Input(x.WithRows(tensor.Rows{Stride: 1, Total: 3}))))
	return c
}

// What needs all words is refused on a NoGrad tape as on one that trains: each rank would choose among its own words, and a student's loss
// cannot tell.
func TestTeacherOfAPart(t *testing.T) {
	const part = "is a part of the features: what is made of several of them needs those of the other ranks"
	const sum = "is a partial sum"
	for name, c := range map[string]struct {
		want string
		fn   func(c teacher, x nn.T)
	}{
		"argmax":       {part, func(_ teacher, x nn.T) { ops.ArgMax(x, -1) }},
		"hits":         {part, func(c teacher, x nn.T) { nn.Hits(x, c.labels) }},
		"max":          {part, func(_ teacher, x nn.T) { ops.Max(x, 1) }},
		"turned":       {part, func(_ teacher, x nn.T) { ops.ArgMax(x.Permute(1, 0), 0) }},
		"top_k":        {part, func(_ teacher, x nn.T) { ops.TopK(x, 2) }},
		"sort":         {part, func(_ teacher, x nn.T) { ops.Sort(x, -1, true) }},
		"softmax":      {part, func(_ teacher, x nn.T) { ops.Softmax(x) }},
		"log_softmax":  {part, func(_ teacher, x nn.T) { ops.LogSoftmax(x) }},
		"logsumexp":    {part, func(_ teacher, x nn.T) { ops.LogSumExp(x) }},
		"layer_norm":   {part, func(_ teacher, x nn.T) { ops.LayerNorm(x, nn.T{}, nn.T{}, 1e-5) }},
		"crossentropy": {part, func(c teacher, x nn.T) { nn.CrossEntropy(x, c.labels) }},
		"log of a sum": {sum, func(_ teacher, x nn.T) { x.Exp().Sum(-1).Log() }},
		"bias":         {sum, func(c teacher, x nn.T) { tensor.Linear(x, c.Use(c.row), c.Use(c.bias)) }},
		"gelu":         {sum, func(c teacher, x nn.T) { tensor.Linear(x, c.Use(c.row), nn.T{}).GELU() }},
		"quotient":     {sum, func(_ teacher, x nn.T) { x.Div(x.Sum(-1).Reshape(3, 1)) }},
		"normalize":    {part, func(_ teacher, x nn.T) { nn.Normalize(x) }},
	} {
		t.Run(name, func(t *testing.T) {
			disttest.EachFails(t, 2, c.want, func(r *dist.Rank) error {
				a := newTeacher(r)
				defer a.Close()
				return tensor.Try(func() { c.fn(a, a.logits) })
			})
		})
	}
}

// What is right of parts, and all of what has been gathered, is as on one rank.
func TestTeacherOfAll(t *testing.T) {
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		c := newTeacher(r)
		defer c.Close()
		x := c.Apply(c.gather, c.logits)
		require.Equal(t, 6, x.Dim(1))
		c.loss.Loss(c.logits, c.labels)
		c.logits.GELU().Sum(1).Scale(2).Sum()
		ops.Max(c.logits, 0) // of each word by itself
		nn.Hits(x, c.labels)
		ops.TopK(ops.Softmax(x), 2)
		nn.Normalize(x)
		return nil
	}))
}

// A student's labels are the same on all ranks that divide the words of its loss.
func TestLabelsOfAPart(t *testing.T) {
	for _, linear := range []bool{false, true} {
		for _, k := range []tensor.Kind{tensor.Cut, tensor.Own, tensor.Varying, tensor.Partial} {
			want := "labels are " + k.String() + " along an axis whose ranks divide the words"
			disttest.EachFails(t, 2, want, func(r *dist.Rank) error {
				c := newTeacher(r)
				defer c.Close()
				student := tensor.NewTape(r.Device)
				defer student.Close()
				x := student.Input(tensor.New(r.Device, tensor.Float64, 3, 4))
				y := tensor.FromSlice([]int64{0, 1, 2}, 3).WithTypes(tensor.Types{}.With(r.World.Axes(), k))
				return tensor.Try(func() {
					if linear {
						c.loss.LinearLoss(c.head, c.norm.Forward(x), y)
					} else {
						c.loss.Loss(c.head.Forward(c.norm.Forward(x)), y)
					}
				})
			})
		}
	}
}
