package moe_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/moe"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// captures trains a layer on ranks of dp and ep, in steps of two microbatches with dropout, of which a few have fewer rows. It returns
// losses, norms and parameters of all ranks.
func captures(launch disttest.Launcher, c training, capture bool) (all [][]float64, err error) {
	ranks := max(c.dp, 1) * c.ep
	all = make([][]float64, ranks)
	var mu sync.Mutex
	err = launch(context.Background(), dist.Config{Ranks: ranks, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		mine, err := c.captured(r, capture)
		mu.Lock()
		defer mu.Unlock()
		all[r.World.Rank()] = mine
		return err
	})
	return all, err
}

func (c training) captured(r *dist.Rank, capture bool) (all []float64, err error) {
	mesh, err := r.Mesh(c.mesh())
	if err != nil {
		return nil, err
	}
	m := newModel(c.Config)
	params, err := c.attach(m, mesh)
	if err != nil {
		return nil, err
	}
	data := mesh.Group("dp", "ep")
	opt := optim.NewAdamW(params.Trainable(), optim.AdamWConfig{LR: 0.01, Clip: 0.4, Norm: r.World, Schedule: optim.Warmup(4, optim.Cosine(0.1, 20))})
	tape, last := tensor.NewTape(r.Device), tensor.New(r.Device, tensor.Float64)
	defer tape.Close()
	block := plainly
	if c.again {
		block = checkpointed
	}
	step := func(in ...tensor.Tensor) error {
		for i, x := range in {
			x := tape.Input(x)
			loss := nn.MSE(block(tape, m.Forward, x), x.Slice(2, 0, 2).Tanh())
			if i == 0 {
				tape.Backward(loss, tensor.More())
				continue
			}
			tensor.Copy(last, loss)
			tape.Backward(loss)
		}
		err := opt.Step()
		tape.Reset()
		return err
	}
	if capture {
		s := tensor.Capture(r.Device, step)
		defer s.Close()
		step = s.Run
	}
	rows := values(4000, 3, 3)
	for i := range 11 {
		n := 5
		if i == 5 || i == 8 {
			n = 3
		}
		x, y := tensor.FromSlice(rows[i*300:][:n*9], n, 3, 3), tensor.FromSlice(rows[i*300+150:][:n*9], n, 3, 3)
		at := data.Rows(n*data.Rank(), n*data.Size())
		if err := step(x.WithRows(at), y.WithRows(at)); err != nil {
			return nil, err
		}
		all = append(all, last.Item(), opt.GradNorm())
	}
	for _, p := range params {
		all = append(all, tensor.Floats(p.Value)...)
	}
	return append(all, tensor.Floats(tensor.ToHost(last))...), nil
}

// Captured steps of a layer with a capacity have the bits of steps that run: rows travel between ranks, and are computed again.
func TestCapturedSteps(t *testing.T) {
	shared := moe.Config{Features: 6, Hidden: 5, Experts: 4, Router: routers["qwen"], Capacity: 1.25, Balance: 0.1, Z: 0.01, Shared: 4}
	cases, machine := []training{{ep: 2, Config: shared}, {ep: 2, again: true, half: true, Config: shared}}, 0
	disttest.OnEach(t, disttest.GPUs(), 2, func(t *testing.T, launch disttest.Launcher) {
		machine++
		for i, c := range cases {
			if i != machine%2 && !reliability.Long(t) {
				continue
			}
			want, err := captures(launch, c, false)
			require.NoError(t, err)
			got, err := captures(launch, c, true)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}

func TestLongCapturedSteps(t *testing.T) {
	reliability.SkipUnlessLong(t)
	TestCapturedSteps(t)
}

// Without a capacity, how many rows travel depends on data: the host would have to wait for it.
func TestCapturedWithoutCapacity(t *testing.T) {
	launch := disttest.GPUs()[0].Start(t, 2)
	_, err := captures(launch, training{ep: 2, Config: moe.Config{Features: 6, Hidden: 5, Experts: 4, Router: routers["qwen"]}}, true)
	require.ErrorContains(t, err, "dispatch.depart int64[8]: needs numbers on the host that the device computes: inside a captured step")
}
