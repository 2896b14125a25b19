package nccl_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// ranksOf checks that g is the group of these world ranks, in this order, on the device too.
func ranksOf(r *dist.Rank, g *dist.Group, want ...float32) error {
	mine := tensor.New(r.Device, tensor.Float32, 1)
	tensor.Copy(mine, tensor.FromSlice([]float32{float32(r.World.Rank())}, 1))
	all := tensor.New(r.Device, tensor.Float32, len(want))
	disttest.OK(g.AllGather(all, mine).Wait())
	for i, x := range tensor.Floats(all) {
		if float32(x) != want[i] {
			return fmt.Errorf("group %s has rank %v at %d, not %v", g.Name(), x, i, want[i])
		}
	}
	return nil
}

// Groups of a split get their communicators by ncclCommSplit where there is one to split: two axes at once, uneven groups in
// the order of their keys, and ranks in none; operations before, between and after them. A group that has had no operation on
// device memory is not split.
func TestSplit(t *testing.T) {
	emu.Only(t, "it takes several devices")
	machineWith(t, emu.Config{Delay: 2 * time.Millisecond})
	before := emu.CountNCCL()
	require.NoError(t, start(t, 5, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		me := r.World.Rank()
		early := disttest.Must(r.World.Split(0, 0)) // no communicator yet
		x := tensor.New(r.Device, tensor.Float32, 1)
		reduce := func() (err error) { // leaves operations in flight
			for range 10 {
				err = errors.Join(err, r.World.AllReduce(x, dist.Sum).Wait())
			}
			return err
		}
		disttest.OK(reduce())
		rows := disttest.Must(r.World.Split(me/3, 0)) // 0 1 2 and 3 4
		disttest.OK(reduce())
		color := me % 2
		if me == 4 {
			color = -1
		}
		columns, err := r.World.Split(color, -me) // 2 0, 3 1, and not 4
		disttest.OK(errors.Join(err, reduce()))
		err = ranksOf(r, rows, [][]float32{{0, 1, 2}, {3, 4}}[me/3]...)
		if columns != nil {
			err = errors.Join(err, ranksOf(r, columns, [][]float32{{2, 0}, {3, 1}}[color]...))
		}
		return errors.Join(err, ranksOf(r, early, 0, 1, 2, 3, 4), ranksOf(r, r.World, 0, 1, 2, 3, 4))
	}))
	after := emu.CountNCCL()
	assert.EqualValues(t, 2*5, after.Splits-before.Splits)
	assert.EqualValues(t, 5+5+5+4, after.Made-before.Made, "of the world, early, rows, columns")
}

// Groups whose split nobody uses are given back, also when their parent is closed first.
func TestSplitUnused(t *testing.T) {
	emu.Only(t, "it takes several devices")
	machine(t)
	require.NoError(t, start(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		for i := range 4 {
			g := r.World.With()
			disttest.OK(g.AllReduce(tensor.New(r.Device, tensor.Float32, 1), dist.Sum).WaitHost(context.Background()))
			s := disttest.Must(g.Split(r.World.Rank()%2, 0))
			if i%2 == 0 {
				disttest.OK(g.Close())
			}
			disttest.OK(s.Close())
		}
		return nil
	}))
}

// A group is closed while its split hangs: the communicators are given back nevertheless.
func TestSplitHangsInClosedGroup(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "it takes several devices")
	emu.FailNCCL(1, -1, emu.HangingHost)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	machine(t)
	require.NoError(t, start(t, 3, dist.Config{Threads: 1, Timeout: time.Second}, func(r *dist.Rank) error {
		g := r.World.With()
		disttest.OK(g.AllReduce(tensor.New(r.Device, tensor.Float32, 1), dist.Sum).WaitHost(context.Background()))
		s, err := g.Split(0, 0)
		return errors.Join(err, g.Close(), s.Close())
	}))
}

// A split that hangs ends: by the timeout of the group that is split, or of one that waits for it.
func TestSplitHangs(t *testing.T) {
	if disttest.Apart(t) {
		return
	}
	emu.Only(t, "it takes several devices")
	emu.FailNCCL(1, -1, emu.HangingHost)
	defer emu.FailNCCL(0, 0, emu.NoFault)
	for _, use := range []bool{false, true} {
		before := emu.CountNCCL().Splits
		errs, took := failures(t, 3, time.Second, func(r *dist.Rank, begin func()) error {
			disttest.OK(reduce(r, 10, dist.Sum))
			begin()
			s := disttest.Must(r.World.Split(0, 0))
			if use {
				return s.AllReduce(tensor.New(r.Device, tensor.Float32, 3), dist.Sum).WaitHost(context.Background())
			}
			for r.World.Err() == nil { // nobody waits
				disttest.OK(s.Err())
				<-time.After(time.Millisecond)
			}
			return r.World.Err()
		})
		for rank, err := range errs {
			assert.Regexp(t, `rank [0-2]: .*ncclCommSplit`, err.Error(), "rank %d", rank)
			assert.Contains(t, err.Error(), "no progress within 1s", "rank %d", rank)
		}
		assert.Less(t, took, 1500*time.Millisecond+reliability.Slack)
		assert.Equal(t, before, emu.CountNCCL().Splits)
	}
}
