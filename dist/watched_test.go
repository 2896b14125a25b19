package dist

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/tensor"
)

// What a rank did in total is the sum over its groups, also over closed ones.
func TestSpentInAll(t *testing.T) {
	err := Run(context.Background(), Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *Rank) error {
		gone := r.World.With(Name("gone"))
		began := r.c.now()
		x := tensor.New(r.Device, tensor.Float32, 1000)
		for _, g := range []*Group{r.World, gone, gone} {
			if err := g.AllReduce(x, Avg).Wait(); err != nil {
				return err
			}
		}
		if err := r.World.Broadcast(x, 0).Wait(); err != nil {
			return err
		}
		want := map[backend.Kind]usage{}
		for _, g := range []*Group{r.World, gone} {
			s := g.Stats()
			for _, k := range []backend.Kind{backend.AllReduce, backend.Broadcast} {
				sum, name := want[k], k.String()
				sum.calls, sum.payload, sum.wire = sum.calls+s.Calls[name], sum.payload+s.Payload[name], sum.wire+s.Wire[name]
				want[k] = sum
			}
		}
		waited := r.World.Waited() + gone.Waited()
		if err := gone.Close(); err != nil {
			return err
		}
		all := r.c.usageOfAll()
		assert.LessOrEqual(t, all[backend.AllReduce].flight+all[backend.Broadcast].flight, r.c.now()-began, "one after the other")
		for k, w := range want {
			got := all[k]
			assert.Positive(t, got.flight, k)
			got.flight, got.waited = 0, 0
			assert.Equal(t, w, got, k)
		}
		assert.Equal(t, uint64(3), all[backend.AllReduce].calls)
		assert.Equal(t, uint64(12000), all[backend.AllReduce].payload)
		assert.NotZero(t, all[backend.AllReduce].wire)
		assert.Zero(t, all[backend.Send])
		assert.Equal(t, waited, r.c.waited())
		return nil
	})
	assert.NoError(t, err)
}

// The wait for a batch counts for the operations in it.
func TestWaitOfBatch(t *testing.T) {
	err := Run(context.Background(), Config{Ranks: 2, Log: io.Discard}, func(_ context.Context, r *Rank) error {
		x := tensor.New(r.Device, tensor.Float32, 10)
		if r.World.Rank() == 0 {
			w := r.World.Batch(func(b *Batch) { b.Recv(x, 1, 0) })
			if err := r.World.Barrier().Wait(); err != nil { // then rank 1 sends
				return err
			}
			if err := w.Wait(); err != nil {
				return err
			}
			all := r.c.usageOfAll()
			assert.Equal(t, int64(r.World.Waited()), all[backend.Barrier].waited+all[backend.Recv].waited)
			return nil
		}
		if err := r.World.Barrier().Wait(); err != nil {
			return err
		}
		return r.World.Send(x, 0, 0).Wait()
	})
	assert.NoError(t, err)
}
