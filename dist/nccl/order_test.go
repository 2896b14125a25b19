package nccl_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/nccl"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/tensor"
)

// The device of every rank gets the operations of several communicators in the order in which they were issued, though each
// has a goroutine of its own.
func TestOrderOfCommunicators(t *testing.T) {
	emu.Only(t, "it takes several devices")
	machine(t)
	defer nccl.SetPatience(time.Hour)()
	const ranks, groups, rounds = 3, 4, 200
	issued := make([]int, rounds)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range issued {
		issued[i] = r.IntN(groups)
	}
	require.NoError(t, start(t, ranks, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		var all [groups]*dist.Group
		var x [groups]tensor.Tensor
		var works []dist.Work
		emu.NCCLOrder(r.World.Rank()) // of tests before
		for i := range all {
			all[i], x[i] = r.World.With(), tensor.New(r.Device, tensor.Float32, 3)
			if err := all[i].AllReduce(x[i], dist.Sum).WaitHost(context.Background()); err != nil { // makes the communicator
				return err
			}
		}
		number := map[uint64]int{} // of a communicator: the group's
		for i, c := range emu.NCCLOrder(r.World.Rank()) {
			number[c] = i
		}
		for _, g := range issued {
			works = append(works, all[g].AllReduce(x[g], dist.Sum))
		}
		var err error
		for _, w := range works {
			err = errors.Join(err, w.WaitHost(context.Background()))
		}
		var order []int
		for _, c := range emu.NCCLOrder(r.World.Rank()) {
			order = append(order, number[c])
		}
		assert.Equal(t, issued, order, "rank %d", r.World.Rank())
		return err
	}))
}

// Ranks may come to the first operations of two groups in another order, where each call waits for the other ranks: to make the
// communicator, and to connect two ranks for messages.
func TestGroupsInAnotherOrder(t *testing.T) {
	machine(t)
	require.NoError(t, start(t, 2, dist.Config{Threads: 1, Timeout: 10 * time.Second}, func(r *dist.Rank) error {
		groups := []*dist.Group{r.World.With(), r.World.With(), r.World.With()}
		if r.World.Rank() == 1 {
			slices.Reverse(groups)
		}
		floats := func(n int) tensor.Tensor { return tensor.New(r.Device, tensor.Float32, n) } // of each operation: order is that of memory
		reduce := func(g *dist.Group) dist.Work { return g.AllReduce(floats(3), dist.Sum) }
		gather := func(g *dist.Group) dist.Work { return g.Gather(floats(6), floats(3), 0) }
		for _, do := range []func(*dist.Group) dist.Work{reduce, gather} {
			var works []dist.Work
			for _, g := range groups {
				works = append(works, do(g))
			}
			var err error
			for _, w := range works {
				err = errors.Join(err, w.WaitHost(context.Background()))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}
