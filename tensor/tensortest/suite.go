package tensortest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// Options changes what Run expects of a device. The zero value is the normal case.
type Options struct {
	// Tol is the largest difference from the CPU's results: |got−want| ≤ Tol·(1+|want|). The defaults are 1e-5 for Float32, 1e-10 for
	// Float64, and one unit in the last place for 16-bit floats: 2^-7 for BFloat16 and 2^-10 for Float16. Gradients of 16-bit floats are
	// rounded several times: for these it is four times that. Integers must be equal.
	Tol map[tensor.DType]float64
	// Skip reports entries of the table that the device has no kernel for on purpose; nil: it has all that the CPU has.
	Skip func(op tensor.Op, d tensor.DType) bool
}

// Tolerance returns the largest difference from the CPU's results of type d.
func (o Options) Tolerance(d tensor.DType) float64 {
	if t, ok := o.Tol[d]; ok {
		return t
	}
	return map[tensor.DType]float64{tensor.Float32: 1e-5, tensor.Float64: 1e-10, tensor.BFloat16: 0x1p-7, tensor.Float16: 0x1p-10}[d]
}

// GradTol is Tolerance for gradients.
func (o Options) GradTol(d tensor.DType) float64 {
	if d.IsHalf() {
		return 4 * o.Tolerance(d)
	}
	return o.Tolerance(d)
}

// Suite runs cases on a device and on the CPU.
type Suite struct {
	Options
	Device   func(t *testing.T) tensor.Device // makes the device of a test
	spy      *spy
	compared int // value cases
}

// NewSuite makes a suite for tests that Run does not have, as in optim/optimtest.
func NewSuite(newDevice func(t *testing.T) tensor.Device, o Options) *Suite {
	return &Suite{Options: o, Device: newDevice, spy: newSpy()}
}

// CPU returns the CPU device to compare with. It records which kernels run.
func (s *Suite) CPU() tensor.Device { return s.spy }

// long reports whether every case runs with all kinds of inputs: in tests of the long runs, and on a real GPU.
func long(t *testing.T) bool { return reliability.Long(t) || os.Getenv("RINGO_TEST_GPU") == "1" }

// Share returns n in the long form, and less in the short one.
func (s *Suite) Share(t *testing.T, n, less int) int {
	if long(t) {
		return n
	}
	return less
}

// Run compares a device with the CPU; in a test whose name begins with TestLong, with more kinds of inputs. newDevice is called for each
// test; the test's Cleanup closes the device. Run does not run the kernels of optimizers, and trains nothing: package optim/optimtest does
// that.
func Run(t *testing.T, newDevice func(t *testing.T) tensor.Device, o Options) {
	s := NewSuite(newDevice, o)
	t.Run("table", s.table)
	t.Run("memory", s.memory)
	t.Run("inputs", s.inputs)
	t.Run("values", s.values)
	t.Run("special values", s.special)
	t.Run("gradients", s.gradients)
	t.Run("logits", s.logits)
	t.Run("indices", s.indices)
	t.Run("kernels", s.kernels)
	t.Run("errors", s.errors)
	t.Run("every kernel ran", func(t *testing.T) {
		s.RequireRan(t, func(op tensor.Op) bool { return !slices.Contains(OptimizerOps, op) })
	})
}

// spy is a CPU device that records which entries of its table were used.
type spy struct {
	*cpu.Device
	own  tensor.Table
	used map[cell]bool // since the last call of Needs
	ever map[cell]bool
}

// cell is an entry of the table.
type cell struct {
	op tensor.Op
	d  tensor.DType
}

func (c cell) String() string { return fmt.Sprintf("%v/%v", c.op, c.d) }

func newSpy() *spy {
	s := &spy{Device: cpu.New(1), used: map[cell]bool{}, ever: map[cell]bool{}}
	for _, op := range ops.All() {
		for d := range tensor.DType(tensor.NumDTypes) {
			if k := s.Device.Kernels()[op][d]; k != nil {
				s.own[op][d] = func(q tensor.Queue, a *tensor.Args) {
					c := cell{op, d}
					s.used[c], s.ever[c] = true, true
					k(q, a)
				}
			}
		}
	}
	return s
}

func (s *spy) Kernels() *tensor.Table { return &s.own }

// Needs runs f on the CPU and reports whether dev has all kernels that it used.
func (s *Suite) Needs(t *testing.T, dev tensor.Device, f func()) bool {
	t.Helper()
	clear(s.spy.used)
	f()
	for c := range s.spy.used {
		if dev.Kernels()[c.op][c.d] == nil {
			return false
		}
	}
	return true
}

// table lists the entries that the CPU has and the device has not.
func (s *Suite) table(t *testing.T) {
	dev := s.Device(t)
	var empty, extra []string
	for _, op := range ops.All() {
		for d := range tensor.DType(tensor.NumDTypes) {
			skip, have := s.Skip != nil && s.Skip(op, d), dev.Kernels()[op][d] != nil
			switch {
			case s.spy.own[op][d] != nil && !have && !skip:
				empty = append(empty, cell{op, d}.String())
			case have && skip:
				extra = append(extra, cell{op, d}.String())
			}
		}
	}
	assert.Empty(t, empty, "cells of %v's table that are empty, but not on the CPU", dev)
	assert.Empty(t, extra, "Options.Skip names kernels that %v has", dev)
}

