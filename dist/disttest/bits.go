package disttest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// SameBits reduces random numbers of every floating-point type with an engine and with goroutines: the results must agree in
// every bit, for sizes that are eager, that do not divide, and that are many blocks long.
func SameBits(t *testing.T, start Start) {
	goroutines := func(_ *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		cfg.Ranks = n
		return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
	}
	for _, n := range []int{2, 3, 5} {
		got, want := reducedBits(t, start, n), reducedBits(t, goroutines, n)
		for rank := range n {
			require.Len(t, got.rows[rank], len(want.rows[0]))
			for what, b := range got.rows[rank] {
				require.True(t, bytes.Equal(want.rows[0][what], b), "%d ranks, rank %d: %s", n, rank, what)
			}
		}
	}
}

func reducedBits(t *testing.T, start Start, n int) *table[map[string][]byte] {
	var out table[map[string][]byte]
	require.NoError(t, start(t, n, quiet(0), func(r *dist.Rank) error {
		results := map[string][]byte{}
		rng := rand.New(rand.NewPCG(3, uint64(r.World.Rank())))
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
			for _, op := range []dist.Op{dist.Sum, dist.Avg, dist.Prod, dist.PreMulSum(1 / (3 + float64(r.World.Rank())))} {
				for _, count := range []int{1, 9, 20_011} {
					x := tensor.New(r.Device, d, count)
					fillRandom(x, rng)
					if err := r.World.AllReduce(x, op).Wait(); err != nil {
						return err
					}
					results[fmt.Sprint(op, " of ", count, " ", d)] = bytes.Clone(x.Bytes())
				}
			}
		}
		out.put(r.World.Rank(), results)
		return nil
	}))
	return &out
}

// fillRandom sets x to numbers that need rounding when they are added.
func fillRandom(x tensor.Tensor, rng *rand.Rand) {
	switch x.DType() {
	case tensor.Float32:
		setAll(tensor.Data[float32](x), func(int) float32 { return float32(rng.NormFloat64()) })
	case tensor.Float64:
		setAll(tensor.Data[float64](x), func(int) float64 { return rng.NormFloat64() })
	case tensor.BFloat16:
		setAll(tensor.Data[tensor.BF16](x), func(int) tensor.BF16 { return tensor.BF16(0x3e00 + rng.IntN(0x300)) })
	case tensor.Float16:
		setAll(tensor.Data[tensor.F16](x), func(int) tensor.F16 { return tensor.F16(0x3000 + rng.IntN(0x1000)) })
	}
}
