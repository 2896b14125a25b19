package tensortest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Sizes of logits that are much larger than all else of their step.
const logitRows, logitWidth = 24, 3

// logitsCase is a step with logits z.
type logitsCase struct {
	name string
	over bool // the gradient is written over z
	step func(s *logitsStep, z tensor.Tensor)
}

// logitsStep is a step on one tape. Its functions note what was read.
type logitsStep struct {
	tape   *tensor.Tape
	labels tensor.Tensor
	w      *tensor.Param
	x      tensor.Tensor
	read   [][]float64
}

func (s *logitsStep) loss(z tensor.Tensor) tensor.Tensor {
	return ops.CrossEntropy(z, s.labels, ops.CrossEntropyOptions{})
}

func (s *logitsStep) note(x tensor.Tensor) { s.read = append(s.read, tensor.Floats(x)) }

// head computes other logits of the same weight.
func (s *logitsStep) head() tensor.Tensor {
	return tensor.Linear(s.x, s.tape.Use(s.w), tensor.Tensor{})
}

// zLoss is a loss of ST-MoE that reads logits, too.
func zLoss(z tensor.Tensor) tensor.Tensor {
	return ops.LogSumExp(z).Square().Mean().Cast(tensor.Float32)
}

// logitsCases read logits, and losses, before, in and after Backward.
var logitsCases = []logitsCase{
	{"loss", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		s.tape.Backward(l)
		s.note(l)
	}},
	{"loss read before", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		s.note(l)
		s.tape.Backward(l)
		s.note(l)
	}},
	{"logits read after the loss", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		s.note(z)
		right := s.tape.Keep(ops.ArgMax(z, -1))
		s.tape.Backward(l)
		s.note(right)
	}},
	{"scaled", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		s.tape.Backward(l, tensor.Scale(8))
		s.note(l)
	}},
	{"part of a loss", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.tape.Keep(s.loss(z))
		s.tape.Backward(l.Affine(0.5, 0))
		s.note(l)
	}},
	{"view of a loss", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z).Reshape(1)
		s.tape.Backward(l)
		s.note(l)
	}},
	{"detached loss", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		d := l.Detach()
		s.tape.Backward(l)
		s.note(d)
	}},
	{"loss that only weighs", false, func(s *logitsStep, z tensor.Tensor) {
		l := s.tape.Keep(s.loss(z))
		s.tape.Backward(tensor.WithAux(s.tape.Use(s.w).Square().Sum(), l, 0.5))
		s.note(l)
	}},
	{"loss without a gradient", false, func(s *logitsStep, z tensor.Tensor) {
		other := s.tape.Use(s.w).Square().Sum()
		l := s.tape.Keep(s.loss(z))
		s.tape.Backward(other)
		s.note(l)
	}},
	{"view of a loss without a gradient", false, func(s *logitsStep, z tensor.Tensor) {
		other := s.tape.Use(s.w).Square().Sum()
		l := s.loss(z).Detach()
		s.tape.Backward(other)
		s.note(l)
	}},
	{"rows", true, func(s *logitsStep, z tensor.Tensor) {
		s.tape.Backward(ops.CrossEntropy(z, s.labels, ops.CrossEntropyOptions{PerRow: true}).Square().Sum())
	}},
	{"two losses", false, func(s *logitsStep, z tensor.Tensor) {
		s.tape.Backward(s.loss(z).Add(s.loss(z).Square()))
	}},
	{"a loss and another reader", false, func(s *logitsStep, z tensor.Tensor) {
		s.tape.Backward(s.loss(z).Add(zLoss(z)))
	}},
	{"another reader and a loss", false, func(s *logitsStep, z tensor.Tensor) {
		other := zLoss(z)
		s.tape.Backward(other.Add(s.loss(z)))
	}},
	{"logits with a given gradient", false, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		one, more := Of(l.DType(), []float64{1}), Of(z.DType(), ramp(z.Len()), z.Shape().Dims...)
		s.tape.BackwardFrom([]tensor.Tensor{l, z}, []tensor.Tensor{s.tape.Input(one), s.tape.Input(more)})
	}},
	{"kept logits", false, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(s.tape.Keep(z))
		s.tape.Backward(l)
		s.note(z)
	}},
	{"detached logits", false, func(s *logitsStep, z tensor.Tensor) {
		l, d := s.loss(z), z.Detach()
		s.tape.Backward(l)
		s.note(d)
	}},
	{"view of logits", false, func(s *logitsStep, z tensor.Tensor) {
		s.tape.Backward(s.loss(z.Reshape(2, logitRows/2, z.Dim(1))))
	}},
	{"logits that their rule reads", false, func(s *logitsStep, z tensor.Tensor) { s.tape.Backward(s.loss(z.Affine(0.25, 0).Exp())) }},
	{"logits that their rule reads, made before another operation", false, func(s *logitsStep, z tensor.Tensor) {
		z = z.Affine(0.25, 0).Exp()
		other := s.tape.Use(s.w).Square().Sum().Cast(tensor.Float32)
		s.tape.Backward(s.loss(z).Add(other))
	}},
	{"in a checkpoint", false, func(s *logitsStep, z tensor.Tensor) {
		l := s.tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return s.loss(tensor.Linear(in[0], in[1], tensor.Tensor{})) }, s.x,
			s.tape.Use(s.w))
		s.tape.Backward(l)
		s.note(l)
	}},
	{"before a checkpoint", false, func(s *logitsStep, z tensor.Tensor) {
		c := s.tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return zLoss(in[0]) }, z)
		s.tape.Backward(s.loss(z).Add(c))
	}},
	{"read by a checkpoint", false, func(s *logitsStep, z tensor.Tensor) {
		s.tape.Backward(s.tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return s.loss(in[0]) }, z))
	}},
	{"in a scope", false, func(s *logitsStep, z tensor.Tensor) {
		l := s.tape.Scope(func(in ...tensor.Tensor) tensor.Tensor { return s.loss(tensor.Linear(in[0], in[1], tensor.Tensor{})) }, s.x,
			s.tape.Use(s.w))
		s.tape.Backward(l)
		s.note(l)
	}},
	{"two microbatches", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		s.tape.Backward(l, tensor.More())
		s.note(l)
		l = s.loss(s.head())
		s.tape.Backward(l)
		s.note(l)
	}},
	{"weights put off", true, func(s *logitsStep, z tensor.Tensor) {
		l := s.loss(z)
		s.tape.Backward(l, tensor.DeferWeights())
		s.note(l)
		s.tape.RunDeferred()
	}},
	{"made and saved by a Function", false, func(s *logitsStep, z tensor.Tensor) {
		s.tape.Backward(s.loss(s.tape.Apply(squareRoots{}, z.Square())))
	}},
}

