package tensor_test

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

type failureCase struct {
	op, shapes, text string
	fn               func()
}

// Wrong use panics with a *Failure that names the operation, the shapes and the error.
func TestFailures(t *testing.T) {
	tape := NewTape(hostDevice)
	for _, c := range append(productFailures(tape), otherFailures(tape)...) {
		err := Try(c.fn)
		var fail *Failure
		require.ErrorAs(t, err, &fail, "%s: %s", c.op, c.text)
		assert.Equal(t, c.op, fail.Op, c.text)
		var shapes []string
		for _, s := range fail.Shapes {
			shapes = append(shapes, s.String())
		}
		assert.Equal(t, c.shapes, strings.Join(shapes, ", "), "%s: %s", c.op, c.text)
		assert.ErrorContains(t, err, c.text, c.op)
		assert.True(t, strings.HasPrefix(err.Error(), c.op), err)
		tape.Reset()
	}
}

func productFailures(tape *Tape) []failureCase {
	f := func(dims ...int) Tensor { return tape.Input(New(hostDevice, Float32, dims...)) }
	ids := func(dims ...int) Tensor { return New(hostDevice, Int64, dims...) }
	return []failureCase{
		{"add", "float32[2,3], float32[2,4]", "do not broadcast: dimension 1 of the first is 3, dimension 1 of the second is 4",
			func() { f(2, 3).Add(f(2, 4)) }},
		{"mul", "float32[2], float64[2]", "element types differ", func() { f(2).Mul(New(hostDevice, Float64, 2)) }},
		{"pow", "int64[2], int64[2], int64[2]", "no kernel for int64", func() { ops.Pow(tape.Input(ids(2)), ids(2)) }},
		{"exp", "int64[2], int64[2]", "no kernel for int64", func() { tape.Input(ids(2)).Exp() }},
		{"where", "float32[2]", "must be bool", func() { ops.Where(f(2), f(2), f(2)) }},
		{"matmul", "float32[2,3], float32[4,5]", "dimension 1 of the first is 3, dimension 0 of the second is 4",
			func() { MatMul(f(2, 3), f(4, 5), false, false) }},
		{"matmul", "float32[2], float32[2,3]", "needs matrices", func() { MatMul(f(2), f(2, 3), false, false) }},
		{"matmul", "float32[2,3,4], float32[5,4,6]", "dimension 0 of the first is 2, dimension 0 of the second is 5",
			func() { MatMul(f(2, 3, 4), f(5, 4, 6), false, false) }},
		{"matmul", "float32[2,3,4], float32[4,2]", "transposed true", func() { MatMul(f(2, 3, 4), f(4, 2), true, false) }},
		{"linear", "float32[2,3], float32[5,4]", "dimension 1 of the input is 3, dimension 1 of the weight is 4",
			func() { Linear(f(2, 3), f(5, 4), Tensor{}) }},
		{"linear", "float32[2,3], float32[5,3], float32[3]", "dimension 0 of the bias is 3, dimension 0 of the weight is 5",
			func() { Linear(f(2, 3), f(5, 3), f(3)) }},
		{"linear", "float32[], float32[5,3]", "wants an input [..., in], a weight [out, in]", func() { Linear(f(), f(5, 3), Tensor{}) }},
		{"reshape", "float32[6], float32[4]", "other number", func() { f(6).Reshape(4) }},
		{"reshape", "float32[6]", "to [-1 -1]: only one dimension may be -1", func() { f(6).Reshape(-1, -1) }},
		{"reshape", "float32[0,3]", "to [-1 0]: the others do not say what -1 is", func() { f(0, 3).Reshape(-1, 0) }},
		{"shape", "", "dimension 0 is -2", func() { f(6).Reshape(-2, 3) }},
		{"reshape", "float32[6]", "to 7 dimensions, at most 6", func() { f(6).Reshape(3, -1, 1, 1, 1, 1, 2) }},
		{"shape", "", "7 dimensions, at most 6", func() { New(hostDevice, Float32, 1, 1, 1, 1, 1, 1, 1) }},
		{"shape", "", "dimension 1 is -2", func() { New(hostDevice, Float32, 1, -2) }},
		{"permute", "float32[2,3]", "[0 0] is not a permutation", func() { f(2, 3).Permute(0, 0) }},
		{"permute", "float32[2,3]", "no permutation given", func() { f(2, 3).Permute() }},
		{"transpose", "float32[2,3]", "no dimension 2", func() { f(2, 3).Transpose(0, 2) }},
		{"slice", "float32[2,3]", "elements 1 to 4 of dimension 1", func() { f(2, 3).Slice(1, 1, 4) }},
		{"slice", "float32[]", "no dimension 0", func() { f().Slice(0, 0, 1) }},
		{"split", "float32[5]", "sum to 4, not 5", func() { f(5).Split(0, 2, 2) }},
	}
}

