package ddp_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/ringo-ml/ringo/ddp"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/models/gpt"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// A steady step of GPT-2 on two GPUs, captured: gradients in several buckets, which are summed while the backward pass goes on, two
// microbatches, clipping and AdamW on float32 masters. It allocates nothing, copies nothing from or to the host, waits for no device,
// and is a launch for each part between collectives.
func TestCapturedGPT2IsSteady(t *testing.T) {
	if os.Getenv("RINGO_DEBUG") == "1" {
		t.Skip("debug mode allocates")
	}
	layers := 1
	if reliability.Long(t) {
		layers = 4
	}
	disttest.OnEach(t, disttest.GPUs()[1:], 2, func(t *testing.T, launch disttest.Launcher) {
		disttest.SteadySteps(t, launch, 12, 2, func(r *dist.Rank) (func() error, error) { return capturedGPT2(r, layers) })
	})
}

func TestLongCapturedGPT2IsSteady(t *testing.T) { reliability.AsLong(t, TestCapturedGPT2IsSteady) }

// launches counts those on the GPU of a rank.
func launches(r *dist.Rank) int64 {
	return r.Device.(interface{ GPU() *cuda.Device }).GPU().Stats().Launches
}

func capturedGPT2(r *dist.Rank, layers int) (func() error, error) {
	const batch, vocabulary, length = 1, 32, 16
	model, err := gpt.New(gpt.Config{Vocab: vocabulary, Positions: length, Width: 32, Layers: layers, Heads: 2, Tied: true})
	if err != nil {
		return nil, err
	}
	params, err := ddp.Attach(r.World, model, ddp.Config{DType: tensor.BFloat16, Seed: 1, BucketBytes: 10_000})
	if err != nil {
		return nil, err
	}
	opt := optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3, WeightDecay: 0.1, Clip: 1, Norm: r.World})
	tape := tensor.NewTape(r.Device)
	ids, labels := tensor.New(r.Device, tensor.Int64, batch, length), tensor.New(r.Device, tensor.Int64, batch, length)
	for i, x := range []tensor.Tensor{ids, labels} {
		v := make([]int64, x.Len())
		for j := range v {
			v[j] = int64(tensor.RandomBits(uint64(2*r.World.Rank()+i), uint64(j)) % vocabulary)
		}
		tensor.Copy(x, tensor.FromSlice(v, batch, length))
	}
	ids = ids.WithRows(r.World.Rows(batch*r.World.Rank(), batch*r.World.Size()))
	loss := func() tensor.Tensor { return nn.CrossEntropy(model.Forward(tape.Input(ids)), labels) }
	run := func(...tensor.Tensor) error {
		tape.Backward(loss(), tensor.More())
		tape.Backward(loss())
		err := opt.Step()
		tape.Reset()
		return err
	}
	counted := func(step func(...tensor.Tensor) error) (n int64, err error) {
		before := launches(r)
		err = step()
		return launches(r) - before, err
	}
	plain, err := counted(run)
	if err != nil {
		return nil, err
	}
	captured := tensor.Capture(r.Device, run)
	for range 4 {
		if err := captured.Run(); err != nil {
			return nil, err
		}
	}
	replay, err := counted(captured.Run)
	if err == nil && 4*replay > plain {
		err = fmt.Errorf("a replay has %d launches, a step %d", replay, plain)
	}
	if err != nil {
		return nil, err
	}
	return func() error { return captured.Run() }, nil
}
