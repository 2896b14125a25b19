package join_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/join"
	"github.com/ringo-ml/ringo/internal/misuse"
	"github.com/ringo-ml/ringo/tensor"
)

// What each function says when it is used wrong.
func TestMisuse(t *testing.T) {
	require.NoError(t, disttest.OnRanks(1, func(r *dist.Rank) error {
		misuse.Check(t, []misuse.Case{
			{Of: "New", Want: "join.New: the group is nil", Do: func() error { join.New(nil, nil); return nil }},
			{Of: "Loader.Epoch", Want: "join: a batch is not of X and Y with as many rows each", Do: func() error {
				return drain(t.Context(), r, 0, &own{batches: []data.Batch{{X: tensor.New(r.Device, tensor.Float32, 2, 3)}}})
			}},
		}, nil)
		return nil
	}))
}
