package data_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

type rank struct{ rank, size int }

func (r rank) Rank() int { return r.rank }
func (r rank) Size() int { return r.size }

// gradients returns loss and gradient of each step of an epoch on one rank, with dropout and without an optimizer.
func gradients(t *testing.T, ds data.Dataset, r rank) (losses []float64, grads [][]float64) {
	t.Helper()
	dev := cpu.New(1)
	defer dev.Close()
	w := tensor.NewParam(tensor.UniformInit(-0.1, 0.1), 10, 784)
	w.Make(dev, tensor.Float64, 1)
	tape := tensor.NewTape(dev, tensor.Seed(2))
	defer tape.Close()
	batches := data.NewLoader(ds, data.Config{Batch: 10, Shuffle: true, Seed: 3, Sharder: r, Device: dev})
	for i, b := range batches.Epoch(t.Context(), 0) {
		tape.SetStep(i, 0)
		x := ops.Dropout(tape.Input(b.X), 0.5, 4)
		loss := ops.CrossEntropy(tensor.Linear(x, tape.Use(w), tensor.Tensor{}), b.Y, ops.CrossEntropyOptions{})
		losses = append(losses, loss.Item())
		tape.Backward(loss)
		grads = append(grads, tensor.Floats(w.Grad))
		w.Consume()
		tape.Reset()
	}
	require.NoError(t, batches.Err())
	return losses, grads
}

// Losses and gradients, summed over ranks, equal those of one rank, also if a rank has no rows in the last batch.
func TestRanksEqualOneRank(t *testing.T) {
	ds, err := data.Synthetic(32, 1, tensor.Float64) // batches of 10, 10, 10 and 2
	require.NoError(t, err)
	wantLoss, wantGrad := gradients(t, ds, rank{0, 1})
	require.Len(t, wantLoss, 4)
	for _, n := range []int{2, 3, 4} {
		loss, grad := make([]float64, 4), make([][]float64, 4)
		for r := range n {
			l, g := gradients(t, ds, rank{r, n})
			for i := range l {
				loss[i] += l[i]
				if grad[i] == nil {
					grad[i] = make([]float64, len(g[i]))
				}
				for j, v := range g[i] {
					grad[i][j] += v
				}
			}
		}
		assert.InDeltaSlice(t, wantLoss, loss, 1e-12, "%d ranks", n)
		for i := range grad {
			assert.InDeltaSlice(t, wantGrad[i], grad[i], 1e-12, "%d ranks, step %d", n, i)
		}
	}
}

// onAxes is a rank of a group along axes of a job, as those of package dist are.
type onAxes struct {
	rank
	axes tensor.Axes
}

func (o onAxes) Axes() tensor.Axes { return o.axes }

// Batches know their number, and the axes along which ranks hold other rows: their losses have the kind Partial on these axes.
func TestBatchesSayTheirAxes(t *testing.T) {
	ds, err := data.Synthetic(10, 1, tensor.Float32)
	require.NoError(t, err)
	batches := data.NewLoader(ds, data.Config{Batch: 10, Sharder: onAxes{rank{1, 3}, 2}})
	for _, b := range batches.Epoch(t.Context(), 3) {
		rows := tensor.Rows{First: 4, Stride: 1, Total: 10, Over: 2, Number: 4}
		assert.Equal(t, rows, b.X.Rows())
		assert.Equal(t, rows, b.Y.Rows())
	}
	require.NoError(t, batches.Err())
}

// Groups of samples stay together, in their order, on one rank, and batches say so; the last batch has fewer groups than ranks.
func TestGroups(t *testing.T) {
	const n, group, ranks = 24, 3, 3
	ds, err := data.NewTensors(tensor.FromSlice(upTo(n), n, 1), tensor.FromSlice(make([]int64, n), n))
	require.NoError(t, err)
	seen := map[int][]float64{} // by batch
	for r := range ranks {
		l := data.NewLoader(ds, data.Config{Batch: 9, Group: group, Shuffle: true, Seed: 1, Sharder: rank{r, ranks}})
		for i, b := range l.Epoch(t.Context(), 0) {
			assert.Equal(t, group, b.X.Rows().Group)
			x := tensor.Floats(b.X)
			for k := range x {
				assert.Equal(t, x[k/group*group]+float64(k%group), x[k])
				assert.Zero(t, math.Mod(x[k/group*group], group))
			}
			seen[i] = append(seen[i], x...)
		}
		require.NoError(t, l.Err())
	}
	var whole []float64
	one := data.NewLoader(ds, data.Config{Batch: 9, Group: group, Shuffle: true, Seed: 1})
	for i, b := range one.Epoch(t.Context(), 0) {
		assert.Equal(t, tensor.Floats(b.X), seen[i])
		whole = append(whole, tensor.Floats(b.X)...)
	}
	assert.NotEqual(t, upTo(n), whole)
	assert.ElementsMatch(t, upTo(n), whole)
}

func upTo(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i)
	}
	return x
}
