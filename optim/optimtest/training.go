package optimtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/tensortest"
)

var host = tensor.FromSlice([]uint8{0}, 1).Device()

// suite runs cases on a device and on the CPU.
type suite struct{ *tensortest.Suite }

// Run compares a device with the CPU, as tensortest.Run does: the results of optimizers for given gradients, and the losses of two models
// in training.
func Run(t *testing.T, newDevice func(t *testing.T) tensor.Device, o tensortest.Options) {
	s := &suite{tensortest.NewSuite(newDevice, o)}
	t.Run("optimizers", s.optimizers)
	t.Run("training", s.training)
	t.Run("steady step", s.steady)
	t.Run("every kernel ran", func(t *testing.T) {
		s.RequireRan(t, func(op tensor.Op) bool { return slices.Contains(tensortest.OptimizerOps, op) })
	})
}

// optimizerCases are functions that make optimizers.
func optimizerCases() map[string]func(ps nn.Params) *optim.Optimizer {
	return map[string]func(ps nn.Params) *optim.Optimizer{
		"sgd": func(ps nn.Params) *optim.Optimizer { return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1}) },
		"sgd, momentum": func(ps nn.Params) *optim.Optimizer {
			return optim.NewSGD(ps, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01})
		},
		"adam, clipped": func(ps nn.Params) *optim.Optimizer {
			return optim.NewAdam(ps, optim.AdamConfig{LR: 0.01, WeightDecay: 0.1, Clip: 0.3})
		},
		"adamw, groups": func(ps nn.Params) *optim.Optimizer {
			return optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Groups: []optim.Group{{Match: optim.Vectors}}})
		},
		"adamw, scaled and clipped": func(ps nn.Params) *optim.Optimizer {
			return optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.01, Clip: 2, Scaler: &optim.Scaler{Scale: 8}})
		},
		"adafactor": func(ps nn.Params) *optim.Optimizer {
			return optim.NewAdafactor(ps, optim.AdafactorConfig{LR: 0.1, WeightDecay: 0.1, Clip: 2, Scaler: &optim.Scaler{Scale: 8}})
		},
	}
}

func (s *suite) optimizers(t *testing.T) {
	dev := s.Device(t)
	for name, c := range optimizerCases() {
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
			t.Run(fmt.Sprintf("%s/%v", name, d), func(t *testing.T) {
				var want [][]float64
				rows := s.Share(t, 300, 9)
				if s.Needs(t, dev, func() { want = optimize(t, s.CPU(), d, rows, c) }) {
					tensortest.RequireGrads(t, want, optimize(t, dev, d, rows, c), s.GradTol(d), "values, states and norms")
				}
			})
		}
	}
}

// optimize does steps with given gradients, of a matrix of so many rows and others. If the loss is scaled, one gradient is not finite. It
// returns the parameters, the optimizer's tensors and the norms.
func optimize(t *testing.T, dev tensor.Device, d tensor.DType, rows int, c func(ps nn.Params) *optim.Optimizer) (out [][]float64) {
	var ps nn.Params
	for i, dims := range [][]int{{5}, {rows, 130}, {1}, {0, 3}, {17, 3}} {
		p := tensor.NewParam(tensor.UniformInit(-1, 1), dims...)
		p.SetName(fmt.Sprintf("p%d", i))
		p.Make(dev, d, 1)
		ps = append(ps, p)
	}
	o, tape := c(ps), tensor.NewTape(dev)
	defer tape.Close()
	var norms []float64
	for step := range 4 {
		var loss tensor.Tensor
		for i, p := range ps {
			g := tensor.New(dev, d, p.Dims()...)
			tensor.UniformInit(-1, 1).Fill(g, uint64(10*step+i), 0)
			if part := tape.Use(p).Mul(g).Sum(); i == 0 {
				loss = part
			} else {
				loss = loss.Add(part)
			}
		}
		tape.Backward(loss)
		require.NoError(t, o.Step())
		norms = append(norms, o.GradNorm())
		tape.Reset()
	}
	for _, p := range ps {
		out = append(out, tensor.Floats(p.Value))
	}
	for _, x := range o.State().Tensors {
		out = append(out, tensor.Floats(x.Tensor))
	}
	return append(out, norms)
}

