package ddp_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks whose devices have memory of their own equal one rank in host memory: buckets, microbatches, clipping, a model that has
// values, and with the naive synchronization. 16-bit parameters have masters. In the short form each type has one kind of machine, and
// three ranks; on a GPU also two and four.
func TestDevicesEqualOneRank(t *testing.T) {
	steps := 4 // the emulator is slow
	if reliability.Long(t) {
		steps = 12
	}
	for _, c := range []struct {
		dtype tensor.DType
		ranks []int
		tol   float64
		short string
	}{{tensor.Float64, []int{1, 2, 3, 4}, 1e-10, "NCCL"}, {tensor.Float32, []int{1, 3}, 1e-5, "remote"},
		{tensor.BFloat16, []int{1, 3}, 2e-2, map[bool]string{true: "GPUs", false: "remote"}[unabridged(t)]}} {
		// several buckets
		j := job{training: training{Steps: steps, Batch: 64, Rule: adamW(0.5)}, cfg: ddp.Config{DType: c.dtype, BucketBytes: 2000}}
		want := j.run(t)
		t.Run(fmt.Sprint(c.dtype), func(t *testing.T) {
			disttest.OnEach(t, turn(t, disttest.Machines(), c.short), 4, func(t *testing.T, launch disttest.Launcher) {
				for i, n := range c.ranks {
					if n != 3 && (i == 0 || !unabridged(t)) && !reliability.Long(t) {
						continue
					}
					many := j
					if many.Ranks, many.On = n, launch; n == 2 {
						many.attach = ddp.Naive
					}
					disttest.RequireEqual(t, want, many.run(t), c.tol)
				}
			})
		})
	}
}

func TestLongDevicesEqualOneRank(t *testing.T) { reliability.AsLong(t, TestDevicesEqualOneRank) }

// A model with weights that are tied, frozen, and used on some ranks only.
func TestOddModelOnDevices(t *testing.T) {
	want := oddJob(2, ddp.Naive, ddp.Config{AllowUnused: true}, uneven).run(t)
	disttest.OnEach(t, turn(t, disttest.Machines(), "GPUs"), 4, func(t *testing.T, launch disttest.Launcher) {
		j := oddJob(2, ddp.Attach, ddp.Config{AllowUnused: true, BucketBytes: 300}, uneven)
		j.On = launch
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	})
}

func TestLongOddModelOnDevices(t *testing.T) { reliability.AsLong(t, TestOddModelOnDevices) }

// Gradients that are rounded on their way are rounded alike on all devices.
func TestCompressOnDevices(t *testing.T) {
	j := job{training: simple(2, 10, 64), cfg: ddp.Config{Hook: ddp.Compress(tensor.BFloat16), BucketBytes: 2000}}
	want := j.run(t)
	disttest.OnEach(t, turn(t, disttest.Machines(), "one GPU"), 4, func(t *testing.T, launch disttest.Launcher) {
		j.On = launch
		disttest.RequireEqual(t, want, j.run(t), 1e-3)
	})
}

func TestLongCompressOnDevices(t *testing.T) { reliability.AsLong(t, TestCompressOnDevices) }

// late is a CommHook with which rank 1 issues bucket 0 only when rank 0 has issued all buckets and its device is done with
// everything it computes.
type late struct {
	dev     tensor.Device
	buckets int
	done    chan struct{} // of rank 0
}

func (h *late) Start(b *ddp.Bucket) dist.Work {
	if b.Group.Rank() == 1 && b.Index == 0 {
		select {
		case <-h.done:
		case <-time.After(time.Minute):
			panic("rank 0 waits for the all-reduce of bucket 0 before it computes on")
		}
	}
	w := b.Group.AllReduce(b.Grad, dist.Sum)
	if b.Group.Rank() == 0 && b.Index == h.buckets-1 {
		if err := h.dev.Queue(0).Sync(); err != nil {
			panic(err)
		}
		h.done <- struct{}{}
	}
	return w
}
func (*late) Finish(*ddp.Bucket) {}

// While all-reduces wait for other ranks, Backward goes on: on the host and on the device.
func TestBackwardGoesOnDuringAllReduce(t *testing.T) {
	j := job{training: simple(2, 10, 64), cfg: ddp.Config{DType: tensor.Float64}}
	want := j.run(t)
	disttest.OnEach(t, turn(t, disttest.Machines(), "one GPU"), 4, func(t *testing.T, launch disttest.Launcher) {
		hook := late{buckets: 6, done: make(chan struct{})}
		j.On, j.attach = launch, func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
			mine := hook
			mine.dev = g.Device()
			c.Hook, c.BucketBytes = &mine, 1 // each parameter has a bucket
			return ddp.Attach(g, model, c)
		}
		disttest.RequireEqual(t, want, j.run(t), 1e-10)
	})
}

func TestLongBackwardGoesOnDuringAllReduce(t *testing.T) {
	reliability.AsLong(t, TestBackwardGoesOnDuringAllReduce)
}

// TestOverlap: bucket 0 is on its way before the gradient rule of the first layer starts. A step has 3 products of
// matrices forward and 5 backward; the last one is the first layer's.
func TestOverlap(t *testing.T) {
	const steps, products = 3, 8
	j := job{training: simple(2, steps, 32), cfg: ddp.Config{BucketBytes: 1500}}
	j.Trace = 10000
	var rules, issued []int64
	j.end = func(state *disttest.State) error {
		if state.Rank.World.Rank() != 0 {
			return nil
		}
		for _, s := range state.Rank.Trace.Spans() {
			switch {
			case s.Track == trace.Compute && (s.Name == "matmul" || s.Name == "linear_act"):
				rules = append(rules, s.Start)
			case s.Track == trace.Comm && s.Name == "allreduce:direct":
				issued = append(issued, s.Start)
			}
		}
		return nil
	}
	j.run(t)
	require.Len(t, rules, steps*products)
	for i := range steps {
		begin, last := rules[i*products], rules[i*products+products-1]
		require.True(t, slices.ContainsFunc(issued, func(at int64) bool { return begin < at && at < last }), "step %d", i)
	}
}
