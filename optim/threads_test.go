package optim_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// Sizes of parameters, with an empty one and one just larger than a block of the norm.
var unevenSizes = []int{1, 200_003, 0, 3, tensor.SumSquaresBlock, tensor.SumSquaresBlock + 1, 40_000}

// stepUneven does two clipped steps on parameters of these sizes, and returns the norms and values.
func stepUneven(t *testing.T, threads int, d tensor.DType, newOpt func(nn.Params) *optim.Optimizer) (norms, values, grads []float64) {
	dev := cpu.New(threads)
	defer dev.Close()
	var ps nn.Params
	for i, n := range unevenSizes {
		p := tensor.NewParam(tensor.UniformInit(-2, 2), n)
		p.SetName(fmt.Sprint("p", i))
		p.Make(dev, d, 1)
		ps = append(ps, p)
	}
	opt, tape := newOpt(ps), tensor.NewTape(dev)
	defer tape.Close()
	for range 2 {
		loss := tensor.Tensor{}
		for _, p := range ps {
			if s := tape.Use(p).Square().Sum(); loss.IsZero() {
				loss = s
			} else {
				loss = loss.Add(s)
			}
		}
		tape.Backward(loss)
		grads = grads[:0]
		for _, p := range ps {
			grads = append(grads, tensor.Floats(p.Grad)...)
		}
		require.NoError(t, opt.Step())
		tape.Reset()
		norms = append(norms, opt.GradNorm())
	}
	return norms, flat(ps), grads
}

// Norms and steps are divided over threads by elements, whatever the sizes of the parameters, and have the same bits for any number of
// threads.
func TestStepsDoNotDependOnThreads(t *testing.T) {
	for name, newOpt := range map[string]func(nn.Params) *optim.Optimizer{
		"sgd": func(p nn.Params) *optim.Optimizer {
			return optim.NewSGD(p, optim.SGDConfig{LR: 0.01, Momentum: 0.9, Nesterov: true, Clip: 3})
		},
		"adamw": func(p nn.Params) *optim.Optimizer {
			return optim.NewAdamW(p, optim.AdamWConfig{LR: 0.01, WeightDecay: 0.1, Clip: 3})
		},
	} {
		for i, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
			if (name == "sgd") != (i == 0) && !reliability.Long(t) { // each type with one rule
				continue
			}
			norms, values, grads := stepUneven(t, 1, d, newOpt)
			sum := 0.0
			for _, g := range grads {
				sum += g * g
			}
			assert.InEpsilon(t, math.Sqrt(sum), norms[1], 1e-12, name)
			for k, threads := range []int{2, 3, 4} {
				if (k == i) == reliability.Long(t) {
					continue
				}
				n, v, _ := stepUneven(t, threads, d, newOpt)
				assert.Equal(t, norms, n, "%s %v %d", name, d, threads)
				assert.True(t, slices.Equal(values, v), "%s %v %d", name, d, threads)
			}
		}
	}
}

func TestLongStepsDoNotDependOnThreads(t *testing.T) {
	reliability.AsLong(t, TestStepsDoNotDependOnThreads)
}
