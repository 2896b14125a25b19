package fsdp

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// waits counts who waits for it.
type waits struct{ n int }

func (*waits) FenceDone(uint64) bool    { return false }
func (w *waits) FenceWait(uint64) error { w.n++; return nil }

// What must be over before a gradient is read is waited for by who reduces its unit, or at the end of a Backward that reduces
// nothing, and by nobody before.
func TestPendingTravels(t *testing.T) {
	for _, last := range []bool{true, false} {
		err := dist.Run(context.Background(), dist.Config{Ranks: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
			l := nn.NewLinear(3, 2)
			s := New(Config{Shard: r.World, OncePerStep: true})
			u := s.Unit(l)
			if _, err := s.Attach(l); err != nil {
				return err
			}
			s.BeforeUse(l.W, tensor.Forward)
			s.BackwardBegin(false)
			s.last = last
			s.order.BeginBackward(last, false)
			s.order.Await(u.index, 2) // as if a tape had uses of both
			s.BeforeUse(l.W, tensor.Backward)
			var w waits
			after := s.GradReady(l.W, tensor.Pending{F: &w, Seq: 1})
			require.Zero(t, w.n)
			require.Equal(t, tensor.Fence(&w), after.F, "nobody may write to it before")
			s.GradReady(l.B, tensor.Pending{})
			if last {
				require.Equal(t, 1, w.n, "the reduction is issued")
				return nil
			}
			require.Zero(t, w.n)
			require.NoError(t, s.BackwardDone(false))
			require.Equal(t, 1, w.n)
			return nil
		})
		require.NoError(t, err)
	}
}
