package peer_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/algo"
	"github.com/ringo-ml/ringo/dist/backend"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/peer"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// ways are the two ways to do an all-reduce.
var ways = []string{algo.OneShot, algo.TwoShot}

func forced(way string) dist.Option { return dist.Algo("allreduce:" + way) }

// One-shot, two-shot and ranks in host memory give the same bits, of numbers whose sums depend on the order.
func TestOneShotBits(t *testing.T) {
	shapes := [][2]int{{5, 2}} // ranks, GPUs
	if reliability.Long(t) {
		shapes = append(shapes, [2]int{2, 1}, [2]int{3, 3})
	}
	for _, shape := range shapes {
		start := machine(t, shape[1], emu.Config{})
		require.NoError(t, start(t, shape[0], dist.Config{Threads: 1}, func(r *dist.Rank) error {
			groups := []*dist.Group{r.World.With(forced(algo.OneShot)), r.World.With(forced(algo.TwoShot)), r.World}
			rng := rand.New(rand.NewPCG(3, uint64(r.World.Rank())))
			for i, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Int64, tensor.Bool} {
				for k, count := range []int{1, 33, 4099} {
					if (i+k)%2 > 0 && !reliability.Long(t) {
						continue
					}
					if err := sameBits(r, groups, d, count, rng); err != nil {
						return fmt.Errorf("%v of %d ranks, %d elements of %v: %w", shape[1], shape[0], count, d, err)
					}
				}
			}
			return nil
		}))
	}
}

func TestLongOneShotBits(t *testing.T) { reliability.AsLong(t, TestOneShotBits) }

// sameBits compares what the groups make of random elements with the result in host memory.
func sameBits(r *dist.Rank, groups []*dist.Group, d tensor.DType, count int, rng *rand.Rand) error {
	floats := make([]float32, count)
	for i := range floats {
		floats[i] = float32(rng.NormFloat64())
	}
	host := cpu.New(1)
	defer host.Close()
	in := tensor.New(host, d, count)
	tape := tensor.NewTape(host, tensor.NoGrad())
	defer tape.Close()
	tensor.Copy(in, tape.Input(tensor.FromSlice(floats, count)).Cast(d))
	ops := []dist.Reduction{dist.Sum, dist.Max}
	if d.IsFloat() {
		ops = append(ops, dist.Avg, dist.PreMulSum(1/(3+float64(r.World.Rank()))))
	}
	for _, op := range ops {
		want := tensor.New(host, d, count)
		tensor.Copy(want, in)
		disttest.OK(r.World.AllReduce(want, op).Wait())
		for _, g := range groups {
			x := tensor.New(r.Device, d, count)
			tensor.Copy(x, in)
			disttest.OK(g.AllReduce(x, op).Wait())
			if !bytes.Equal(tensor.ToHost(x).Bytes(), want.Bytes()) {
				return fmt.Errorf("%v of group %s differs from that in host memory", op, g.Name())
			}
		}
	}
	return nil
}

// Below the measured size an all-reduce is one-shot: each rank reads the inputs of all others. Above it is two-shot.
func TestOneShotBelowASize(t *testing.T) {
	assert.Zero(t, peer.OneShotBytes(1))
	for n, want := range map[int]int{2: 256 << 10, 4: 256 << 10, 8: 245_000, 16: 101_000, 64: 22_000} {
		assert.InEpsilon(t, want, peer.OneShotBytes(n), 0.01, "%d ranks", n)
	}
	const n = 3
	most := peer.OneShotBytes(n) / 4
	start := machine(t, 1, emu.Config{})
	for _, c := range []struct {
		count, moved int // elements, and how often each byte of a buffer is moved between ranks
		opts         []dist.Option
	}{
		{most, n * (n - 1), nil}, {most + 1, 2 * (n - 1), nil},
		{most, 2 * (n - 1), []dist.Option{forced(algo.TwoShot)}}, {most + 1, n * (n - 1), []dist.Option{forced(algo.OneShot)}},
	} {
		moved := make([]int, n)
		require.NoError(t, start(t, n, dist.Config{Threads: 1}, func(r *dist.Rank) error {
			g := r.World.With(c.opts...)
			err := g.AllReduce(tensor.New(r.Device, tensor.Float32, c.count), dist.Sum).Wait()
			moved[r.World.Rank()] = int(g.Stats().Wire["allreduce"])
			return err
		}))
		assert.Equal(t, c.moved*4*c.count, moved[0]+moved[1]+moved[2], "%d elements", c.count)
	}
}