// OptimizerOps are the operations whose kernels only optimizers run.
var OptimizerOps = []tensor.Op{tensor.OpGradNorm, tensor.OpClip, tensor.OpSGD, tensor.OpAdam}

// RequireRan fails the test if a kernel of the CPU was not used, for an operation in want.
func (s *Suite) RequireRan(t *testing.T, want func(op tensor.Op) bool) {
	var never []string
	for _, op := range ops.All() {
		for d := range tensor.DType(tensor.NumDTypes) {
			if s.spy.own[op][d] != nil && want(op) && !s.spy.ever[cell{op, d}] {
				never = append(never, cell{op, d}.String())
			}
		}
	}
	assert.Empty(t, never, "cells of the CPU's table that no case uses")
}

// placing says where the inputs of a value case are in memory.
type placing struct {
	name string
	of   func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor // x is in host memory
}

// placings put inputs at different addresses: those of Alloc, one element after that, and inside a wider matrix.
func placings(dev tensor.Device) []placing {
	return []placing{
		{"aligned", func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor { return t.Input(On(dev, x)) }},
		{"from host memory", func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor { return t.Input(x) }},
		{"one element behind", func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor {
			whole := tensor.New(dev, x.DType(), x.Len()+1)
			y := whole.Range(1, 1+x.Len()).View(x.Shape().Dims...)
			tensor.Copy(y, x)
			return t.Input(y)
		}},
		{"view", func(t *tensor.Tape, x tensor.Tensor) tensor.Tensor {
			if x.NDim() == 0 {
				return t.Input(On(dev, x))
			}
			y := ops.Pad(t.Input(On(dev, x)), 0, 1, 1)
			if x.NDim() == 2 {
				y = ops.Pad(y, 1, 1, 2).Slice(1, 1, 1+x.Dim(1))
			}
			return y.Slice(0, 1, 1+x.Dim(0))
		}},
	}
}

func (c ValueCase) on(dev tensor.Device, p placing, in []tensor.Tensor) []float64 {
	t := tensor.NewTape(dev)
	defer t.Close()
	x := make([]tensor.Tensor, len(in))
	for i := range in {
		x[i] = p.of(t, in[i])
	}
	return tensor.Floats(c.F(x))
}

func (s *Suite) values(t *testing.T) {
	dev := s.Device(t)
	for _, c := range ValueCases() {
		t.Run(c.Name, func(t *testing.T) {
			for _, d := range c.DTypes() {
				for k := range c.Dims {
					dims := c.Dims[(k+int(d))%len(c.Dims)]
					var in []tensor.Tensor
					for i, x := range dims {
						in = append(in, c.Operand(d, uint64(i), x))
					}
					s.value(t, dev, c, d, in, fmt.Sprint(d, dims))
					if !hasZero(dims) && !long(t) { // in the short form, each type has another shape that is not empty
						break
					}
				}
			}
		})
	}
}

// hasZero reports whether a shape is empty.
func hasZero(shapes [][]int) bool {
	return slices.ContainsFunc(shapes, func(d []int) bool { return slices.Contains(d, 0) })
}

// value compares one case on one set of inputs, with all placings; in the short form with one, another for each shape and type.
func (s *Suite) value(t *testing.T, dev tensor.Device, c ValueCase, d tensor.DType, in []tensor.Tensor, msg string) {
	t.Helper()
	here := placings(s.spy)
	s.compared++
	for i, p := range placings(dev) {
		if !long(t) && i != s.compared%len(here) {
			continue
		}
		var want []float64
		if s.Needs(t, dev, func() { want = c.on(s.spy, here[i], in) }) {
			RequireClose(t, want, c.on(dev, p, in), s.Tolerance(d), msg+" "+p.name)
		}
	}
}

func (s *Suite) special(t *testing.T) {
	dev := s.Device(t)
	for _, c := range ValueCases() {
		if c.Special {
			t.Run(c.Name, func(t *testing.T) {
				for _, d := range c.DTypes() {
					if d.IsFloat() {
						s.value(t, dev, c, d, c.SpecialOperands(d), d.String())
					}
				}
			})
		}
	}
}

func (s *Suite) gradients(t *testing.T) {
	dev, cases := s.Device(t), GradCases()
	for _, op := range slices.Sorted(maps.Keys(cases)) {
		for i, c := range cases[op] {
			t.Run(op.String()+"/"+c.Name, func(t *testing.T) {
				r, whole := rand.New(rand.NewPCG(tensor.HashName(op.String()), 13)), false // whole: there was a shape without a zero
				for k := range uint64(3) {
					dims := c.Shapes(r)
					for j, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
						if (whole || i > 0 && j != i%4) && !long(t) {
							continue // one shape is enough; and of a second case, one type
						}
						s.gradient(t, dev, c, d, dims, k)
					}
					whole = whole || !hasZero(dims)
				}
			})
		}
	}
}

