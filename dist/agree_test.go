package dist_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
)

// Agree returns on every rank the first line that differs, also if a rank has too few or too many, or the problem of the lowest rank that
// has one. The group still works after it.
func TestAgree(t *testing.T) {
	same := []string{"Stage=2", "a [4 3]", "b [3]"}
	for want, lines := range map[string]func(rank int) ([]string, error){
		"": func(int) ([]string, error) { return same, nil },
		"test: ranks differ: rank 1 has a [4 3] where rank 0 has a [3 4]": func(rank int) ([]string, error) {
			if rank == 0 {
				return []string{"Stage=2", "a [3 4]", "c"}, nil
			}
			return same, nil
		},
		"test: ranks differ: rank 2 has b [3] where rank 0 has nothing": func(rank int) ([]string, error) {
			return same[:2+rank/2], nil
		},
		"test: ranks differ: rank 1 has nothing where rank 0 has b [3]": func(rank int) ([]string, error) {
			return same[:3-min(rank, 1)], nil
		},
		"b is in no unit": func(rank int) ([]string, error) {
			return same[rank:], []error{nil, errors.New("b is in no unit"), errors.New("c is in no unit")}[rank]
		},
	} {
		require.NoError(t, run(3, func(r *dist.Rank) error {
			lines, problem := lines(r.World.Rank())
			if err := dist.Agree(r.World, "test", lines, problem); want != "" {
				assert.EqualError(t, err, want, "rank %d", r.World.Rank())
			} else {
				assert.NoError(t, err)
			}
			return r.World.Barrier().Wait()
		}), want)
	}
}
