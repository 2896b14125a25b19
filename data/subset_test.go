package data_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// numbered is a Dataset of the numbers of its samples, in three uneven classes. Some cannot be read. In an epoch, each has more.
type numbered struct {
	n      int
	broken []int
}

func (d numbered) Len() int { return d.n }

func (d numbered) Shapes() (x, y tensor.Shape) {
	return tensor.Shape{DType: tensor.Float64, Dims: []int{2}}, tensor.Shape{DType: tensor.Int64}
}

func (d numbered) Batch(idx []int, x, y tensor.Tensor) error { return d.BatchAt(0, idx, x, y) }

func (d numbered) BatchAt(epoch int, idx []int, x, y tensor.Tensor) error {
	for row, i := range idx {
		if slices.Contains(d.broken, i) {
			return fmt.Errorf("file %d is damaged", i)
		}
		tensor.Data[float64](x)[2*row], tensor.Data[float64](x)[2*row+1] = float64(i), float64(1000*epoch+i)
		tensor.Data[int64](y)[row] = int64(classOf(i))
	}
	return nil
}

func classOf(i int) int { return min(i%5, 2) }

// The parts have the sizes of PyTorch's random_split, every sample is in one of them, and the seed alone decides.
func TestSplit(t *testing.T) {
	for _, c := range []struct {
		n     int
		parts []float64
		sizes []int
	}{
		{10, []float64{0.8, 0.2}, []int{8, 2}},
		{7, []float64{0.5, 0.5}, []int{4, 3}},
		{100, []float64{0.29, 0.71}, []int{29, 71}},
		{11, []float64{0.3, 0.3, 0.4}, []int{4, 3, 4}},
		{5, []float64{1}, []int{5}},
	} {
		for name, split := range map[string]func(data.Dataset, uint64, ...float64) ([]*data.Subset, error){
			"by chance": data.Split, "by class": data.SplitByClass,
		} {
			ds := numbered{n: c.n}
			sets, err := split(ds, 3, c.parts...)
			require.NoError(t, err)
			again, err := split(ds, 3, c.parts...)
			require.NoError(t, err)
			assert.Equal(t, sets, again)
			var all, sizes []int
			for _, s := range sets {
				all, sizes = append(all, s.Indices...), append(sizes, s.Len())
			}
			assert.Equal(t, c.sizes, sizes, "%s: %d in %v", name, c.n, c.parts)
			slices.Sort(all)
			for i, k := range all {
				assert.Equal(t, i, k)
			}
			assert.Len(t, all, c.n)
		}
	}
	one, err := data.Split(numbered{n: 30}, 1, 0.5, 0.5)
	require.NoError(t, err)
	other, err := data.Split(numbered{n: 30}, 2, 0.5, 0.5)
	require.NoError(t, err)
	assert.NotEqual(t, one[0].Indices, other[0].Indices)
}

// Each part has as many samples of a class as its share says, or one less or more.
func TestSplitByClass(t *testing.T) {
	ds := numbered{n: 103}
	labels, err := data.Labels(ds)
	require.NoError(t, err)
	parts := []float64{0.7, 0.2, 0.1}
	sets, err := data.SplitByClass(ds, 9, parts...)
	require.NoError(t, err)
	for p, s := range sets {
		of, err := data.Labels(s)
		require.NoError(t, err)
		for class := range 3 {
			assert.InDelta(t, parts[p]*float64(count(labels, class)), count(of, class), 1.3, "class %d in part %d", class, p)
		}
	}
}

func count(labels []int, class int) (n int) {
	for _, c := range labels {
		if c == class {
			n++
		}
	}
	return n
}

// A Subset of a Subset reads the right samples, of the epoch that the Loader is in; so it does on three ranks.
func TestSubset(t *testing.T) {
	outer, err := data.NewSubset(numbered{n: 20}, []int{19, 3, 3, 7, 11, 0, 12})
	require.NoError(t, err)
	s, err := data.NewSubset(outer, []int{6, 0, 1, 2, 3})
	require.NoError(t, err)
	assert.Equal(t, "5 samples of 7 samples of data_test.numbered", s.String())
	for ranks := 1; ranks <= 3; ranks++ {
		var x, y []float64
		for r := range ranks {
			l := data.NewLoader(s, data.Config{Batch: 5, Sharder: rank{r, ranks}})
			for _, b := range l.Epoch(t.Context(), 4) {
				x, y = append(x, tensor.Floats(b.X)...), append(y, tensor.Floats(b.Y)...)
			}
			require.NoError(t, l.Err())
		}
		assert.Equal(t, []float64{12, 4012, 19, 4019, 3, 4003, 3, 4003, 7, 4007}, x)
		assert.Equal(t, []float64{2, 2, 2, 2, 2}, y)
	}
	labels, err := data.Labels(s)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2, 2, 2, 2}, labels)
	x, y := tensor.New(cpu.New(1), tensor.Float64, 1, 2), tensor.New(cpu.New(1), tensor.Int64, 1)
	require.EqualError(t, s.Batch([]int{5}, x, y), "sample 5, of 5")
}

// What cannot be read is left out and counted, also in a batch with others; a filter sees every sample once.
func TestReadableAndFilter(t *testing.T) {
	ds := numbered{70, []int{0, 33, 69}}
	s, skipped, err := data.Readable(ds)
	require.NoError(t, err)
	assert.Equal(t, 67, s.Len())
	assert.Equal(t, "3 skipped, the first one: sample 0: file 0 is damaged", skipped.String())
	assert.False(t, slices.ContainsFunc(s.Indices, func(i int) bool { return slices.Contains(ds.broken, i) }))
	var seen []int
	even, err := data.Filter(s, func(i int, x, y tensor.Tensor) bool {
		seen = append(seen, i)
		assert.Equal(t, float64(s.Indices[i]), tensor.Floats(x)[0])
		assert.Equal(t, []int{1, 2}, x.Shape().Dims)
		return tensor.Floats(y)[0] == 0
	})
	require.NoError(t, err)
	assert.Len(t, seen, 67)
	assert.Equal(t, []int{5, 10, 15}, []int{s.Indices[even.Indices[0]], s.Indices[even.Indices[1]], s.Indices[even.Indices[2]]})
	all, skipped, err := data.Readable(even)
	require.NoError(t, err)
	assert.Equal(t, "0 skipped", skipped.String())
	assert.Equal(t, even.Len(), all.Len())

	_, err = data.Filter(ds, func(int, tensor.Tensor, tensor.Tensor) bool { return true })
	require.EqualError(t, err, "data: data_test.numbered, sample 0: file 0 is damaged")
	_, err = data.Filter(even, func(int, tensor.Tensor, tensor.Tensor) bool { return false })
	require.ErrorContains(t, err, "data: the filter keeps none of ")
	_, err = data.Labels(numbered{2, []int{1}})
	require.ErrorContains(t, err, "sample 1: file 1 is damaged")
	_, skipped, err = data.Readable(numbered{2, []int{0, 1}})
	require.ErrorContains(t, err, "none of the samples can be read: sample 0: file 0 is damaged")
	assert.Equal(t, 2, skipped.Count)
}