// squareRoots reads its output in Backward.
type squareRoots struct{}

func (squareRoots) Name() string { return "square_roots" }

func (squareRoots) Forward(c *tensor.Ctx, in []tensor.Tensor) tensor.Tensor {
	y := in[0].Affine(1, 0.5).Sqrt()
	c.Save(y)
	return y
}

func (squareRoots) Backward(c *tensor.Ctx, g tensor.Tensor, grads []tensor.Tensor) {
	grads[0] = g.Div(c.Saved(0)).Affine(0.5, 0)
}

func ramp(n int) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(i%17) / 1024
	}
	return v
}

// run does the step of c on dev twice and returns what it read, the weight's gradient last, and the most step memory. If apart, the
// gradient of the logits gets memory of its own.
func (c logitsCase) run(dev tensor.Device, d tensor.DType, classes int, apart bool) (read [][]float64, peak int) {
	w := tensor.NewParam(tensor.UniformInit(-1, 1), classes, logitWidth)
	w.SetName("w")
	w.Make(dev, d, 5)
	labels := make([]int64, logitRows)
	for i := range labels {
		labels[i] = int64(i * i * 31 % classes)
	}
	tape := tensor.NewTape(dev)
	defer tape.Close()
	s := &logitsStep{tape: tape, w: w, labels: tape.Input(tensor.FromSlice(labels, logitRows))}
	s.x = tape.Input(On(dev, Of(d, ramp(logitRows*logitWidth), logitRows, logitWidth)))
	z := s.head()
	if apart {
		tape.Keep(z)
	}
	c.step(s, z)
	s.note(w.Grad)
	_, peak = tape.Memory()
	return s.read, peak
}

// logits: whoever reads them, a step reads and computes the same where their gradient may be written over them as where it is not. Where
// nobody else reads them, it takes the memory of one tensor less. In the short form the two types take turns.
func (s *Suite) logits(t *testing.T) {
	classes := s.Share(t, 2051, 515)
	for k, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		for i, c := range logitsCases {
			if i%2 != k && !long(t) {
				continue
			}
			t.Run(fmt.Sprint(c.name, " ", d), func(t *testing.T) {
				dev := s.Device(t)
				want, _ := c.run(s.spy, d, classes, true)
				apart, most := c.run(dev, d, classes, true)
				got, peak := c.run(dev, d, classes, false)
				require.Equal(t, apart, got, "with and without memory of its own")
				for i := range want {
					RequireClose(t, want[i], got[i], s.GradTol(d), fmt.Sprint("what was read, ", i))
				}
				if bytes := logitRows * classes * d.Size(); c.over {
					assert.InDelta(t, bytes, most-peak, float64(bytes)/8, "bytes that are saved")
				}
			})
		}
	}
}
