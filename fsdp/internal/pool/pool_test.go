package pool_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/pool"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// A buffer is the memory of one tensor at a time, fits each of them, and is lent again.
func TestBuffersAreLentAgain(t *testing.T) {
	err := dist.Run(context.Background(), dist.Config{Ranks: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		p := pool.Pool{Group: r.World, Kind: memory.Gathered}
		a, b, c := p.New(tensor.Float32, 3), p.New(tensor.Float64, 5), p.New(tensor.Float64, 4)
		p.Lend(a)
		p.Lend(b)
		require.NotEqual(t, a.Ptr(), b.Ptr())
		require.Equal(t, 2*5*8, r.Device.Memory().Of(memory.Gathered).Live)

		at := a.Ptr()
		p.GiveBack(c) // was lent nothing
		p.GiveBack(a)
		require.False(t, p.Has(a))
		p.Lend(c)
		require.Equal(t, at, c.Ptr())
		require.True(t, p.Has(b) && p.Has(c))
		require.Equal(t, 2*5*8, r.Device.Memory().Of(memory.Gathered).Live)
		return nil
	})
	require.NoError(t, err)
}
