package ddp_test

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// captured is a training whose steps some ranks capture: two microbatches with dropout, several buckets, clipping, a schedule, and a
// smaller batch now and then.
type captured struct {
	launch  disttest.Launcher
	cfg     ddp.Config
	capture func(rank int) bool // nil: no rank
	steps   int
}

// run returns all losses and parameters of all ranks.
func (c captured) run(t *testing.T) (losses, params [][]float64) {
	t.Helper()
	losses, params = make([][]float64, 2), make([][]float64, 2)
	require.NoError(t, c.try(losses, params))
	return losses, params
}

func (c captured) try(losses, params [][]float64) error {
	var mu sync.Mutex
	return c.launch(context.Background(), dist.Config{Ranks: 2, Threads: 1, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		l, p, err := c.rank(r)
		mu.Lock()
		defer mu.Unlock()
		losses[r.World.Rank()], params[r.World.Rank()] = l, p
		return err
	})
}

func (c captured) rank(r *dist.Rank) (losses, values []float64, err error) {
	model := mlp()
	c.cfg.DType, c.cfg.Seed = tensor.Float64, 7
	params, err := ddp.Attach(r.World, model, c.cfg)
	if err != nil {
		return nil, nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, Clip: 0.5, Norm: r.World, Schedule: optim.Warmup(4, optim.Cosine(0.1, 20))})
	tape, last := tensor.NewTape(r.Device, tensor.Seed(3)), tensor.New(r.Device, tensor.Float64)
	defer tape.Close()
	step := func(in ...tensor.Tensor) error {
		tape.Backward(nn.CrossEntropy(model.Forward(tape.Input(in[0])), in[1]), tensor.More())
		loss := nn.CrossEntropy(model.Forward(tape.Input(in[2])), in[3])
		tensor.Copy(last, loss)
		tape.Backward(loss)
		err := opt.Step()
		tape.Reset()
		return err
	}
	if c.capture != nil && c.capture(r.World.Rank()) {
		s := tensor.Capture(r.Device, step)
		defer s.Close()
		step = s.Run
	}
	for i := range c.steps {
		n := 9
		if i == 5 || i == 6 || i == 9 {
			n = 4 + i%2
		}
		x, y := batch(r, tensor.Float64, 100*i, n)
		u, v := batch(r, tensor.Float64, 100*i+50, n)
		if err := step(x, y, u, v); err != nil {
			return nil, nil, err
		}
		losses = append(losses, last.Item())
	}
	for _, p := range params {
		values = append(values, tensor.Floats(p.Value)...)
	}
	return losses, values, nil
}

// Captured steps of two ranks have the bits of steps that run: with both of them captured, and with one.
func TestCapturedSteps(t *testing.T) {
	disttest.OnEach(t, disttest.GPUs(), 2, func(t *testing.T, launch disttest.Launcher) {
		for _, cfg := range []ddp.Config{{BucketBytes: 2000}, {BucketBytes: 2000, Hook: ddp.Compress(tensor.BFloat16)}} {
			c := captured{launch: launch, cfg: cfg, steps: 14}
			losses, params := c.run(t)
			for _, who := range []func(rank int) bool{func(int) bool { return true }, func(rank int) bool { return rank == 1 }} {
				c.capture = who
				l, p := c.run(t)
				require.Equal(t, losses, l)
				require.Equal(t, params, p)
			}
		}
	})
}

// What ddp cannot do in replays is refused in words when the step is recorded.
func TestRefusedInCapturedSteps(t *testing.T) {
	launch := disttest.GPUs()[0].Start(t, 2)
	for want, cfg := range map[string]ddp.Config{
		"ddp: Config.CheckEvery is 5, and replays of a captured step": {CheckEvery: 5},
		"on host memory inside a captured step":                       {AllowUnused: true},
	} {
		c := captured{launch: launch, cfg: cfg, capture: func(int) bool { return true }, steps: 3}
		require.ErrorContains(t, c.try(make([][]float64, 2), make([][]float64, 2)), want)
	}
}