func otherFailures(tape *Tape) []failureCase {
	f := func(dims ...int) Tensor { return tape.Input(New(hostDevice, Float32, dims...)) }
	ids := func(dims ...int) Tensor { return New(hostDevice, Int64, dims...) }
	five, other := FromSlice([]int64{5}, 1), NewTape(hostDevice)
	return []failureCase{
		{"concat", "float32[2,3], float32[2,4]", "dimension 1 of the first is 3, dimension 1 of another is 4",
			func() { Concat(0, f(2, 3), f(2, 4)) }},
		{"concat", "", "no operand is on a tape", func() { Concat(0) }},
		{"pad", "float32[2]", "-1 before", func() { ops.Pad(f(2), 0, -1, 0) }},
		{"broadcast", "float32[3], float32[2]", "", func() { f(3).Broadcast(2) }},
		{"broadcast", "float32[3], float32[1]", "does not fit", func() { f(3).Broadcast(1) }},
		{"sum", "float32[2]", "no dimension 1", func() { f(2).Sum(1) }},
		{"max", "float32[2,0]", "no elements in dimension 1", func() { ops.Max(f(2, 0), 1) }},
		{"softmax", "float32[]", "needs a dimension", func() { ops.Softmax(f()) }},
		{"softmax_causal", "float32[3,2]", "no more queries than keys", func() { ops.SoftmaxCausal(f(3, 2)) }},
		{"layer_norm", "float32[3,2], float32[3]", "dimension 1 of the input is 2, the weight has 3 elements",
			func() { ops.LayerNorm(f(3, 2), f(3), Tensor{}, 1) }},
		{"embedding", "float32[5,2], int64[1]", "index 0 is 5, not in [0,5)", func() { ops.Embedding(f(5, 2), five) }},
		{"embedding", "float32[5,2], float32[3]", "must be int64", func() { ops.Embedding(f(5, 2), f(3)) }},
		{"gather", "float32[2,3], int64[3,1]", "dimension 0 of the input is 2, dimension 0 of the indices is 3",
			func() { ops.Gather(f(2, 3), 1, ids(3, 1)) }},
		{"scatter_add", "float32[2], int64[3], float32[2]", "dimension 0 of the indices is 3, dimension 0 of the source is 2",
			func() { ops.ScatterAdd(f(2), 0, ids(3), f(2)) }},
		{"dropout", "", "probability 1 is not in [0,1)", func() { ops.Dropout(f(2), 1, 0) }},
		{"dropout", "", "probability NaN is not in [0,1)", func() { ops.Dropout(f(2), math.NaN(), 0) }},
		{"shape", "", "dimensions 0 to 1 have too many elements", func() { New(hostDevice, Float32, 1<<40, 1<<40) }},
		{"alloc", "float32[70368744177664]", "256.00 TiB (other) on cpu", func() { New(hostDevice, Float32, 1<<46) }},
		{"alloc", "float32[70368744177664]", "256.00 TiB (activations) on cpu", func() { tape.New(Float32, 1<<46) }},
		{"use", "", "DType(77) is not an element type", func() { New(hostDevice, 77, 2) }},
		{"use", "", "DType(77) is not an element type", func() { tape.New(77, 2) }},
		{"use", "", "DType(77) is not an element type", func() { f(2).Cast(77) }},
		{"use", "", "DType(77) is not an element type", func() { FromPtr(hostDevice, f(2).Ptr(), 77, 2) }},
		{"cross_entropy", "float32[3,2,5], int64[2,3]", "dimension 0 of the logits is 3, dimension 0 of the labels is 2",
			func() { ops.CrossEntropy(f(3, 2, 5), ids(2, 3), ops.CrossEntropyOptions{}) }},
		{"cross_entropy", "", "smoothing 2 is not in [0,1]", func() { ops.CrossEntropy(f(2, 5), ids(2), ops.CrossEntropyOptions{Smoothing: 2}) }},
		{"cross_entropy", "float32[1,5], int64[1]", "label 0 is 5, of 5 classes",
			func() { ops.CrossEntropy(f(1, 5), five, ops.CrossEntropyOptions{}) }},
		{"cross_entropy", "float32[2,5], int64[3]", "dimension 0 of the logits is 2, dimension 0 of the labels is 3",
			func() { ops.CrossEntropy(f(2, 5), ids(3), ops.CrossEntropyOptions{}) }},
		{"mse", "float32[2], float32[1,2]", "the input: 1 dimension, the target: 2 dimensions", func() { ops.MSE(f(2), f(1, 2)) }},
		{"WithAux", "float32[2]", "must have one element", func() { WithAux(f(1), f(2), 1) }},
		{"Item", "float32[2]", "2 elements, not one", func() { f(2).Item() }},
		{"Dim", "float32[2]", "no dimension -2", func() { f(2).Dim(-2) }},
		{"Data", "float32[2]", "read as int32", func() { Data[int32](f(2)) }},
		{"FromSlice", "float32[3]", "2 elements given, the shape has 3", func() { FromSlice([]float32{1, 2}, 3) }},
		{"View", "float32[4], float32[3]", "same number", func() { New(hostDevice, Float32, 4).View(3) }},
		{"View", "float32[4], float32[4]", "outside a tape", func() { f(4).View(4) }},
		{"Range", "float32[4]", "elements 1 to 5", func() { New(hostDevice, Float32, 4).Range(1, 5) }},
		{"Bytes", "float32[3,1]", "not contiguous", func() { f(3, 2).Slice(1, 0, 1).Bytes() }},
		{"use", "", "the zero Tensor", func() { f(2).Add(Tensor{}) }},
		{"use", "float32[2]", "tensor of another tape", func() { f(2).Add(other.Input(New(hostDevice, Float32, 2))) }},
		{"exp", "float32[2]", "no operand is on a tape", func() { New(hostDevice, Float32, 2).Exp() }},
		{"Backward", "float32[]", "needs one element, computed from parameters", func() { tape.Backward(f(2).Sum()) }},
		{"Initializer.Fill", "int64[2]", "needs a contiguous float tensor", func() { Constant(1).Fill(ids(2), 0, 0) }},
		{"identity", "", "9 inputs, at most 8", func() { x := f(1); tape.Apply(identity{}, x, x, x, x, x, x, x, x, x) }},
		{"identity", "", "input 0 is the zero Tensor", func() { tape.Apply(identity{}, Tensor{}) }},
		{"Register", "", "needs a name and either", func() { Register(OpSpec{Name: "x"}) }},
	}
}

