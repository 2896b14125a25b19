package ddp_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// odd is a network with all that makes counting gradients hard: a weight that is tied, and used three times, a layer
// that was frozen before Attach, one that is frozen later, and a branch that is used on some ranks in some microbatches.
type odd struct {
	In, Square, Tied, Fixed, Branch, Out *nn.Linear
	calls, freezeAt                      int
	branch                               func(call int) bool
}

func newOdd() *odd {
	o := &odd{In: nn.NewLinear(19, 8), Square: nn.NewLinear(8, 8), Tied: nn.NewLinear(8, 8), Fixed: nn.NewLinear(8, 8),
		Branch: nn.NewLinear(19, 8), Out: nn.NewLinear(8, 5), freezeAt: -1, branch: func(int) bool { return true }}
	o.Tied.W = o.Square.W
	o.Fixed.W.Freeze()
	return o
}

func (o *odd) Forward(x nn.T) nn.T {
	if o.calls == o.freezeAt {
		o.In.W.Freeze()
	}
	h := o.In.Forward(x).Tanh()
	h = o.Square.Forward(o.Square.Forward(h).Tanh())
	h = o.Fixed.Forward(o.Tied.Forward(h).Tanh())
	if o.branch(o.calls) {
		h = h.Add(o.Branch.Forward(x))
	}
	o.calls++
	return o.Out.Forward(h.Tanh())
}

// oddJob runs 8 steps of three microbatches.
func oddJob(ranks int, attach attacher, cfg ddp.Config, prepare func(o *odd, rank int)) job {
	cfg.DType = tensor.Float64
	j := job{training: training{Ranks: ranks, Steps: 8, Batch: 24, Micro: 3, Rule: adamW(0)}, cfg: cfg}
	j.model = func() nn.Layer { return newOdd() }
	j.attach = func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
		prepare(model.(*odd), g.Rank())
		return attach(g, model, c)
	}
	return j
}

func TestOddModelEqualsOneRank(t *testing.T) {
	never := oddJob(1, ddp.Naive, ddp.Config{}, func(*odd, int) {}).run(t)
	for _, at := range []int{12, 13} { // at the start of step 4, and between its microbatches
		freeze := func(o *odd, _ int) { o.freezeAt = at }
		want := oddJob(1, ddp.Naive, ddp.Config{}, freeze).run(t)
		require.NotEqual(t, never.Last, want.Last)
		for _, ranks := range []int{1, 2, 3} {
			if (ranks == 3) == reliability.Long(t) {
				continue
			}
			for _, unused := range []bool{false, true} {
				cfg := ddp.Config{BucketBytes: 300, AllowUnused: unused}
				got := oddJob(ranks, ddp.Attach, cfg, freeze).run(t)
				disttest.RequireEqual(t, want, got, 1e-10)
				disttest.RequireEqual(t, oddJob(ranks, ddp.Naive, cfg, freeze).run(t), got, 0)
			}
		}
	}
}

func TestLongOddModelEqualsOneRank(t *testing.T) { reliability.AsLong(t, TestOddModelEqualsOneRank) }

// In a step, the branch may be used on one rank only, in one microbatch only, or nowhere.
func uneven(o *odd, rank int) {
	o.branch = func(call int) bool {
		step, micro := call/3, call%3
		return step%4 != 3 && micro == step%3 && rank == step%2
	}
}

func TestUnevenUseEqualsNaive(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		want := oddJob(ranks, ddp.Naive, ddp.Config{AllowUnused: true}, uneven).run(t)
		for _, bytes := range []int{1, 300, 0} {
			got := oddJob(ranks, ddp.Attach, ddp.Config{AllowUnused: true, BucketBytes: bytes}, uneven).run(t)
			disttest.RequireEqual(t, want, got, 0)
		}
	}
}

