package dist_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
)

// All ranks get what rank 0 has: a value, or an error, which has the same text everywhere and is itself on rank 0.
func TestOnRank0(t *testing.T) {
	got := make([]string, 3)
	require.NoError(t, dist.Run(context.Background(), dist.Config{
		Ranks: len(got), Log: io.Discard,
	}, func(_ context.Context, r *dist.Rank) error {
		rank := r.World.Rank()
		v := disttest.Must(dist.OnRank0(r.World, func() (string, error) { return fmt.Sprint("from ", rank), nil }))
		_, err := dist.OnRank0(r.World, func() (int, error) { return 1, fs.ErrExist })
		if rank == 0 && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("rank 0 has lost the error: %v", err)
		}
		got[rank] = fmt.Sprint(v, ", ", err)
		return nil
	}))
	want := "from 0, file already exists"
	require.Equal(t, []string{want, want, want}, got)
}
