package cuda_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
)

func TestBlockSizes(t *testing.T) {
	for n := range 1 << 14 {
		b := cuda.BlockSize(n)
		require.GreaterOrEqual(t, b, n)
		require.Less(t, b, max(n, 1)+max(512, n/16+1))
		require.Zero(t, b%512)
		require.Equal(t, b, cuda.BlockSize(b))
	}
	require.Equal(t, 1<<20, cuda.BlockSize(1<<20))
	require.Equal(t, 1<<20+1<<16, cuda.BlockSize(1<<20+1))
}

func TestPoolReuses(t *testing.T) {
	r := newRig(t, emu.Config{})
	p := r.alloc(1000)
	require.NoError(t, r.pool.Free(p))
	before := r.dev.Stats()
	require.Equal(t, p, r.alloc(1010), "the same class")
	require.Equal(t, before, r.dev.Stats())
	other, err := r.pool.Alloc(r.stream(), 1000)
	require.NoError(t, err)
	require.NotEqual(t, p, other)
	held, used := r.pool.Held()
	require.Equal(t, int64(2*1024), held)
	require.Equal(t, held, used)
	require.NoError(t, r.pool.Free(p))
	require.ErrorContains(t, r.pool.Free(p), "already free")
	require.ErrorContains(t, r.pool.Free(12), "never gave out")
	require.ErrorContains(t, r.pool.Close(), `pool "test" is closed with 1.0 KiB in use`)
	require.NoError(t, r.pool.Free(other))
	require.NoError(t, r.pool.Close())
}

// A block that another stream still reads is not overwritten by the next user of
// its own stream. Without Use, it is.
func TestPoolWaitsForOtherStreams(t *testing.T) {
	for _, use := range []bool{true, false} {
		r := newRig(t, emu.Config{})
		side, filled := r.stream(), r.event()
		p := r.alloc(4096)
		host, err := r.dev.NewHost(4096)
		require.NoError(t, err)
		require.NoError(t, r.s.Fill(p, 1, 4096))
		require.NoError(t, filled.Record(r.s))
		require.NoError(t, side.Wait(filled))
		emu.Hold(side)
		require.NoError(t, side.Download(host.Bytes(), p))
		if use {
			require.NoError(t, r.pool.Use(p, side))
		}
		require.NoError(t, r.pool.Free(p))
		require.Equal(t, p, r.alloc(4096))
		require.NoError(t, r.s.Fill(p, 2, 4096))
		if !use {
			require.NoError(t, r.s.Sync())
		}
		emu.Release(side)
		require.NoError(t, r.s.Sync())
		require.NoError(t, side.Sync())
		require.Equal(t, use, host.Bytes()[0] == 1)
		require.NoError(t, host.Close())
	}
}

// Blocks that no other stream used come first, and of these the last freed one.
func TestPoolPrefersSettledBlocks(t *testing.T) {
	r := newRig(t, emu.Config{})
	side := r.stream()
	a, b, c := r.alloc(512), r.alloc(512), r.alloc(512)
	require.NoError(t, r.pool.Use(b, side))
	require.NoError(t, r.pool.Free(a))
	require.NoError(t, r.pool.Free(b))
	require.Equal(t, a, r.alloc(512))
	require.NoError(t, r.pool.Free(a))
	require.NoError(t, r.pool.Free(c))
	require.Equal(t, c, r.alloc(512))
	require.Equal(t, a, r.alloc(512))
	require.Equal(t, b, r.alloc(512))
}

func TestPoolOutOfMemory(t *testing.T) {
	r := newRig(t, emu.Config{Memory: 8 << 20})
	cache := r.dev.NewPool("cache")
	p, err := cache.Alloc(r.s, 6<<20)
	require.NoError(t, err)
	require.NoError(t, cache.Free(p))
	r.alloc(4 << 20) // the other pool gives its cache back
	p, err = cache.Alloc(r.s, 3<<20)
	require.NoError(t, err)
	_, err = r.pool.Alloc(r.s, 2<<20)
	require.True(t, cuda.IsOutOfMemory(err))
	require.ErrorContains(t, err,
		`no memory for 2.0 MiB in pool "test": test uses 4.0 MiB and caches 0.0 KiB, cache uses 3.0 MiB and caches 0.0 KiB, 1.0 MiB of 8.0 MiB are free on device 0`)
	require.NoError(t, cache.Free(p))
	require.NoError(t, cache.Close())
}

func TestFailingAllocationIsTriedAgain(t *testing.T) {
	r := newRig(t, emu.Config{FailAlloc: 1})
	r.alloc(512)
}

// In debug mode every block has its own memory, and Free gives it back to the
// driver.
func TestPoolInDebugMode(t *testing.T) {
	t.Setenv("RINGO_CUDA_DEBUG", "1")
	r := newRig(t, emu.Config{})
	p := r.alloc(100)
	held, _ := r.pool.Held()
	require.Equal(t, int64(100), held)
	require.NoError(t, r.pool.Free(p))
	if !emu.OnGPU() { // a driver gives the same address out again
		require.NotEqual(t, p, r.alloc(100))
	}
}

// TestPoolRandom uses three streams that pass blocks to each other. Each block is
// filled with its own number and read later. A block that was given out too early
// would hold another number.
func TestPoolRandom(t *testing.T) {
	for seed := range uint64(4) {
		r := newRig(t, emu.Config{Seed: seed + 1, Lazy: seed%2 == 1, Delay: 50e3})
		streams := []*cuda.Stream{r.s, r.stream(), r.stream()}
		rng := rand.New(rand.NewPCG(seed, 1))
		host, err := r.dev.NewHost(1 << 20)
		require.NoError(t, err)
		handed := r.event()
		var want []byte
		for i := range 1000 {
			from, to := streams[rng.IntN(3)], streams[rng.IntN(3)]
			n := 1 + rng.IntN(2000)
			p, err := r.pool.Alloc(from, n)
			require.NoError(t, err)
			require.NoError(t, from.Fill(p, byte(i), n))
			require.NoError(t, handed.Record(from))
			require.NoError(t, to.Wait(handed))
			require.NoError(t, r.pool.Use(p, to))
			require.NoError(t, to.Download(host.Bytes()[i:i+1], p+cuda.Ptr(n-1)))
			require.NoError(t, r.pool.Free(p))
			want = append(want, byte(i))
		}
		require.NoError(t, r.dev.Sync())
		require.Equal(t, want, host.Bytes()[:1000])
		require.NoError(t, host.Close())
		require.Less(t, r.dev.Stats().Mallocs, int64(1<<20))
	}
}

// A block of a graph is given out again when it is freed and the graph is closed,
// in any order.
func TestPoolPins(t *testing.T) {
	r := newRig(t, emu.Config{})
	a, b := r.alloc(512), r.alloc(512)
	first, second := r.pool.Pin(), r.pool.Pin()
	c := r.alloc(512)
	for _, p := range []cuda.Ptr{a, c} {
		require.NoError(t, r.pool.Free(p))
	}
	require.ErrorContains(t, r.pool.Free(a), "already free")
	require.Equal(t, c, r.alloc(512), "made later")
	require.NotEqual(t, a, r.alloc(512))
	require.NoError(t, first())
	require.NotEqual(t, a, r.alloc(512))
	require.NoError(t, second())
	require.Equal(t, a, r.alloc(512))
	require.NoError(t, r.pool.Free(b))
	require.Equal(t, b, r.alloc(512))
}
