package gorgonia

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	gt "gorgonia.org/tensor"

	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// The package works with this version of Go without a setting in the environment.
func TestStartsWithoutEnvironment(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^$")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ASSUME_NO_MOVING_GC") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// shared checks that a 2x3 Dense of T and its tensor share memory, in both directions.
func shared[T tensor.Elem](t *testing.T, want tensor.DType, values, other []T) {
	t.Run(want.String(), func(t *testing.T) {
		d := gt.New(gt.WithShape(2, 3), gt.WithBacking(values))
		x, err := FromDense(d)
		require.NoError(t, err)
		assert.Equal(t, tensor.Shape{DType: want, Dims: []int{2, 3}}, x.Shape())
		assert.Equal(t, values, tensor.Data[T](x))
		require.NoError(t, d.SetAt(other[0], 1, 2))
		assert.Equal(t, other[0], tensor.Data[T](x)[5])

		y := tensor.FromSlice(append([]T(nil), values...), 3, 2)
		e, err := Dense(y)
		require.NoError(t, err)
		assert.Equal(t, gt.Shape{3, 2}, e.Shape())
		at, err := e.At(2, 0)
		require.NoError(t, err)
		assert.Equal(t, values[4], at)
		tensor.Data[T](y)[1] = other[1]
		require.NoError(t, e.SetAt(other[2], 2, 1))
		at, err = e.At(0, 1)
		require.NoError(t, err)
		assert.Equal(t, other[1], at)
		assert.Equal(t, other[2], tensor.Data[T](y)[5])
	})
}

func TestMemoryIsShared(t *testing.T) {
	shared(t, tensor.Float32, []float32{1, 2, 3, 4, 5, 6}, []float32{7, 8, 9})
	shared(t, tensor.Float64, []float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9})
	shared(t, tensor.Int32, []int32{1, 2, 3, 4, 5, 6}, []int32{7, 8, 9})
	shared(t, tensor.Int64, []int64{1, 2, 3, 4, 5, 6}, []int64{7, 8, 9})
	shared(t, tensor.Uint8, []uint8{1, 2, 3, 4, 5, 6}, []uint8{7, 8, 9})
	shared(t, tensor.Bool, []bool{true, false, true, false, true, true}, []bool{false, true, false})
}

func TestFromDenseInt(t *testing.T) {
	backing := []int{1, -2, 3}
	x, err := FromDense(gt.New(gt.WithBacking(backing)))
	require.NoError(t, err)
	assert.Equal(t, "int64[3]", x.Shape().String())
	backing[1] = 5
	assert.Equal(t, []int64{1, 5, 3}, tensor.Data[int64](x))
}

func TestShapes(t *testing.T) {
	for _, dims := range [][]int{{}, {1}, {6}, {1, 6}, {6, 1}, {1, 1}, {2, 1, 3}, {1, 2, 1, 3, 1, 1}} {
		d := gt.New(gt.WithShape(dims...), gt.Of(gt.Float32))
		x, err := FromDense(d)
		require.NoError(t, err, dims)
		assert.Equal(t, len(dims), x.NDim())
		assert.Equal(t, fmt.Sprint(dims), fmt.Sprint(x.Shape().Dims))
		tensor.Data[float32](x)[0] = 7 // shared, also for a single number
		back, err := Dense(x)
		require.NoError(t, err, dims)
		assert.Equal(t, fmt.Sprint(d.Shape()), fmt.Sprint(back.Shape()))
		assert.Equal(t, float32(7), d.Get(0))
		assert.Equal(t, float32(7), back.Get(0))
		back.Set(0, float32(8))
		assert.Equal(t, float32(8), d.Get(0))
	}
}

func TestRowsShareMemory(t *testing.T) {
	d := gt.New(gt.WithShape(4, 3), gt.WithBacking(gt.Range(gt.Float64, 0, 12)))
	rows, err := d.Slice(gt.S(1, 3))
	require.NoError(t, err)
	x, err := FromDense(rows.(*gt.Dense))
	require.NoError(t, err)
	assert.Equal(t, "float64[2,3]", x.Shape().String())
	assert.Equal(t, []float64{3, 4, 5, 6, 7, 8}, tensor.Data[float64](x))
	tensor.Data[float64](x)[0] = 99
	assert.Equal(t, 99.0, d.Get(3))
}

