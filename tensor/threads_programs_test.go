package tensor_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Random programs on tensors that are large enough to be divided over threads.
func TestThreadsPrograms(t *testing.T) {
	seeds := uint64(1)
	if reliability.Long(t) {
		seeds = 4
	}
	for seed := range seeds {
		var want [][]float64
		for _, threads := range []int{1, 2, 3, 5} {
			dev := cpu.New(threads)
			for _, d := range []DType{Float32, BFloat16} {
				got := randomProgram(dev, d, seed)
				if threads == 1 {
					want = append(want, got)
					continue
				}
				require.Equal(t, want[d/BFloat16], got, "seed %d, %v, %d threads", seed, d, threads)
			}
			dev.Close()
		}
	}
}

func TestLongThreadsPrograms(t *testing.T) { reliability.AsLong(t, TestThreadsPrograms) }

// randomProgram applies random operations to matrices [m, n] and returns the loss and the gradients.
func randomProgram(dev Device, d DType, seed uint64) []float64 {
	const m, n = 130, 193
	ps := &params{dev: dev, dtype: d}
	x, w, v := ps.add("x", UniformInit(-1, 1), m, n), ps.add("w", UniformInit(-0.1, 0.1), n, n), ps.add("v", UniformInit(0, 1), n)
	r := rand.New(rand.NewPCG(seed, 1))
	t := NewTape(dev, Seed(seed))
	have := []Tensor{t.Use(x), t.Input(random(dev, d, seed, m, n))}
	pick := func() Tensor { return have[r.IntN(len(have))] }
	programs := []func() Tensor{
		func() Tensor { return pick().Add(pick()) },
		func() Tensor { return pick().Mul(t.Use(v)) },
		func() Tensor { return Linear(pick(), t.Use(w), t.Use(v)) },
		func() Tensor { return LinearAct(pick(), t.Use(w), t.Use(v), Activation(1+r.IntN(4))) },
		func() Tensor { return MatMul(t.Use(w), pick(), true, true).Transpose(0, 1) },
		func() Tensor { return pick().GELU() },
		func() Tensor { return ops.Softmax(pick()).Scale(10) },
		func() Tensor { return ops.LayerNorm(pick(), t.Use(v), Tensor{}, 1e-5) },
		func() Tensor { return ops.Dropout(pick(), 0.2, r.Uint64()) },
		func() Tensor { return pick().Sub(pick().Mean(0)) },
		func() Tensor { return pick().Mul(pick().Sum(1).Scale(1./n).Reshape(m, 1)) },
		func() Tensor { return Concat(1, pick().Slice(1, 90, n), pick().Slice(1, 0, 90)) },
		func() Tensor { return ops.Embedding(pick(), randomTokens(dev, m, m)) },
		func() Tensor { return ops.Where(pick().Gt(pick()), pick(), pick().Tanh()) },
		func() Tensor { v, _ := ops.Max(pick(), 0); return pick().Sub(v) },
	}
	for range 12 {
		have = append(have, programs[r.IntN(len(programs))]().Tanh())
	}
	loss := ops.CrossEntropy(have[len(have)-1].Add(have[len(have)-2]), randomTokens(dev, n, m), ops.CrossEntropyOptions{})
	t.Backward(loss)
	out := Floats(loss)
	for _, g := range ps.grads() {
		out = append(out, g...)
	}
	t.Close()
	return out
}

// Several goroutines may use a model at the same time for inference, each with a device and a NoGrad tape of its own.
func TestConcurrentInference(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float32}
	m, tokens := newGPT(ps, 11, 6, 8, 2, 2), randomTokens(hostDevice, 11, 3, 7)
	infer := func() []float64 {
		dev := cpu.New(1)
		defer dev.Close()
		tape := NewTape(dev, NoGrad())
		ids, _ := gptBatch(tape, tokens)
		return Floats(m.forward(tape, ids))
	}
	want := infer()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { assert.Equal(t, want, infer()) })
	}
	group.Wait()
}