// Try recovers only Failures, and gives access to their cause.
func TestTry(t *testing.T) {
	cause := errors.New("rank 2 is gone")
	err := Try(func() {
		panic(&Failure{Op: "all_reduce", Shapes: []Shape{{Float32, []int{3}}, {Float64, nil}}, Err: cause})
	})
	assert.ErrorIs(t, err, cause)
	assert.Regexp(t, `^all_reduce float32\[3\], float64\[\]: rank 2 is gone \(at (\S+/)?failure_test.go:\d+\)$`, err.Error())
	assert.NoError(t, Try(func() {}))
	assert.PanicsWithValue(t, "other", func() { _ = Try(func() { panic("other") }) })
}

// A handle to step memory is invalid after Reset and, unless it was kept, after Backward.
func TestStaleHandles(t *testing.T) {
	ps := &params{dev: hostDevice, dtype: Float32}
	w := ps.add("w", Constant(2), 3)
	tape := NewTape(hostDevice)
	leaf := tape.Use(w)
	x, y := leaf.Square(), leaf.Exp()
	tape.Keep(y)
	loss := x.Mul(y).Sum()
	tape.Backward(loss)
	assert.True(t, y.Valid() && loss.Valid())
	assert.InDelta(t, 3*4*7.389056, loss.Item(), 1e-3)
	assert.False(t, x.Valid())
	assert.ErrorContains(t, Try(func() { x.Len() }), "float32[3]: used after Tape.Reset, or after Backward released it")
	tape.Reset()
	for _, old := range []Tensor{leaf, x, y, loss} {
		assert.False(t, old.Valid())
		assert.ErrorContains(t, Try(func() { old.Add(old) }), "used after Tape.Reset")
	}
	tape.Input(random(hostDevice, Float32, 1, 3)).Exp() // uses their headers again
	assert.ErrorContains(t, Try(func() { Floats(y) }), "used after Tape.Reset")
	assert.True(t, Tensor{}.IsZero())
	assert.False(t, Tensor{}.Valid())
}

