package disttest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// SameBits reduces random numbers of every type, with every reducing operation and reduction, on an engine and on goroutines. The results
// must have the same bits. Sizes are eager, indivisible, and many blocks long; in the short form, reductions and types take turns. An
// engine must pass it with RINGO_BITS=rank, and inside a host also without.
func SameBits(t *testing.T, start Start) {
	sizes := []int{3}
	if reliability.Long(t) {
		sizes = []int{2, 3, 4, 5}
	}
	for _, n := range sizes {
		got, want := reducedBits(t, start, n), goroutineBits(t, n)
		for rank := range n {
			require.Len(t, got.rows[rank], len(want.rows[rank]))
			for what, b := range got.rows[rank] {
				require.True(t, bytes.Equal(want.rows[rank][what], b), "%d ranks, rank %d: %s", n, rank, what)
			}
		}
	}
}

// rankBits is the results of each rank, by operation.
type rankBits = table[map[string][]byte]

var goroutines sync.Map // *rankBits

// goroutineBits is the results of n goroutine ranks, computed once.
func goroutineBits(t *testing.T, n int) *rankBits {
	key := fmt.Sprint(n, reliability.Long(t), os.Getenv("RINGO_BITS"))
	bits, known := goroutines.Load(key)
	if !known {
		bits = reducedBits(t, func(_ *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
			cfg.Ranks = n
			return dist.Run(context.Background(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
		}, n)
		goroutines.Store(key, bits)
	}
	return bits.(*rankBits)
}

func reducedBits(t *testing.T, start Start, n int) *rankBits {
	var out rankBits
	blocks, long := big(9_001), reliability.Long(t)
	if long {
		blocks = 20_011
	}
	require.NoError(t, start(t, n, quiet(0), func(r *dist.Rank) error {
		results := map[string][]byte{}
		rng := rand.New(rand.NewPCG(3, uint64(r.World.Rank())))
		for d := range tensor.DType(tensor.NumDTypes) {
			for red := range reds {
				for k, count := range []int{1, 9, blocks} {
					if !valid(reds[red].name, d) || !long && k != (red+int(d))%3 {
						continue
					}
					OK(reduceEach(r.World, call{dtype: d, red: red, count: count}, long, rng, results))
				}
			}
		}
		out.put(r.World.Rank(), results)
		return nil
	}))
	return &out
}

// reduceEach does every operation that reduces, on about count elements (in the long form as a part), and stores this rank's results.
func reduceEach(g *dist.Group, c call, long bool, rng *rand.Rand, results map[string][]byte) error {
	n := g.Size()
	share := (c.count + n - 1) / n
	if long {
		share = c.count
	}
	c.root, c.rows = n-1, func(_, to int) int { return share * to }
	for _, o := range collectives() {
		if !o.reduces {
			continue
		}
		c := c
		if c.Operation = o; o.form != whole {
			c.count = share
		}
		p := c.on(g)
		if reds[c.red].name == "premulsum" {
			p.op = dist.PreMulSum(1 / (3 + float64(g.Rank())))
		}
		dst, src := p.tensors()
		overwrite(src, func(x tensor.Tensor) { fillRandom(x, rng) })
		OK(c.start(p, dst, src).Wait())
		results[p.String()] = bytes.Clone(bytesOf(dst))
	}
	return nil
}

// fillRandom sets x, in host memory, to numbers whose sums must be rounded.
func fillRandom(x tensor.Tensor, rng *rand.Rand) {
	switch d := x.DType(); {
	case d.IsHalf():
		setHost(x, func(int) float64 { return 0.125 + rng.Float64()/4 })
	case d.IsFloat():
		setHost(x, func(int) float64 { return rng.NormFloat64() })
	case d == tensor.Bool:
		setHost(x, func(int) float64 { return float64(rng.IntN(2)) })
	default:
		for i, b := 0, x.Bytes(); i < len(b); i++ {
			b[i] = byte(rng.Uint32())
		}
	}
}