// Names of the two ways are for all-reduces of device memory. One-shot has a largest size.
func TestForcedWays(t *testing.T) {
	start := machine(t, 1, emu.Config{})
	for want, run := range map[string]func(r *dist.Rank) dist.Work{
		`allreduce seq 1 of group world/1: oneshot of 4.00 MiB: 4.00 MiB at most`: func(r *dist.Rank) dist.Work {
			return r.World.With(forced(algo.OneShot)).AllReduce(tensor.New(r.Device, tensor.Uint8, 4<<20+1), dist.Sum)
		},
		`algorithm "twoshot" cannot do broadcast, which has: direct`: func(r *dist.Rank) dist.Work {
			return r.World.With(dist.Algo(algo.TwoShot)).Broadcast(tensor.New(r.Device, tensor.Float32, 8), 0)
		},
	} {
		errs, _ := fails(t, start, 2, func(r *dist.Rank) error { return run(r).Wait() })
		for _, err := range errs {
			assert.ErrorContains(t, err, want)
		}
	}
	err := disttest.OnRanks(2, func(r *dist.Rank) error {
		return r.World.With(forced(algo.OneShot)).Barrier().Wait()
	})
	assert.ErrorContains(t, err, `unknown algorithm "oneshot"; this engine has: direct`)
}

// A rank whose device is behind reads the inputs of operations, not those of later ones: a peer that is ahead has not overwritten its
// copies yet.
func TestCopiesWaitForSlowDevices(t *testing.T) {
	emu.Only(t, "a device is late")
	start := machine(t, 2, emu.Config{Lazy: true})
	const ahead = 2 * backend.Depth
	require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		g, me := r.World.With(forced(algo.OneShot)), r.World.Rank()
		xs, works := make([]tensor.Tensor, ahead), make([]dist.Work, ahead)
		issue := func(i int) {
			xs[i] = tensor.New(r.Device, tensor.Float32, 100)
			tensor.Copy(xs[i], tensor.FromSlice(slices.Repeat([]float32{float32(i + 1000*me)}, 100), 100))
			works[i] = g.AllReduce(xs[i], dist.Sum)
		}
		check := func(i int) error {
			if err := works[i].Wait(); err != nil {
				return err
			}
			if got := tensor.Floats(xs[i])[7]; got != float64(2*i+1000) {
				return fmt.Errorf("sum %d is %v", i, got)
			}
			return nil
		}
		turn := func() error { return r.World.SumFloats(make([]float64, 1)) }
		for i := range backend.Depth {
			issue(i)
		}
		if me == 0 { // its device does what rank 1's only has got
			for i := range backend.Depth {
				disttest.OK(check(i))
			}
			for i := range backend.Depth {
				issue(backend.Depth + i)
			}
			tensor.Floats(xs[ahead-1]) // its device has made all copies
		}
		disttest.OK(turn())
		for i := range ahead {
			if me == 1 && i >= backend.Depth {
				issue(i)
			}
			if me == 1 || i >= backend.Depth {
				disttest.OK(check(i))
			}
		}
		return nil
	}))
}

// A rank may close a group when its operations are over, while the devices of its peers still read its copies.
func TestCloseBeforeSlowDevices(t *testing.T) {
	emu.Only(t, "a device is late")
	start := machine(t, 2, emu.Config{Lazy: true})
	require.NoError(t, start(t, 2, dist.Config{Threads: 1}, func(r *dist.Rank) error {
		for range 3 {
			g, x := r.World.With(forced(algo.OneShot)), constant(r.Device, 3)
			w := g.AllReduce(x, dist.Sum)
			for rank := range 2 {
				if rank == r.World.Rank() {
					disttest.OK(w.Wait())
					if got := tensor.Floats(x)[part]; got != 6 {
						return fmt.Errorf("the sum is %v", got)
					}
					disttest.OK(g.Close())
				}
				disttest.OK(r.World.SumFloats(make([]float64, 1)))
			}
		}
		return nil
	}))
}
