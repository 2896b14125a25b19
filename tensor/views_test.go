package tensor_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	. "github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/ops"
)

func TestIntegerDivision(t *testing.T) {
	tape := NewTape(hostDevice)
	x := tape.Input(FromSlice([]int32{7, -7, 3}, 3)).Div(FromSlice([]int32{2, 2, 0}, 3))
	assert.Equal(t, []int32{3, -3, 0}, Data[int32](x))
}

// A column of a matrix is a view whose elements do not lie one after another.
func TestColumnViews(t *testing.T) {
	tape := NewTape(hostDevice)
	x := tape.Input(FromSlice([]float32{1, 2, 3, 4, 5, 6}, 3, 2))
	col := x.Slice(1, 1, 2)
	assert.False(t, col.Contiguous())
	assert.Equal(t, []float64{2, 4, 6}, Floats(col))
	assert.Equal(t, []float64{3, 7, 11}, Floats(col.Add(x.Slice(1, 0, 1))))
	assert.Equal(t, []float64{4, 16, 36}, Floats(col.Square()))
	assert.Equal(t, []float64{56}, Floats(MatMul(col, col, true, false)))
	ids := tape.Input(FromSlice([]int64{0, 2, 1, 0}, 2, 2))
	assert.Equal(t, []float64{5, 6, 1, 2}, Floats(ops.Embedding(x, ids.Slice(1, 1, 2))))
	assert.Equal(t, []float64{6, 2}, Floats(ops.Embedding(x.Slice(1, 1, 2), ids.Slice(1, 1, 2))))
	loss := ops.CrossEntropy(tape.Input(FromSlice([]float64{0, 0, 0, 1, 0, 0}, 2, 3)), ids.Slice(1, 1, 2), ops.CrossEntropyOptions{})
	assert.InDelta(t, (math.Log(3)+math.Log(math.E+2)-1)/2, loss.Item(), 1e-12)
}

// A view without elements does not point behind the memory: there is other memory, which may be free, and then Go's garbage collector ends
// the program.
func TestEmptyViews(t *testing.T) {
	tape := NewTape(hostDevice)
	data := make([]float64, 4) // fills its block of the heap
	x := FromSlice(data, 2, 2)
	in := tape.Input(x)
	column := in.Slice(1, 0, 1)
	for _, v := range []Tensor{
		x.Range(4, 4), x.Slice(0, 2, 2), x.Range(4, 4).Range(0, 0), in.Slice(0, 2, 2), in.Slice(1, 2, 2), column.Slice(0, 2, 2),
		in.Slice(0, 1, 2).Slice(0, 1, 1), in.Split(0, 2, 0)[1], in.Slice(0, 2, 2).Reshape(0, 4),
	} {
		assert.Zero(t, v.Len())
		at := uintptr(v.Ptr()) - uintptr(x.Ptr())
		assert.Less(t, at, uintptr(8*len(data)), v.String())
	}
	assert.Equal(t, []float64{0}, Floats(in.Slice(0, 2, 2).Sum()))
}
