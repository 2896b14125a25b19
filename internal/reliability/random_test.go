package reliability_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/reliability"
)

// all returns the seeds that goroutines get, at most so many.
func all(s *reliability.Seeds, most int) (list []uint64) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for seed, ok := s.Next(); ok; seed, ok = s.Next() {
				mu.Lock()
				if len(list) < most {
					list = append(list, seed)
				}
				full := len(list) == most
				mu.Unlock()
				if full {
					return
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(list)
	return list
}

func TestRandom(t *testing.T) {
	for _, name := range []string{"RINGO_FIRST_SEED", "RINGO_RANDOM_TIME", "RINGO_SEED"} {
		t.Setenv(name, "")
	}
	seeds := all(reliability.Random(t), 100)
	require.Len(t, seeds, 100)
	require.Len(t, slices.Compact(seeds), 100)
	t.Setenv("RINGO_FIRST_SEED", "1000")
	first, ok := reliability.Random(t).Next()
	require.True(t, ok)
	require.EqualValues(t, 1000, first)
	t.Setenv("RINGO_RANDOM_TIME", "0s")
	require.Equal(t, []uint64{1000}, all(reliability.Random(t), 100), "there is always one")
	t.Setenv("RINGO_RANDOM_TIME", "1h")
	require.False(t, reliability.Random(t).One())
	t.Setenv("RINGO_SEED", "17")
	require.Equal(t, []uint64{17}, all(reliability.Random(t), 100))
	require.True(t, reliability.Random(t).One())
}