// Errors about values that were never made, or are not resident, name the parameter.
func TestParameterWithoutMemory(t *testing.T) {
	p := NewParam(Constant(0), 2, 3)
	p.SetName("blocks.1.weight")
	tape := NewTape(hostDevice)
	assert.ErrorContains(t, Try(func() { tape.Use(p) }), "blocks.1.weight of shape [2 3] was never made: call nn.Init or Attach first")
	p.SetValue(FromPtr(hostDevice, nil, Float32, 2, 3))
	assert.ErrorContains(t, Try(func() { tape.Use(p).Exp() }), "float32[2,3]: memory of blocks.1.weight is not there")
	assert.ErrorContains(t, Try(func() { p.SetValue(New(hostDevice, Float32, 5)) }), "blocks.1.weight has shape [2 3]")
}

// A Failure that nobody recovers is printed with its line, too; an unknown instruction set is an example.
func TestUncaught(t *testing.T) {
	f := func(dims ...int) Tensor { return NewTape(hostDevice).Input(New(hostDevice, Float32, dims...)) }
	switch os.Getenv("RINGO_UNCAUGHT") {
	case "shapes":
		f(2, 3).Reshape(4)
	case "cpu":
		cpu.New(1)
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	for mode, want := range map[string]string{
		"shapes": `panic: reshape float32\[2,3\], float32\[4\]: other number of elements \(at (\S+/)?failure_test.go:\d+\)`,
		"cpu":    `panic: cpu.New: RINGO_CPU=avx9: this CPU and build support .*generic \(at (\S+/)?failure_test.go:\d+\)`,
	} {
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestUncaught$")
		cmd.Env = append(os.Environ(), "RINGO_UNCAUGHT="+mode, "RINGO_DEBUG=")
		if mode == "cpu" {
			cmd.Env = append(cmd.Env, "RINGO_CPU=avx9")
		}
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		assert.Regexp(t, want, string(out))
	}
}

// A shape error names the parameter that an operand is.
func TestFailureNamesParameters(t *testing.T) {
	w := NewParam(Constant(1), 4, 2)
	w.SetName("layers.0.weight")
	w.Make(hostDevice, Float32, 1)
	tape := NewTape(hostDevice)
	x := tape.Input(New(hostDevice, Float32, 3, 5))
	err := Try(func() { Linear(x, tape.Use(w), Tensor{}) })
	assert.ErrorContains(t, err,
		"linear float32[3,5], layers.0.weight float32[4,2]: dimension 1 of the input is 5, dimension 1 of layers.0.weight is 2 (at ")
	err = Try(func() { x.Add(tape.Use(w).Slice(0, 0, 2)) })
	assert.ErrorContains(t, err, "add float32[3,5], layers.0.weight float32[2,2]: shapes do not broadcast: "+
		"dimension 1 of the first is 5, dimension 1 of layers.0.weight is 2 (at ", "a part of it")
	err = Try(func() { w.Value.Item() })
	assert.ErrorContains(t, err, "Item layers.0.weight float32[4,2]: has 8 elements, not one (at ")
}
