package ddp_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// What buckets, and what is sent in their place, had before the first step is given back when they are laid out once more.
func TestOldBucketsAreFreed(t *testing.T) {
	for _, hook := range []ddp.CommHook{nil, ddp.Compress(tensor.BFloat16)} {
		require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
			model := mlp()
			params := disttest.Must(ddp.Attach(r.World, model, ddp.Config{Hook: hook}))
			opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1})
			tape := tensor.NewTape(r.Device)
			var live [4]int
			for i := range live {
				x, y := batch(r, tensor.Float32, 0, 4)
				tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(x)), y))
				tape.Reset()
				disttest.OK(errors.Join(opt.Step(), r.World.Barrier().Wait()))
				live[i] = r.Device.Memory().Of(memory.Gradients).Live + r.Device.Memory().Of(memory.Communication).Live
			}
			if live[0] == 0 || live[0] != live[1] || live[1] != live[3] {
				return fmt.Errorf("bytes after each step: %v", live)
			}
			return nil
		}))
	}
}

// A model with values in host memory trains on the ranks' devices.
func TestValuesMoveToDevices(t *testing.T) {
	disttest.OnEach(t, turn(t, disttest.Machines(), "GPUs"), 2, func(t *testing.T, launch disttest.Launcher) {
		j := job{training: simple(2, 1, 8), attach: func(g *dist.Group, model any, c ddp.Config) (nn.Params, error) {
			nn.Init(model, cpu.New(1), c.DType, 99+uint64(g.Rank()))
			params, err := ddp.Attach(g, model, c)
			for _, p := range params {
				require.Equal(t, g.Device(), p.Value.Device())
			}
			return params, err
		}}
		j.On = launch
		j.run(t)
	})
}

func TestLongValuesMoveToDevices(t *testing.T) { reliability.AsLong(t, TestValuesMoveToDevices) }

// breaking is a Function that fails in Backward.
type breaking struct{}

func (breaking) Name() string                                   { return "breaking" }
func (breaking) Forward(c *tensor.Ctx, in []tensor.Tensor) nn.T { return in[0].Scale(1) }
func (breaking) Backward(*tensor.Ctx, nn.T, []nn.T) {
	panic(&tensor.Failure{Op: "breaking", Err: errors.New("broken")})
}

// dawdling is a CommHook whose rank 1 begins its first all-reduce when rank 0 is in the Backward behind the one that failed.
type dawdling struct {
	until   chan struct{}
	started int
}

func (h *dawdling) Start(b *ddp.Bucket) dist.Work {
	if h.until != nil {
		<-h.until
		h.until = nil
		for range 3000 {
			runtime.Gosched()
		}
	}
	h.started++
	return b.Group.AllReduce(b.Grad, dist.Sum)
}
func (*dawdling) Finish(*ddp.Bucket) {}

// After a Backward that failed on all ranks, the next one leaves gradients alone that others still read.
func TestBackwardAfterFailure(t *testing.T) {
	again := make(chan struct{})
	require.NoError(t, disttest.OnRanks(2, func(r *dist.Rank) error {
		first, last := nn.NewLinear(19, 64), nn.Sequential{nn.NewLinear(64, 64), nn.GELU, nn.NewLinear(64, 5)}
		hook := new(dawdling)
		if r.World.Rank() == 1 {
			hook.until = again
		}
		params := disttest.Must(ddp.Attach(r.World, nn.Sequential{first, last}, ddp.Config{BucketBytes: 1, Hook: hook}))
		tape := tensor.NewTape(r.Device)
		x, y := batch(r, tensor.Float32, 0, 4)
		broken := tensor.Try(func() {
			tape.Backward(nn.CrossEntropy(last.Forward(tape.Apply(breaking{}, first.Forward(tape.Input(x)))), y))
		})
		if broken == nil {
			return errors.New("nothing failed")
		}
		require.Positive(t, hook.started)
		tape.Reset()
		for _, p := range params {
			p.Consume()
		}
		loss := nn.CrossEntropy(last.Forward(first.Forward(tape.Input(x))), y)
		if r.World.Rank() == 0 {
			close(again)
		}
		tape.Backward(loss)
		return nil
	}))
}
