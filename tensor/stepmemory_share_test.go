package tensor_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// A tape whose shapes differ from step to step holds at most twice its peak. If idle memory were not given back, the first program here
// would hold some twenty times its peak, and the second several hundred times.
func TestHeldMemoryOfVaryingShapes(t *testing.T) {
	for name, program := range map[string]func(tape *Tape, steps int){
		"random lengths": func(tape *Tape, steps int) {
			r := rand.New(rand.NewPCG(1, 2))
			for range steps {
				n := 100 + r.IntN(2001)
				x := tape.New(Float32, n, 256)
				y := ops.Softmax(MatMul(x, x, false, true))
				MatMul(y, x, false, false).Exp()
				tape.Reset()
			}
		},
		"a row a step": func(tape *Tape, steps int) {
			cache := New(tape.Device(), Float32, 300, 1024)
			for range steps {
				x := Concat(0, tape.Input(cache), tape.New(Float32, 1, 1024)).Affine(1, 1)
				cache = FromPtr(tape.Device(), cache.Ptr(), Float32, x.Dim(0), 1024) // a null device moves nothing
				tape.Reset()
			}
		},
		"a row a step from the first on": func(tape *Tape, steps int) {
			for n := range 4 * steps {
				x := tape.New(Float32, n+1, 1024)
				for range 5 {
					x = Concat(0, x, tape.New(Float32, 1, 1024)).Affine(1, 1)
				}
				tape.Reset()
			}
		},
	} {
		dev := newNullDevice(t)
		tape := NewTape(dev, NoGrad())
		program(tape, 300)
		_, peak := tape.Memory()
		assert.LessOrEqual(t, tape.Held(), 2*peak+LargestSlab, "%s: small blocks come by the slab", name)
		assert.Equal(t, tape.Held(), dev.Memory().Held().Live, name)
		assert.LessOrEqual(t, dev.Memory().Held().Peak, 2*peak+2*LargestSlab, name)
		assert.Contains(t, dev.Memory().String(), "held by tapes", name)
		tape.Close()
		assert.Zero(t, dev.Memory().Held().Live, name)
		assert.Zero(t, dev.blocks, name)
	}
}

// Tapes that share memory hold what they need at the same time: here only one is in use at a time, so four hold as much as one. Memory that
// one frees is used by another, and Close frees nothing of the others.
func TestTapesShareMemory(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	first := NewTape(dev)
	tapes := []*Tape{first}
	for range 3 {
		tapes = append(tapes, NewTape(dev, ShareMemory(first)))
	}
	ps := &params{dev: dev, dtype: Float32}
	m := newMLP(ps, 64, 512, 64)
	x := random(dev, Float32, 1, 1000, 64)
	step := func(tape *Tape) {
		tape.Backward(m.forward(tape.Input(x)).Square().Sum())
		ps.consume()
		tape.Reset()
	}
	step(first)
	one := first.Held()
	assert.Positive(t, one)
	for _, tape := range tapes {
		step(tape)
		assert.Equal(t, one, tape.Held())
	}
	assert.Equal(t, one, dev.Memory().Held().Live)
	y := tapes[3].Input(x).Exp()
	want := Floats(y)
	for _, tape := range tapes[:3] {
		step(tape)
		tape.Close()
	}
	assert.Equal(t, want, Floats(y))
	assert.GreaterOrEqual(t, dev.Memory().Held().Live, one)
	tapes[3].Close()
	assert.Zero(t, dev.Memory().Held().Live)
	assert.ErrorContains(t, Try(func() { NewTape(cpu.New(1), ShareMemory(first)) }), "ShareMemory")
}

// A pipeline whose tapes share memory has the gradients of one tape, to the bit.
func TestPipelineInSharedMemory(t *testing.T) {
	skipInDebug(t)
	want := newPipe(nil).whole()
	for name, order := range pipeOrders {
		m := newPipe(nil)
		m.share = true
		requireGrads(t, want, m.stages(order), 0, name)
	}
}
