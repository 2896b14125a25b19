package score_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/score"
)

const classes, rows = 4, 23

// made returns logits with ties, and labels: class 3 is rare.
func made() (logits []float32, labels []int64) {
	for row := range rows {
		for c := range classes {
			logits = append(logits, float32((row*7+c*c*5)%6))
		}
		labels = append(labels, int64(row*row%3+row/22))
	}
	return logits, labels
}

func part(x []float32, y []int64, width, rank, ranks int) (logits, labels tensor.Tensor) {
	lo, end := layout.Share(len(y), rank, ranks)
	return tensor.FromSlice(x[lo*width:end*width], end-lo, width), tensor.FromSlice(y[lo:end], end-lo)
}

// Values by their definitions, row by row and pair by pair.
func defined() (accuracy, top2, macro float64) {
	x, y := made()
	var right, predicted, there [classes]float64
	for row := range rows {
		of, class := x[row*classes:][:classes], int(y[row])
		best, larger := 0, 0
		for i, v := range of {
			if v > of[best] {
				best = i
			}
			if v > of[class] || v == of[class] && i < class {
				larger++
			}
		}
		if larger < 2 {
			top2 += 1.0 / rows
		}
		if best == class {
			right[class]++
			accuracy += 1.0 / rows
		}
		predicted[best]++
		there[class]++
	}
	n := 0.0
	for c := range classes {
		if predicted[c]+there[c] > 0 {
			n++
			if right[c] > 0 {
				precision, recall := right[c]/predicted[c], right[c]/there[c]
				macro += 2 * precision * recall / (precision + recall)
			}
		}
	}
	return accuracy, top2, macro / n
}

// Three ranks with uneven rows, of which one may have none, have the values of one rank, to the last bit.
func TestRanksEqualOneRank(t *testing.T) {
	accuracy, top2, macro := defined()
	var want []float64
	for _, ranks := range []int{1, 2, 3, 25} {
		err := dist.Run(t.Context(), dist.Config{Ranks: ranks, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			x, y := made()
			logits, labels := part(x, y, classes, r.World.Rank(), ranks)
			mine := score.New(classes)
			if err := mine.Add(logits, labels); err != nil {
				return err
			}
			all, err := mine.Sum(r.World)
			if err != nil {
				return err
			}
			again, err := mine.Sum(r.World) // mine stays this rank's
			if err != nil {
				return err
			}
			assert.Equal(t, all, again)
			got := []float64{all.Accuracy(), all.TopK(2), all.MacroF1(), all.F1(0), all.TopK(4)}
			assert.Equal(t, rows, all.Rows())
			if ranks == 1 {
				want = got
				assert.InDeltaSlice(t, []float64{accuracy, top2, macro}, got[:3], 1e-12)
				assert.Equal(t, 1.0, got[4])
			}
			assert.Equal(t, want, got, "%d ranks", ranks)
			return nil
		})
		require.NoError(t, err)
	}
}

// The area is the part of pairs in the right order, with ties as halves, on any number of ranks.
func TestAUC(t *testing.T) {
	x, y := make([]float32, rows), make([]int64, rows)
	for i := range x {
		x[i], y[i] = float32(i*5%7)-float32(i%2), int64(i*i%4)
	}
	want, pairs := 0.0, 0.0
	for i, a := range y {
		for j, b := range y {
			if a == 1 && b == 0 {
				pairs++
				if x[i] > x[j] {
					want++
				} else if x[i] == x[j] {
					want += 0.5
				}
			}
		}
	}
	for _, ranks := range []int{1, 2, 3} {
		err := dist.Run(t.Context(), dist.Config{Ranks: ranks, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			scores, labels := part(x, y, 1, r.World.Rank(), ranks)
			var roc score.ROC
			if err := roc.Add(scores, labels); err != nil {
				return err
			}
			got, err := roc.AUC(r.World)
			assert.InDelta(t, want/pairs, got, 1e-15)
			return err
		})
		require.NoError(t, err)
	}
	require.NoError(t, dist.Run(t.Context(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		var roc score.ROC
		err := roc.Add(tensor.FromSlice([]float32{1, 2}, 2), tensor.FromSlice([]int64{1, 1}, 2))
		got, collective := roc.AUC(r.World)
		assert.True(t, math.IsNaN(got))
		assert.NoError(t, collective)
		return err
	}))
}

func TestRefused(t *testing.T) {
	x, y := tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2), tensor.FromSlice([]int64{0, 2}, 2)
	nan := tensor.FromSlice([]float32{1, float32(math.NaN())}, 1, 2)
	one := tensor.FromSlice([]int64{1}, 1)
	var roc score.ROC
	for want, err := range map[string]error{
		"score: logits are float32[2,2] and labels int64[2]: want [rows, 3] and [rows]": score.New(3).Add(x, y),
		"score: row 1 has label 2: want 0 to 1":                                         score.New(2).Add(x, y),
		"score: row 0 has a logit that is NaN":                                          score.New(2).Add(nan, one),
		"score: scores are float32[2,2] and labels int64[2]: want [rows], or [rows, 1]": roc.Add(x, y),
		"score: row 1 has label 2: want 0 or 1":                                         roc.Add(x.Reshape(4).Slice(0, 0, 2), y),
		"score: row 0 has a score that is NaN":                                          roc.Add(nan.Reshape(2).Slice(0, 1, 2), one),
	} {
		assert.EqualError(t, err, want)
	}
	assert.True(t, math.IsNaN(score.New(3).Accuracy()))
}

func ExampleCounts() {
	err := dist.Run(context.Background(), dist.Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		logits := tensor.FromSlice([]float32{0.9, 0.1, 0.2, 0.8, 0.6, 0.4}, 3, 2)
		labels := tensor.FromSlice([]int64{0, 1, int64(r.World.Rank())}, 3)
		s := score.New(2)
		if err := s.Add(logits, labels); err != nil {
			return err
		}
		all, err := s.Sum(r.World)
		if r.World.Rank() == 0 && err == nil {
			fmt.Printf("%d rows, accuracy %.3f, F1 %.3f\n", all.Rows(), all.Accuracy(), all.MacroF1())
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// 6 rows, accuracy 0.833, F1 0.829
	// <nil>
}
