package ops_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/ops"
)

// A cache's attention equals that of the whole sequence, in pieces of any length, also if heads share keys. Memory after its tokens is
// never read.
func TestKVCache(t *testing.T) {
	for _, batch := range []int{1, 2} {
		testKVCache(t, batch)
	}
}

func testKVCache(t *testing.T, batch int) {
	const time, hd = 70, 4
	dev := cpu.New(2)
	defer dev.Close()
	for _, d := range []tensor.DType{tensor.Float64, tensor.Float32, tensor.BFloat16, tensor.Float16} {
		for n, heads := range [][2]int{{4, 4}, {6, 2}, {3, 1}} {
			s := []ops.AttentionScores{{}, {Window: 20, SoftCap: 2}, {Scale: 0.3}}[n]
			q, k, v := random(dev, d, 1, batch, time, heads[0]*hd), random(dev, d, 2, batch, time, heads[1]*hd),
				random(dev, d, 3, batch, time, heads[1]*hd)
			tape := tensor.NewTape(dev, tensor.NoGrad())
			whole := ops.CrossAttention(tape.Input(q), k, v, hd, ops.AttentionOptions{Causal: true, AttentionScores: s})
			c := ops.NewKVCache(time + 3)
			for again := range 2 {
				for _, piece := range [][2]int{{0, 1}, {1, 1}, {1, 30}, {30, 31}, {31, 70}} {
					part := func(x tensor.Tensor) tensor.Tensor { return tape.Input(x).Slice(1, piece[0], piece[1]) }
					y := c.Attention(part(q), part(k), part(v), hd, s)
					if again == 0 && piece[1] == 1 {
						spoilCache(c, piece[1])
					}
					require.Equal(t, piece[1], c.Len())
					assert.InDeltaSlice(t, tensor.Floats(part(whole)), tensor.Floats(y), cacheTolerance[d], fmt.Sprint(d, heads, piece))
				}
				c.Truncate(0)
			}
		}
	}
}

var cacheTolerance = map[tensor.DType]float64{tensor.Float64: 1e-14, tensor.Float32: 1e-5, tensor.BFloat16: 1e-2, tensor.Float16: 1e-3}

// spoilCache sets all memory after n tokens to NaN.
func spoilCache(c *ops.KVCache, n int) {
	k, v, positions := ops.Cached(c)
	tape := tensor.NewTape(k.Device())
	defer tape.Close()
	for _, x := range []tensor.Tensor{k, v} {
		bad := tape.Input(x).Slice(1, n, positions).Affine(0, math.NaN())
		tensor.Copy(x, tensor.Concat(1, tape.Input(x).Slice(1, 0, n), bad))
	}
}

func TestKVCacheAllocatesNothing(t *testing.T) {
	skipInDebug(t)
	dev := cpu.New(2)
	defer dev.Close()
	for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
		tape, c, x := tensor.NewTape(dev, tensor.NoGrad()), ops.NewKVCache(200), random(dev, d, 3, 1, 1, 8)
		token := func() {
			y := tape.Input(x)
			c.Attention(y, y.Slice(2, 0, 4), y.Slice(2, 4, 8), 4, ops.AttentionScores{})
			tape.Reset()
		}
		token()
		assert.Zero(t, testing.AllocsPerRun(100, token), d)
	}
}

// After it is emptied, a cache can be used for other batches, types and widths.
func TestKVCacheOfOthers(t *testing.T) {
	c, tape := ops.NewKVCache(3), tensor.NewTape(host, tensor.NoGrad())
	for _, x := range []tensor.Tensor{tensor.New(host, tensor.Float32, 2, 2, 4), tensor.New(host, tensor.Float32, 1, 3, 4),
		tensor.New(host, tensor.Float64, 1, 3, 4),
		tensor.New(host, tensor.Float64, 1, 3, 8)} {
		require.NoError(t, tensor.Try(func() { c.Attention(tape.Input(x), x, x, 4, ops.AttentionScores{}) }))
		c.Truncate(0)
	}
}

func TestKVCacheMisuse(t *testing.T) {
	x := func(dims ...int) tensor.Tensor { return tensor.New(host, tensor.Float32, dims...) }
	c := ops.NewKVCache(3)
	tape := tensor.NewTape(host, tensor.NoGrad())
	require.NoError(t, tensor.Try(func() { c.Attention(tape.Input(x(2, 2, 8)), x(2, 2, 4), x(2, 2, 4), 4, ops.AttentionScores{}) }))
	fed := tensor.NewTape(host, tensor.NoGrad())
	fed.Input(x(2, 1, 8).WithRows(tensor.Rows{Stride: 1, Total: 2, Seq: tensor.Spans{First: 1, Total: 3}}))
	for _, bad := range []struct {
		tape    *tensor.Tape
		q, k, v tensor.Tensor
		want    string
	}{
		{tape, x(2, 2, 8), x(2, 2, 4), x(2, 2, 4), "KVCache.Attention float32[2,2,4]: the cache is full: 2 tokens and 2 more, room for 3"},
		{tensor.NewTape(host), x(2, 1, 8), x(2, 1, 4), x(2, 1, 4), "make the tape with NoGrad"},
		{fed, x(2, 1, 8), x(2, 1, 4), x(2, 1, 4), "1 positions of 3: a cache is of whole sequences"},
		{tape, x(2, 1, 8), tensor.New(host, tensor.Float64, 2, 1, 4), x(2, 1, 4), "float64"},
		{tape, x(2, 1, 8), x(1, 1, 4), x(1, 1, 4), "dimension 0 of the keys is 1, dimension 0 of the cache is 2"},
		{tape, x(2, 1, 8), x(2, 1, 8), x(2, 1, 8), "dimension 2 of the keys is 8, dimension 2 of the cache is 4"},
		{tape, x(2, 2, 8), x(2, 1, 4), x(2, 1, 4), "dimension 1 of the queries is 2, dimension 1 of the keys is 1"},
		{tape, x(2, 1, 8), x(2, 1, 4), x(2, 2, 4), "dimension 1 of the keys is 1, dimension 1 of the values is 2"},
	} {
		assert.ErrorContains(t, tensor.Try(func() { c.Attention(bad.tape.Input(bad.q), bad.k, bad.v, 4, ops.AttentionScores{}) }), bad.want)
		assert.Equal(t, 2, c.Len())
	}
	assert.ErrorContains(t, tensor.Try(func() { c.Truncate(3) }), "to 3 tokens of 2")
	assert.ErrorContains(t, tensor.Try(func() { c.Truncate(-1) }), "to -1 tokens of 2")
}
