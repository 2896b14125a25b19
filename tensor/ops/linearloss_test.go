package ops_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// linearTape is a training step of a head behind one layer, with the fused loss or the plain one.
type linearTape struct {
	tape    *tensor.Tape
	x, w    *tensor.Param
	labels  tensor.Tensor
	dev     tensor.Device
	classes int
}

func newLinearTape(dev tensor.Device, d tensor.DType, n, in, classes int) *linearTape {
	s := &linearTape{tape: tensor.NewTape(dev), x: param(dev, d, "x", n, in), w: param(dev, d, "w", classes, in), dev: dev, classes: classes}
	labels := make([]int64, n)
	for i := range labels {
		labels[i] = int64(i * i % classes)
	}
	s.labels = tensor.FromSlice(labels, n)
	return s
}

// gradients returns the loss and the gradients of x and w.
func (s *linearTape) gradients(f func(x, w, y tensor.Tensor) tensor.Tensor) (loss float64, x, w []float64) {
	defer s.tape.Reset()
	l := f(s.tape.Use(s.x).Tanh(), s.tape.Use(s.w), s.labels)
	s.tape.Backward(l)
	loss, x, w = l.Item(), tensor.Floats(s.x.Grad), tensor.Floats(s.w.Grad)
	s.x.Consume()
	s.w.Consume()
	return loss, x, w
}

// plain is the same with logits.
func plain(f *ops.LinearCrossEntropy, x, w, y tensor.Tensor) tensor.Tensor {
	logits := tensor.Linear(x, w, tensor.Tensor{})
	if c := f.SoftCap; c != 0 {
		logits = logits.Scale(1 / c).Tanh().Scale(c)
	}
	return ops.CrossEntropy(logits, y, ops.CrossEntropyOptions{Smoothing: f.Smoothing, Ignore: f.Ignore, Count: f.Count})
}

// The loss and the gradients are those of CrossEntropy of Linear: of a few rows and of several parts of rows, whether the loss is computed
// in Backward or before, alone or in a larger one, and also where another Backward has written gradients.
func TestLinearCrossEntropy(t *testing.T) {
	ignored := int64(1)
	for name, f := range map[string]*ops.LinearCrossEntropy{"plain": {}, "smoothing": {Smoothing: 0.2}, "ignored": {Ignore: &ignored},
		"count": {Ignore: &ignored, Count: 900}, "capped": {SoftCap: 0.5, Smoothing: 0.2}} {
		for _, n := range []int{0, 1, 100, 300, 2100} {
			for d, tol := range map[tensor.DType]float64{tensor.Float64: 1e-12, tensor.Float32: 2e-5, tensor.BFloat16: 0.05} {
				if name == "ignored" && n < 100 {
					continue // of no labels there is no mean
				}
				s := newLinearTape(host, d, n, 5, 11)
				for how, around := range map[string]func(l tensor.Tensor) tensor.Tensor{
					"late":  func(l tensor.Tensor) tensor.Tensor { return l },
					"early": func(l tensor.Tensor) tensor.Tensor { l.Item(); return l },
					"inside": func(l tensor.Tensor) tensor.Tensor {
						return l.Scale(3).Add(s.tape.Use(s.w).Square().Sum().Cast(l.DType()).Scale(0.1))
					},
				} {
					if n == 2100 && (d != tensor.Float32 || how == "early") && !reliability.Long(t) {
						continue
					}
					want, wantX, wantW := s.gradients(func(x, w, y tensor.Tensor) tensor.Tensor { return around(plain(f, x, w, y)) })
					got, gotX, gotW := s.gradients(func(x, w, y tensor.Tensor) tensor.Tensor { return around(f.Loss(x, w, y)) })
					what := []any{name, n, d, how}
					assert.InDelta(t, want, got, tol, what...)
					assert.InDeltaSlice(t, wantX, gotX, tol, what...)
					assert.InDeltaSlice(t, wantW, gotW, tol, what...)
				}
			}
		}
	}
}

func TestLongLinearCrossEntropy(t *testing.T) { reliability.AsLong(t, TestLinearCrossEntropy) }