func TestOtherLayoutsAreErrors(t *testing.T) {
	d := gt.New(gt.WithShape(2, 3), gt.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	require.NoError(t, d.T())
	_, err := FromDense(d)
	assert.ErrorContains(t, err, "strides [1 3] are not row-major")
	require.NoError(t, d.Transpose())
	x, err := FromDense(d)
	require.NoError(t, err)
	assert.Equal(t, "float32[3,2]", x.Shape().String())
	assert.Equal(t, []float32{1, 4, 2, 5, 3, 6}, tensor.Data[float32](x))

	for _, s := range [][]gt.Slice{{nil, gt.S(0, 1)}, {nil, gt.S(1, 3)}, {gt.S(0, 4, 2)}} {
		whole := gt.New(gt.WithShape(4, 3), gt.WithBacking(gt.Range(gt.Float32, 0, 12)))
		view, err := whole.Slice(s...)
		require.NoError(t, err)
		_, err = FromDense(view.(*gt.Dense))
		assert.ErrorContains(t, err, "not row-major", s)
		x, err := FromDense(view.Materialize().(*gt.Dense))
		require.NoError(t, err)
		require.Equal(t, view.Shape().TotalSize(), x.Len())
		want := []float32{}
		it := gt.FlatIteratorFromDense(view.(*gt.Dense))
		for i, err := it.Next(); err == nil; i, err = it.Next() {
			want = append(want, view.(*gt.Dense).Get(i).(float32))
		}
		assert.Equal(t, want, tensor.Data[float32](x))
	}
	_, err = FromDense(gt.New(gt.WithShape(2, 3), gt.AsFortran([]float32{1, 2, 3, 4, 5, 6})))
	assert.ErrorContains(t, err, "strides [1 2]")
}

func TestFromDenseErrors(t *testing.T) {
	for want, d := range map[string]*gt.Dense{
		"of nil":                   nil,
		"int8(3)":                  gt.New(gt.WithBacking([]int8{1, 2, 3})),
		"complex64(1)":             gt.New(gt.WithBacking([]complex64{1}), gt.WithShape(1)),
		"it has a mask":            gt.New(gt.WithBacking([]float32{1, 2}, []bool{true, false})),
		"more than 6 dimensions":   gt.New(gt.WithShape(1, 1, 1, 1, 1, 1, 2), gt.Of(gt.Float32)),
		"want float32, float64, i": gt.New(gt.WithBacking([]string{"a", "b"})),
	} {
		_, err := FromDense(d)
		assert.ErrorContains(t, err, want)
	}
}

func TestDenseErrors(t *testing.T) {
	for want, x := range map[string]tensor.Tensor{
		"none":             {},
		"bfloat16[2]":      tensor.FromSlice(make([]tensor.BF16, 2), 2),
		"no empty arrays":  tensor.FromSlice([]float32{}, 0, 3),
		"memory is on far": tensor.FromPtr(far{}, nil, tensor.Float32, 2),
	} {
		_, err := Dense(x)
		assert.ErrorContains(t, err, want)
	}
}

type far struct{ tensor.Device }

func (far) String() string { return "far" }
func (far) Host() bool     { return false }

// The memory lives as long as either side does.
func TestMemoryStaysAlive(t *testing.T) {
	var xs []tensor.Tensor
	var ds []*gt.Dense
	n := 10
	if reliability.Long(t) {
		n = 50
	}
	for i := range n {
		values := make([]float32, 1000)
		for j := range values {
			values[j] = float32(i)
		}
		x, err := FromDense(gt.New(gt.WithShape(10, 100), gt.WithBacking(values)))
		require.NoError(t, err)
		y := tensor.New(x.Device(), tensor.Float32, 1000)
		copy(tensor.Data[float32](y), values)
		d, err := Dense(y)
		require.NoError(t, err)
		xs, ds = append(xs, x), append(ds, d)
		runtime.GC()
	}
	for i := range xs {
		for j, v := range tensor.Data[float32](xs[i]) {
			require.Equal(t, float32(i), v)
			require.Equal(t, float32(i), ds[i].Get(j))
		}
	}
}

func TestLongMemoryStaysAlive(t *testing.T) { reliability.AsLong(t, TestMemoryStaysAlive) }

// Tensors of a tape are copied: Reset must not change a Dense.
func TestTapeTensorsAreCopied(t *testing.T) {
	dev := cpu.New(1)
	defer dev.Close()
	tape := tensor.NewTape(dev)
	defer tape.Close()
	x := tensor.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	sum := tape.Input(x).Add(tape.Input(x))
	d, err := Dense(sum)
	require.NoError(t, err)
	tensor.Data[float32](sum)[0] = 99
	columns, err := Dense(tape.Input(x).Slice(1, 1, 3))
	require.NoError(t, err)
	row, err := Dense(tape.Input(x).Slice(0, 1, 2).Slice(1, 1, 3))
	require.NoError(t, err)
	tape.Reset()
	for range 3 { // use the memory again
		tape.Input(x).Scale(-1)
	}
	assert.Equal(t, []float32{2, 4, 6, 8, 10, 12}, d.Data())
	assert.Equal(t, []float32{2, 3, 5, 6}, columns.Data())
	assert.Equal(t, []float32{5, 6}, row.Data())
	_, err = Dense(sum)
	assert.ErrorContains(t, err, "was released")
}
