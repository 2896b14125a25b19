package tensor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// After the first steps, a step allocates nothing on the Go heap.
func TestStepAllocatesNothing(t *testing.T) {
	skipInDebug(t)
	dev := cpu.New(2)
	defer dev.Close()
	for _, d := range floatTypes {
		for name, step := range map[string]func(){
			"mlp": mlpStep(dev, d), "gpt": gptStep(dev, d, false, 0), "gpt, checkpoint, dropout": gptStep(dev, d, true, 0.1),
		} {
			step()
			assert.Zero(t, testing.AllocsPerRun(20, step), "%v %s", d, name)
		}
	}
}

// TestOpsAllocateNothing: the same for operations that the models of these tests do not use.
func TestOpsAllocateNothing(t *testing.T) {
	skipInDebug(t)
	dev := cpu.New(2)
	defer dev.Close()
	tape, x, y, w := NewTape(dev), random(dev, Float32, 3, 12, 7), randomTokens(dev, 7, 12), random(dev, Float32, 4, 7)
	p := NewParam(UniformInit(-1, 1), 12, 7)
	p.SetName("p")
	p.Make(dev, Float32, 1)
	lengths, docs := FromSlice([]int64{6, 3}, 2), FromSlice([]int32{0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2}, 2, 6)
	ignore := int64(3)
	step := func() {
		in := ops.Clamp(tape.Use(p).Add(tape.Input(x)), -1, 1)
		ids := tape.Input(y)
		soft := ops.CrossEntropy(in, ops.OneHot(ids, 7, Float32), ops.CrossEntropyOptions{Weights: w})
		hard := ops.CrossEntropy(in, ids, ops.CrossEntropyOptions{Weights: w, Ignore: &ignore, Smoothing: 0.1, PerRow: true})
		mask := ops.Not(ops.Or(ops.And(in.Lt(in.Detach()), in.Gt(in)), in.Eq(in)))
		_ = ops.Where(mask, in, in)
		_, _ = ops.Bincount(ids, 7), ops.Arange(tape, Int64, 0, 9, 1)
		turned := in.Slice(1, 0, 4).Reshape(2, 6, 4)
		seen := ops.CrossAttention(turned, in.Slice(1, 3, 5).Reshape(2, 6, 2), in.Slice(1, 5, 7).Reshape(2, 6, 2), 2,
			ops.AttentionOptions{Causal: true, KeyLengths: lengths, QueryDocs: docs, KeyDocs: docs})
		tape.Backward(soft.Add(hard.Sum()).Add(seen.Sum()))
		p.Consume()
		tape.Reset()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

func mlpStep(dev Device, d DType) func() {
	ps := &params{dev: dev, dtype: d}
	m := newMLP(ps, 7, 16, 16, 5)
	x, y := random(dev, d, 3, 12, 7), randomTokens(dev, 5, 12)
	t := NewTape(dev)
	return func() {
		loss := ops.CrossEntropy(m.forward(t.Input(x)), y, ops.CrossEntropyOptions{})
		_ = loss.Item()
		t.Backward(loss)
		ps.consume()
		t.Reset()
	}
}

func gptStep(dev Device, d DType, checkpoint bool, drop float64) func() {
	ps := &params{dev: dev, dtype: d}
	m := newGPT(ps, 11, 6, 8, 2, 2)
	m.checkpoint, m.drop = checkpoint, drop
	tokens := randomTokens(dev, 11, 3, 7)
	t := NewTape(dev)
	return func() {
		ids, labels := gptBatch(t, tokens)
		t.Backward(ops.CrossEntropy(m.forward(t, ids), labels, ops.CrossEntropyOptions{}))
		ps.consume()
		t.Reset()
	}
}

// Step memory is counted by its tape; memory for its gradients outside of it is counted once.
func TestMemoryOfSteps(t *testing.T) {
	skipInDebug(t) // there, kernels that check widen operands
	dev := cpu.New(1)
	m := dev.Memory()
	step := gptStep(dev, Float32, false, 0)
	params := m.Of(memory.Parameters).Live
	step()
	first := m.Of(memory.Activations)
	assert.Zero(t, first.Live)
	assert.Greater(t, first.Peak, params)
	assert.Equal(t, memory.Bytes{Live: params, Peak: params}, m.Of(memory.Gradients))
	m.ResetPeak()
	step()
	assert.Equal(t, first, m.Of(memory.Activations), "every step is like the first")
	assert.Equal(t, m.Of(memory.Parameters).Peak+m.Of(memory.Gradients).Peak+m.Of(memory.Other).Peak+first.Peak, m.Total().Peak)

	tape := NewTape(dev)
	x := tape.Input(New(dev, Float32, 1<<20)).Exp()
	live, peak := tape.Memory()
	assert.Equal(t, memory.Bytes{Live: 4 << 20, Peak: 4 << 20}, m.Of(memory.Activations), "a tape that needs more says so")
	assert.Equal(t, [2]int{4 << 20, 4 << 20}, [2]int{live, peak})
	tape.Keep(x)
	tape.Reset()
	tape.Close()
	assert.Zero(t, m.Of(memory.Activations).Live)
	dev.Close()
}