// Rounding is by element: what is compressed together does not matter.
func TestCompressedBucketsAgree(t *testing.T) {
	exact := oddJob(2, ddp.Attach, ddp.Config{AllowUnused: true}, uneven).run(t)
	var first disttest.Result
	for _, bytes := range []int{1, 300, 0} {
		got := oddJob(2, ddp.Attach, ddp.Config{AllowUnused: true, BucketBytes: bytes, Hook: ddp.Compress(tensor.BFloat16)}, uneven).run(t)
		require.NotEqual(t, exact.Last, got.Last)
		if first.Last == nil {
			first = got
		}
		disttest.RequireEqual(t, first, got, 0)
	}
	err := tensor.Try(func() { ddp.Compress(tensor.Int32) })
	require.ErrorContains(t, err, "int32 is not a 16-bit float type")
}

func TestAttachErrors(t *testing.T) {
	for _, attach := range []attacher{ddp.Attach, ddp.Naive} {
		err := disttest.OnRanks(2, func(r *dist.Rank) error {
			model := nn.NewLinear(3, 2)
			disttest.Must(attach(r.World, model, ddp.Config{}))
			_, err := ddp.Attach(r.World, model, ddp.Config{})
			return err
		})
		require.ErrorContains(t, err, "ddp: weight is attached already")
		err = disttest.OnRanks(2, func(r *dist.Rank) error {
			_, err := attach(r.World, nn.Sequential{nn.ReLU}, ddp.Config{})
			return err
		})
		require.ErrorContains(t, err, "ddp: no parameters in a model of type nn.Sequential")
	}
}

// Steps that failed leave nothing behind: their two gradients each are not the four that the buckets are ordered by.
func TestStepsAfterFailedOnes(t *testing.T) {
	err := disttest.OnRanks(2, func(r *dist.Rank) error {
		model := &forked{nn.NewLinear(19, 8), nn.NewLinear(19, 8), nn.NewLinear(8, 5), false}
		model.Head.W.Freeze()
		model.Head.B.Freeze()
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{BucketBytes: 200}))
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
		tape := tensor.NewTape(r.Device)
		for step := range 5 {
			x, y := batch(r, tensor.Float32, step, 4)
			model.useB = step > 1
			err := tensor.Try(func() { tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y)) })
			if failed := err != nil; failed == model.useB {
				return fmt.Errorf("step %d: %w", step, err)
			}
			if model.useB {
				disttest.OK(opt.Step())
			}
			tape.Reset()
		}
		return nil
	})
	require.NoError(t, err)
}

// broken aborts its group on rank 1 in the second step, between two buckets: the other ranks, which took part in the
// first step, are then in a Backward.
type broken struct{ steps int }

func (h *broken) Start(b *ddp.Bucket) dist.Work {
	if b.Index == 1 {
		h.steps++
		if h.steps == 2 && b.Group.Rank() == 1 {
			b.Group.Abort(errCable)
		}
	}
	return b.Group.AllReduce(b.Grad, dist.Sum)
}
func (*broken) Finish(*ddp.Bucket) {}

var errCable = errors.New("somebody cut the cable")

func TestFailureInTheMiddleOfBackward(t *testing.T) {
	start := time.Now()
	var mu sync.Mutex
	seen := make([]error, 3)
	_ = disttest.OnRanks(3, func(r *dist.Rank) error {
		model := mlp()
		params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{BucketBytes: 500, Hook: &broken{}}))
		opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
		tape := tensor.NewTape(r.Device)
		x, y := batch(r, tensor.Float32, 0, 4)
		err := tensor.Try(func() {
			for range 3 {
				tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
				_ = opt.Step() // without a Norm, it cannot fail
				tape.Reset()
			}
		})
		mu.Lock()
		defer mu.Unlock()
		seen[r.World.Rank()] = err
		return err
	})
	for rank, err := range seen {
		require.ErrorContains(t, err, errCable.Error(), "on rank %d", rank)
		var failure *tensor.Failure
		require.ErrorAs(t, err, &failure)
	}
	require.Less(t, time.Since(start), 28*time.Second+reliability.Slack, "no rank waited for the timeout")
}
