package training

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/sim"
)

// Gradients of 1,000 bytes, of which each takes 10 µs of backward, and 2 ranks: an all-reduce takes a time of 2·(5 + bytes/2) ns or so.
func TestBackward(t *testing.T) {
	const µs = sim.Time(1e6)
	b := Backward{Ranks: 2, Gradients: []int{1000, 1000, 1000, 1000}, Compute: 40 * µs}
	naive, err := b.On(flat(3, 5))
	require.NoError(t, err)
	require.Len(t, naive.Sums, 4)
	assert.Equal(t, [2]sim.Time{40 * µs, 40 * µs}, [2]sim.Time{naive.Sums[0].Ready, naive.Sums[0].Start})
	one := naive.Sums[0].End - naive.Sums[0].Start
	assert.Equal(t, naive.Sums[3].End, naive.Total)
	assert.Equal(t, 40*µs+4*one, naive.Total)
	assert.Zero(t, naive.Hidden)

	b.Bucket = 1999 // each gradient by itself, while the next ones are computed
	each, err := b.On(flat(3, 5))
	require.NoError(t, err)
	require.Len(t, each.Sums, 4)
	for k, s := range each.Sums {
		assert.Equal(t, BucketTime{1000, sim.Time(k+1) * 10 * µs, sim.Time(k+1) * 10 * µs, sim.Time(k+1)*10*µs + one}, s)
	}
	assert.Equal(t, 40*µs+one, each.Total)
	assert.InDelta(t, 0.75, each.Hidden, 1e-9)

	b.Bucket = 2000 // two of two
	two, err := b.On(flat(3, 5))
	require.NoError(t, err)
	require.Len(t, two.Sums, 2)
	assert.Equal(t, [2]sim.Time{20 * µs, 40 * µs}, [2]sim.Time{two.Sums[0].Ready, two.Sums[1].Start})
	assert.InDelta(t, 0.5, two.Hidden, 1e-9)

	b.Compute = 0 // nothing to hide behind
	none, err := b.On(flat(3, 5))
	require.NoError(t, err)
	assert.Zero(t, none.Hidden)
	assert.Equal(t, none.Sums[0].End, none.Sums[1].Start)
}

// A rank that may not issue one more all-reduce does not compute either, so that what it computes next is there later.
func TestBackwardOfManyBuckets(t *testing.T) {
	const most, last = backend.Depth + 6, 8_000_000
	b := Backward{Ranks: 2, Compute: 1e9, Bucket: 8}
	for range most {
		b.Gradients = append(b.Gradients, 8)
	}
	b.Gradients = append(b.Gradients, last)
	x, err := b.On(flat(3, 5))
	require.NoError(t, err)
	require.Len(t, x.Sums, most+1)
	s := x.Sums[most]
	assert.GreaterOrEqual(t, s.Ready, x.Sums[5].End+b.Compute*99/100)
	assert.Equal(t, s.Ready, s.Start)
	assert.Equal(t, timeOf(t, flat(3, 5), backend.AllReduce, "", 2, last), s.End-s.Start)
}

// The first bucket is at most 1 MiB, as that of package ddp, and a gradient that is larger than a bucket has one of its own.
func TestBuckets(t *testing.T) {
	const m = 1 << 20
	b := Backward{Gradients: []int{m / 2, m / 2, m, m, 9 * m, m}, Bucket: 2 * m}
	var sizes []int
	for _, s := range b.buckets() {
		sizes = append(sizes, s.Bytes)
	}
	assert.Equal(t, []int{m, 2 * m, 9 * m, m}, sizes)
}

func TestBackwardErrors(t *testing.T) {
	_, err := (&Backward{Ranks: 2, Gradients: []int{8, 0}}).On(flat(3, 5))
	assert.EqualError(t, err, "sim: backward needs gradients of 1 byte or more, and neither time nor buckets below 0")
	_, err = (&Backward{Ranks: 6, Gradients: []int{8}}).On(two(0))
	assert.ErrorContains(t, err, "6 ranks do not fit")
}
