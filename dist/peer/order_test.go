package peer_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
)

// Every reduction of every type has the bits of ranks in host memory.
func TestSameBits(t *testing.T) {
	disttest.SameBits(t, machine(t, 2, emu.Config{}))
}

// part is the number of elements that one rank gives to another.
const part = 500

// desk is a rank's memory, all on its device.
type desk struct {
	g                 *dist.Group
	small, large, out tensor.Tensor // of one part, and of 3 parts
	seen              tensor.Tensor // a copy of the result
	mine, wrong       tensor.Tensor // every element is 10^rank, or -1
}

func constant(dev tensor.Device, v float32) tensor.Tensor {
	x := tensor.New(dev, tensor.Float32, 3*part)
	tensor.Copy(x, tensor.FromSlice(slices.Repeat([]float32{v}, 3*part), 3*part))
	return x
}

func newDesk(r *dist.Rank) *desk {
	x := tensor.New(r.Device, tensor.Float32, 10*part)
	return &desk{g: r.World, small: x.Range(0, part), large: x.Range(part, 4*part), out: x.Range(4*part, 7*part),
		seen: x.Range(7*part, 10*part), mine: constant(r.Device, []float32{1, 10, 100}[r.World.Rank()]), wrong: constant(r.Device, -1)}
}

// deskCase is an operation and what the elements of its result are on each rank.
type deskCase struct {
	name string
	run  func(d *desk) (dist.Work, tensor.Tensor)
	want [3]float64
}

var deskCases = []deskCase{
	{"allreduce", func(d *desk) (dist.Work, tensor.Tensor) { return d.g.AllReduce(d.large, dist.Sum), d.large }, [3]float64{111, 111, 111}},
	{"reduce", func(d *desk) (dist.Work, tensor.Tensor) { return d.g.Reduce(d.small, dist.Sum, 1), d.small }, [3]float64{1, 111, 100}},
	{"broadcast", func(d *desk) (dist.Work, tensor.Tensor) { return d.g.Broadcast(d.small, 1), d.small }, [3]float64{10, 10, 10}},
	{"allgather", func(d *desk) (dist.Work, tensor.Tensor) {
		return d.g.AllGather(d.out, d.small), d.out.Range(2*part, 3*part)
	}, [3]float64{100, 100, 100}},
	{"gather", func(d *desk) (dist.Work, tensor.Tensor) {
		if d.g.Rank() != 2 {
			return d.g.Gather(tensor.Tensor{}, d.small, 2), d.small
		}
		return d.g.Gather(d.out, d.small, 2), d.out.Range(part, 2*part)
	}, [3]float64{1, 10, 10}},
	{"reducescatter", func(d *desk) (dist.Work, tensor.Tensor) {
		y := d.out.Range(0, part)
		return d.g.ReduceScatter(y, d.large, dist.Max), y
	}, [3]float64{100, 100, 100}},
	{"alltoall", func(d *desk) (dist.Work, tensor.Tensor) {
		return d.g.AllToAll(d.out, d.large), d.out.Range(part, 2*part)
	}, [3]float64{10, 10, 10}},
	{"ring", func(d *desk) (dist.Work, tensor.Tensor) {
		y, me := d.out.Range(0, part), d.g.Rank()
		return d.g.Batch(func(b *dist.Batch) {
			b.Send(d.small, (me+1)%3, 0)
			b.Recv(y, (me+2)%3, 0)
		}), y
	}, [3]float64{100, 1, 10}},
}

// The device writes the inputs of these operations just before them, and overwrites them just after Wait, on streams that run only as far
// as something waits for them. So if a wait for an event is missing, a result is wrong.
func TestDeviceOrder(t *testing.T) {
	for i, gpus := range []int{1, 3, 1, 3} {
		if gpus == 1 && !reliability.Long(t) {
			continue
		}
		start, way := machine(t, gpus, emu.Config{Lazy: true}), ways[i/2]
		require.NoError(t, start(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
			d := newDesk(r)
			d.g = r.World.With(forced(way))
			for round := range 5 {
				for _, c := range deskCases {
					if err := d.check(&c, (round+r.World.Rank())%3); err != nil {
						return fmt.Errorf("%s on %d GPUs, %s: %w", c.name, gpus, way, err)
					}
				}
			}
			return nil
		}))
	}
}

func TestLongDeviceOrder(t *testing.T) { reliability.AsLong(t, TestDeviceOrder) }

// check runs an operation. turn says when this rank reads its result.
func (d *desk) check(c *deskCase, turn int) error {
	tensor.Copy(d.small, d.mine.Range(0, part))
	tensor.Copy(d.large, d.mine)
	w, y := c.run(d)
	if err := w.Wait(); err != nil {
		return err
	}
	seen := d.seen.Range(0, y.Len())
	tensor.Copy(seen, y)
	tensor.Copy(d.small, d.wrong.Range(0, part))
	tensor.Copy(d.large, d.wrong)
	tensor.Copy(d.out, d.wrong)
	read := func() error {
		for i, v := range tensor.Floats(seen) {
			if v != c.want[d.g.Rank()] {
				return fmt.Errorf("element %d of rank %d is %v", i, d.g.Rank(), v)
			}
		}
		return nil
	}
	for i := range 3 { // one after the other, while the streams of the other ranks have not run yet
		if i == turn {
			if err := read(); err != nil {
				return err
			}
		}
		if err := d.g.SumFloats(make([]float64, 1)); err != nil {
			return err
		}
	}
	return nil
}

// A barrier is over when the devices have reached it, also after operations. Then everything that they got before it is done.
func TestBarrierIsOfDevices(t *testing.T) {
	start := machine(t, 1, emu.Config{Lazy: true})
	require.NoError(t, start(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		d := newDesk(r)
		for i := range 3 {
			tensor.Copy(d.large, d.mine)
			mark := r.Device.Queue(0).Mark()
			if i < 2 { // the group uses the device
				disttest.OK(d.g.AllReduce(d.large, dist.Sum).Wait())
			}
			disttest.OK(d.g.Barrier().Wait())
			if !mark.Done() {
				return fmt.Errorf("barrier %d: the device has not reached it", i)
			}
		}
		return nil
	}))
}

// Works may be waited for in any order, of operations on both kinds of memory: the device waits for each of its own.
func TestWaitInAnyOrder(t *testing.T) {
	start := machine(t, 1, emu.Config{Lazy: true})
	require.NoError(t, start(t, 3, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		d, votes := newDesk(r), tensor.FromSlice([]float32{1}, 1)
		for range 3 {
			tensor.Copy(d.large, d.mine)
			sums, count := d.g.AllReduce(d.large, dist.Sum), d.g.AllReduce(votes, dist.Max)
			disttest.OK(errors.Join(count.Wait(), sums.Wait()))
			tensor.Copy(d.seen, d.large)
			tensor.Copy(d.large, d.wrong)
			for i, v := range tensor.Floats(d.seen) {
				if v != 111 {
					return fmt.Errorf("element %d is %v", i, v)
				}
			}
		}
		return nil
	}))
}