// It works in a Checkpoint, without gradients, with labels of type int32, with leading dimensions, and where one of the inputs is frozen
// or both are one.
func TestLinearCrossEntropyForms(t *testing.T) {
	f := &ops.LinearCrossEntropy{}
	s := newLinearTape(host, tensor.Float64, 300, 5, 11)
	want, wantX, wantW := s.gradients(func(x, w, y tensor.Tensor) tensor.Tensor { return plain(f, x, w, y) })
	for name, loss := range map[string]func(x, w, y tensor.Tensor) tensor.Tensor{
		"checkpoint": func(x, w, y tensor.Tensor) tensor.Tensor {
			return s.tape.Checkpoint(func(in ...tensor.Tensor) tensor.Tensor { return f.Loss(in[0], in[1], y) }, x, w)
		},
		"scope": func(x, w, y tensor.Tensor) tensor.Tensor {
			return s.tape.Scope(func(in ...tensor.Tensor) tensor.Tensor { return f.Loss(in[0], in[1], y) }, x, w)
		},
		"int32": func(x, w, y tensor.Tensor) tensor.Tensor { return f.Loss(x, w, s.tape.Input(y).Cast(tensor.Int32)) },
		"sequences": func(x, w, y tensor.Tensor) tensor.Tensor {
			return f.Loss(x.Reshape(3, 100, 5), w, s.tape.Input(y).Reshape(3, 100))
		},
		"view": func(x, w, y tensor.Tensor) tensor.Tensor {
			return f.Loss(tensor.Concat(1, x, x).Slice(1, 5, 10), tensor.Concat(0, w, w).Slice(0, 11, 22), y)
		},
	} {
		got, gotX, gotW := s.gradients(loss)
		assert.InDelta(t, want, got, 1e-12, name)
		assert.InDeltaSlice(t, wantX, gotX, 1e-12, name)
		assert.InDeltaSlice(t, wantW, gotW, 1e-12, name)
	}
	without := tensor.NewTape(host, tensor.NoGrad())
	got := f.Loss(without.Use(s.x).Tanh(), without.Use(s.w), s.labels)
	assert.InDelta(t, want, got.Item(), 1e-12)
	s.w.Freeze()
	l := f.Loss(s.tape.Use(s.x).Tanh(), s.tape.Use(s.w), s.labels)
	s.tape.Backward(l)
	assert.InDeltaSlice(t, wantX, tensor.Floats(s.x.Grad), 1e-12)
	s.tape.Reset()
	for range 2 { // 11 rows, each with the label of its number
		one := newLinearTape(host, tensor.Float64, 11, 5, 11)
		same := func(loss func(x, w, y tensor.Tensor) tensor.Tensor) []float64 {
			_, _, w := one.gradients(func(x, w, y tensor.Tensor) tensor.Tensor { return loss(w, w, y).Add(x.Sum()) })
			return w
		}
		assert.InDeltaSlice(t, same(func(x, w, y tensor.Tensor) tensor.Tensor { return plain(f, x, w, y) }), same(f.Loss), 1e-12)
	}
}

// A loss that is kept, and that Backward does not reach, has its value.
func TestLinearCrossEntropyKept(t *testing.T) {
	f, s := &ops.LinearCrossEntropy{}, newLinearTape(host, tensor.Float64, 300, 5, 11)
	want, _, _ := s.gradients(func(x, w, y tensor.Tensor) tensor.Tensor { return plain(f, x, w, y) })
	x, w := s.tape.Use(s.x), s.tape.Use(s.w)
	kept := s.tape.Keep(f.Loss(x.Tanh(), w, s.labels))
	s.tape.Backward(x.Sum().Add(w.Sum()))
	assert.InDelta(t, want, kept.Item(), 1e-12)
}

// The logits never exist: a step of a head of GPT-2's words needs less than a tenth of their memory beside parameters and gradients. The
// short form has those with a cap, and a fifth of the words.
func TestLinearCrossEntropyMemory(t *testing.T) {
	n, in, classes := 3072, 8, 10304
	if reliability.Long(t) {
		classes = 50304
	}
	dev := cpu.New(2)
	defer dev.Close()
	for _, f := range []*ops.LinearCrossEntropy{{}, {SoftCap: 30}} {
		if f.SoftCap == 0 && !reliability.Long(t) {
			continue
		}
		s := newLinearTape(dev, tensor.Float32, n, in, classes)
		s.tape.Backward(f.Loss(s.tape.Use(s.x).Tanh(), s.tape.Use(s.w), s.labels))
		_, peak := s.tape.Memory()
		s.tape.Close()
		assert.LessOrEqual(t, peak, n*classes*4/10)
	}
}

func TestLongLinearCrossEntropyMemory(t *testing.T) {
	reliability.AsLong(t, TestLinearCrossEntropyMemory)
}

func TestLinearCrossEntropyAllocatesNothing(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	dev := cpu.New(2)
	defer dev.Close()
	f, s := &ops.LinearCrossEntropy{SoftCap: 2}, newLinearTape(dev, tensor.Float32, 600, 4, 7)
	step := func() {
		s.tape.Backward(f.Loss(s.tape.Use(s.x).Tanh(), s.tape.Use(s.w), s.labels))
		s.x.Consume()
		s.w.Consume()
		s.tape.Reset()
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(20, step))
}

func TestLinearCrossEntropyMisuse(t *testing.T) {
	f := &ops.LinearCrossEntropy{}
	x, w := host0(3, 4), host0(5, 4)
	ids := func(v ...int64) tensor.Tensor { return tensor.FromSlice(v, len(v)) }
	for want, call := range map[string]func(){
		"label 1 is 5, of 5 classes":                     func() { f.Loss(x, w, ids(0, 5, 1)) },
		"label 2 is -100, of 5 classes":                  func() { f.Loss(x, w, ids(0, 4, -100)) },
		"wants rows [..., in], weights [classes, in]":    func() { f.Loss(x, w, ids(0, 4)) },
		"dimension 1 of the input is 4, dimension 1 of ": func() { f.Loss(x, host0(5, 3), ids(0, 4, 1)) },
		"label smoothing 2 is not in [0,1]":              func() { (&ops.LinearCrossEntropy{Smoothing: 2}).Loss(x, w, ids(0, 4, 1)) },
		"a soft cap of -1 must be positive, or 0":        func() { (&ops.LinearCrossEntropy{SoftCap: -1}).Loss(x, w, ids(0, 4, 1)) },
	} {
		require.ErrorContains(t, tensor.Try(call), want)
	}
}

func host0(dims ...int) tensor.Tensor {
	return tensor.NewTape(host, tensor.NoGrad()).Input(random(host, tensor.Float32, 1, dims...))
}