// task is a model with a batch.
type task struct {
	name  string
	model func() nn.Layer
	batch func(d tensor.DType) (x, y tensor.Tensor) // on the host
}

func tasks() []task {
	return []task{
		{"mlp", func() nn.Layer {
			return nn.Sequential{nn.NewLinear(20, 33), nn.ReLU, nn.NewLinear(33, 33), nn.GELU, nn.NewLinear(33, 10)}
		},
			func(d tensor.DType) (x, y tensor.Tensor) {
				x = tensor.New(host, d, 17, 20)
				tensor.NormalInit(0, 1).Fill(x, 3, 0)
				return x, randomInts(10, 17)
			}},
		{"transformer", newTransformer, func(tensor.DType) (x, y tensor.Tensor) {
			return randomInts(tokens, 3, positions), randomInts(tokens-1, 3, positions)
		}},
	}
}

// train does so many steps of AdamW with clipping, and returns the losses.
func (k task) train(t *testing.T, dev tensor.Device, d tensor.DType, steps int) (losses []float64) {
	s := k.stepper(dev, d)
	for range steps {
		losses = append(losses, s.step(t).Item())
	}
	s.tape.Close()
	return losses
}

// stepper trains one model.
type stepper struct {
	model nn.Layer
	opt   *optim.Optimizer
	tape  *tensor.Tape
	x, y  tensor.Tensor
}

func (k task) stepper(dev tensor.Device, d tensor.DType) *stepper {
	s := &stepper{model: k.model(), tape: tensor.NewTape(dev, tensor.Seed(1))}
	ps := nn.Init(s.model, dev, d, 7)
	s.opt = optim.NewAdamW(ps, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 1})
	x, y := k.batch(d)
	s.x, s.y = tensortest.On(dev, x), tensortest.On(dev, y)
	return s
}

// step does one step, and returns a tensor with the loss, which is valid until the next step.
func (s *stepper) step(t *testing.T) tensor.Tensor {
	s.tape.Reset()
	loss := s.tape.Keep(nn.CrossEntropy(s.model.Forward(s.tape.Input(s.x)), s.y))
	s.tape.Backward(loss)
	require.NoError(t, s.opt.Step())
	return loss
}

// steady checks that a step copies nothing, and waits for the device only to read the loss, if the device counts that.
func (s *suite) steady(t *testing.T) {
	dev := s.Device(t)
	c, ok := dev.(tensortest.Counter)
	if !ok {
		t.Skipf("%v does not count", dev)
	}
	for _, k := range tasks() {
		t.Run(k.name, func(t *testing.T) {
			if !s.Needs(t, dev, func() { k.train(t, s.CPU(), tensor.Float32, 3) }) {
				t.Skip("kernels are missing")
			}
			x := k.stepper(dev, tensor.Float32)
			defer x.tape.Close()
			for range 3 {
				x.step(t)
			}
			var loss tensor.Tensor
			c.Counts()
			for range 5 {
				loss = x.step(t)
			}
			got := c.Counts()
			assert.NotZero(t, got.Launches)
			assert.Equal(t, tensortest.Counts{Launches: got.Launches}, got)
			_ = loss.Item()
			assert.Equal(t, tensortest.Counts{Down: 1, Syncs: 1}, c.Counts())
		})
	}
}

func (s *suite) training(t *testing.T) {
	dev := s.Device(t)
	for _, k := range tasks() {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float64}[:s.Share(t, 3, 2)] {
			t.Run(fmt.Sprintf("%s/%v", k.name, d), func(t *testing.T) {
				var want []float64
				steps := s.Share(t, 20, map[bool]int{true: 10, false: 5}[d == tensor.Float32])
				if s.Needs(t, dev, func() { want = k.train(t, s.CPU(), d, steps) }) {
					tensortest.RequireClose(t, want, k.train(t, dev, d, steps), 8*s.Tolerance(d), "losses")
				}
			})
		}
	}
}

// randomInts returns indices below n, in host memory.
func randomInts(n int, dims ...int) tensor.Tensor {
	x := tensor.New(host, tensor.Int64, dims...)
	for i := range tensor.Data[int64](x) {
		tensor.Data[int64](x)[i] = int64(tensor.RandomBits(5, uint64(i)) % uint64(n))
	}
	return x
}
