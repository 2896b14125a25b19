package kernel

import (
	"hash/fnv"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPhilox checks the known answers of the Random123 library (kat_vectors,
// philox4x32 with 10 rounds).
func TestPhilox(t *testing.T) {
	cases := []struct {
		ctr  [4]uint32
		key  uint64
		want [4]uint32
	}{
		{[4]uint32{}, 0, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{
			[4]uint32{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff,
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
		},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0_a4093822,
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	}
	for _, c := range cases {
		var got [4]uint32
		got[0], got[1], got[2], got[3] = philox(c.key, c.ctr[0], c.ctr[1], c.ctr[2], c.ctr[3])
		assert.Equal(t, c.want, got)
	}
	assert.Equal(t, uint64(0xe169c58d_6627e8d5), Bits(0, 0))
	assert.Equal(t, uint64(0x9b00dbd8_bc57ac4c), Bits(0, 1))
}

// moments returns the mean and the standard deviation of f(0..n).
func moments(n int, f func(i uint64) float64) (mean, std float64) {
	var s, q float64
	for i := range n {
		v := f(uint64(i))
		s += v
		q += v * v
	}
	mean = s / float64(n)
	return mean, math.Sqrt(q/float64(n) - mean*mean)
}

func TestDistributions(t *testing.T) {
	const n = 200000
	mean, std := moments(n, func(i uint64) float64 {
		u := Uniform(7, i)
		require.True(t, 0 <= u && u < 1)
		return u
	})
	assert.InDelta(t, 0.5, mean, 0.003)
	assert.InDelta(t, 1/math.Sqrt(12), std, 0.002)
	mean, std = moments(n, func(i uint64) float64 { return Normal(7, i) })
	assert.InDelta(t, 0, mean, 0.01)
	assert.InDelta(t, 1, std, 0.01)
	below, _ := moments(n, func(i uint64) float64 {
		if Normal(7, i) < -1 {
			return 1
		}
		return 0
	})
	assert.InDelta(t, 0.158655, below, 0.003)
	lag, _ := moments(n, func(i uint64) float64 { return Normal(7, i) * Normal(7, i+1) })
	assert.InDelta(t, 0, lag, 0.01)
}

func TestFillIsKeyedByIndex(t *testing.T) { bothFloats(t, testFill[float32], testFill[float64]) }

func testFill[T Float](t *testing.T) {
	for name, fill := range map[string]func(dst []T, key, first uint64, a, b T){"uniform": fillUniform[T], "normal": fillNormal[T]} {
		requireCutsAgree(t, 301, 301, func(dst []T, lo, hi int) { fill(dst[lo:hi], 5, 1<<33+uint64(lo), -2, 3) }, name)
	}
	u, v := make([]T, 500), make([]T, 500)
	fillUniform(u, 5, 10, -2, 3)
	fillNormal(v, 5, 10, -2, 3)
	for i := range u {
		require.InDelta(t, -2+5*Uniform(5, 10+uint64(i)), float64(u[i]), 1e-6)
		require.InDelta(t, -2+3*Normal(5, 10+uint64(i)), float64(v[i]), 1e-6)
	}
}

func TestKey(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(20) {
		for a := range uint64(20) {
			seen[Key(seed, a)] = true
			for b := range uint64(20) {
				seen[Key(seed, a, b)] = true
			}
		}
		seen[Key(seed)] = true
	}
	assert.Len(t, seen, 20*(20*20+20+1), "keys collide")
	assert.NotEqual(t, Key(1, 2, 3), Key(1, 3, 2))
	// SplitMix64 started at 0 gives this first number (java.util.SplittableRandom and its C version).
	assert.Equal(t, uint64(0xe220a8397b1dcdaf), mix(0))
}

func TestHashName(t *testing.T) {
	for _, s := range []string{"", "a", "h.0.attn.drop"} {
		h := fnv.New64a()
		_, err := h.Write([]byte(s))
		require.NoError(t, err)
		assert.Equal(t, h.Sum64(), HashName(s))
	}
}