// gradient compares one case on inputs that are made in all ways; in the short form in one of five ways, another for each shape and type.
func (s *Suite) gradient(t *testing.T, dev tensor.Device, c GradCase, d tensor.DType, dims [][]int, key uint64) {
	t.Helper()
	here, there := NewGradRun(t, s.spy, d, c, dims, key), NewGradRun(t, dev, d, c, dims, key)
	for i, h := range append(Ways(), How{Name: "plain"}) {
		if h.Scope && c.Alone || (2*int(key)+int(d)+i)%5 > 0 && !long(t) {
			continue
		}
		var loss float64
		var want [][]float64
		if !s.Needs(t, dev, func() { loss, want = here.Grads(h) }) {
			continue
		}
		msg := fmt.Sprint(d, dims, " ", h.Name)
		gotLoss, got := there.Grads(h)
		RequireClose(t, []float64{loss}, []float64{gotLoss}, s.GradTol(d), msg+": loss")
		RequireGrads(t, want, got, s.GradTol(d), msg)
	}
}

// errors are reported late, but they are, and they name the operation.
func (s *Suite) errors(t *testing.T) {
	dev := s.Device(t)
	ids, x := func(v ...int64) tensor.Tensor { return tensor.FromSlice(v, len(v)) }, Of(tensor.Float32, []float64{1, 2, 3, 4, 5, 6}, 3, 2)
	for name, f := range map[string]func(t *tensor.Tape) tensor.Tensor{
		"embedding": func(t *tensor.Tape) tensor.Tensor { return ops.Embedding(t.Input(x), ids(0, 3)) },
		"gather":    func(t *tensor.Tape) tensor.Tensor { return ops.Gather(t.Input(x), 0, ids(0, -1).View(1, 2)) },
		"scatter_add": func(t *tensor.Tape) tensor.Tensor {
			return ops.ScatterAdd(t.Input(x), 0, ids(0, 3).View(1, 2), Of(tensor.Float32, []float64{1, 1}, 1, 2))
		},
		"cross_entropy": func(t *tensor.Tape) tensor.Tensor {
			return ops.CrossEntropy(t.Input(x), ids(0, 1, 2), ops.CrossEntropyOptions{})
		},
	} {
		tape := tensor.NewTape(dev)
		err := tensor.Try(func() { tensor.Floats(f(tape)) })
		require.Error(t, err, name)
		assert.ErrorContains(t, err, name)
		tape.Close()
		require.NoError(t, tensor.Try(func() { tensor.Floats(On(dev, x)) }), "an error is reported once")
	}
	err := tensor.Try(func() { tensor.Data[float32](On(dev, x)) })
	if !dev.Host() {
		assert.ErrorContains(t, err, fmt.Sprintf("memory of %v is not the host's: copy it with ToHost", dev))
	}
}

// inputs in host memory may change after Reset, though nobody has waited for the step.
func (s *Suite) inputs(t *testing.T) {
	dev := s.Device(t)
	const n, steps = 1000, 20
	x, sums := make([]float32, n), tensor.New(dev, tensor.Float32, steps)
	tape := tensor.NewTape(dev)
	defer tape.Close()
	for step := range steps {
		for i := range x {
			x[i] = float32(step)
		}
		y := tape.Input(tensor.FromSlice(x, n)).Sum()
		e := tensor.NewExec(dev)
		a := e.Args(tensor.OpCopy, tensor.Float32).Out(sums.Range(step, step+1)).In(y)
		a.NDim, a.Dim[0], a.Stride[0][0], a.Stride[1][0] = 1, 1, 1, 1
		e.Launch()
		tape.Reset()
	}
	for step, v := range tensor.Floats(sums) {
		require.Equal(t, float64(n*step), v)
	}
}

// memory is zeroed by New, counted, copied, and freed.
func (s *Suite) memory(t *testing.T) {
	dev := s.Device(t)
	x := tensor.New(dev, tensor.Float32, 1000)
	assert.Equal(t, make([]float64, 1000), tensor.Floats(x))
	assert.Equal(t, 4000, dev.Memory().Of(memory.Other).Live)
	tensor.Constant(3).Fill(x, 0, 0)
	y := tensor.New(dev, tensor.Float32, 10)
	tensor.Copy(y, x.Range(990, 1000))
	assert.Equal(t, []float64{3, 3, 3, 3, 3, 3, 3, 3, 3, 3}, tensor.Floats(y))
	tape := tensor.NewTape(dev)
	large := tape.Input(x).Broadcast(3000, 1000)
	assert.Equal(t, 9e6, large.Sum().Item())
	column := tape.Input(x).Reshape(10, 100).Slice(1, 7, 8)
	assert.Equal(t, tensor.Floats(y), tensor.Floats(column), "a view with gaps")
	tape.Close()
	assert.Zero(t, dev.Memory().Of(memory.Activations).Live)
	staged := tensor.NewStaging(memory.Other, dev, tensor.Int64, 3)
	copy(tensor.Data[int64](staged), []int64{1, 2, 1 << 40})
	assert.Equal(t, []int64{1, 2, 1 << 40}, tensor.Data[int64](tensor.ToHost(On(dev, staged))))
}
