package data

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func synthetic(t *testing.T, n int, seed uint64) *Images {
	t.Helper()
	d, err := Synthetic(n, seed, tensor.Float32)
	require.NoError(t, err)
	return d
}

func TestSyntheticDeterministic(t *testing.T) {
	a := synthetic(t, 50, 1)
	assert.Equal(t, a.pixels, synthetic(t, 50, 1).pixels)
	assert.NotEqual(t, a.pixels, synthetic(t, 50, 2).pixels)
	assert.Equal(t, a.pixels[:20*784], synthetic(t, 20, 1).pixels, "image i does not depend on n")
	assert.Equal(t, "1a71f71cf8ffa2871bf56c3f5be17eedd8b05d234abb4fea8dec909771dc702d",
		fmt.Sprintf("%x", sha256.Sum256(a.pixels)), "the same on all processors")
	assert.Contains(t, a.String(), "Synthetic(seed 1)")
	_, err := Synthetic(0, 1, tensor.Float32)
	assert.Error(t, err)
	_, err = Synthetic(5, 1, tensor.Int32)
	assert.ErrorContains(t, err, "int32")
}

// The class means of one seed's images classify the images of another seed well, but not perfectly.
func TestSyntheticLearnable(t *testing.T) {
	train, test := synthetic(t, 2000, 1), synthetic(t, 1000, 2)
	var mean [synthClasses][784]float64
	for i, c := range train.labels {
		for j, v := range train.pixels[i*784 : (i+1)*784] {
			mean[c][j] += float64(v) / 200
		}
	}
	right := 0
	for i, c := range test.labels {
		best, at := 1e18, -1
		for k := range mean {
			d := 0.0
			for j, v := range test.pixels[i*784 : (i+1)*784] {
				u := float64(v) - mean[k][j]
				d += u * u
			}
			if d < best {
				best, at = d, k
			}
		}
		if at == int(c) {
			right++
		}
	}
	t.Logf("nearest mean: %d of 1000", right)
	assert.Greater(t, right, 800)
	assert.Less(t, right, 1000)
}
