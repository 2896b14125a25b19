package ddp_test

import (
	"context"
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

// attacher is ddp.Attach or ddp.Naive, or prepares something for one of them.
type attacher = func(*dist.Group, any, ddp.Config) (nn.Params, error)

// job is a small training on n goroutine ranks, with odd shapes, dropout, and parts of the batch that differ in size.
type job struct {
	ranks, steps, batch, micro int
	dtype                      tensor.DType
	adamw                      bool
	clip                       float64
	cfg                        ddp.Config
	attach                     attacher
	trace                      int
	model                      func() nn.Layer
	inspect                    func(r *dist.Rank, params nn.Params) error
	launch                     disttest.Launcher // nil: dist.Run, on CPUs
}

type result struct {
	losses []float64 // of the global batch
	params []float64
	names  []string
	stats  []dist.Stats // by rank
}

func mlp() nn.Layer {
	return nn.Sequential{nn.NewLinear(19, 31), nn.ReLU, nn.NewDropout(0.2), nn.NewLinear(31, 17), nn.GELU, nn.NewLinear(17, 5)}
}

// run trains and returns what rank 0 has at the end. All ranks must have the same.
func (j job) run(t *testing.T) result {
	t.Helper()
	res, err := j.try()
	require.NoError(t, err)
	return res
}

func (j job) try() (result, error) {
	if j.attach == nil {
		j.attach = ddp.Attach
	}
	if j.model == nil {
		j.model = mlp
	}
	if j.launch == nil {
		j.launch = dist.Run
	}
	j.micro = max(j.micro, 1)
	all := make([]result, j.ranks)
	var mu sync.Mutex
	err := j.launch(context.Background(), dist.Config{Ranks: j.ranks, Trace: j.trace, Threads: 1}, func(_ context.Context, r *dist.Rank) error {
		res, err := j.rank(r)
		mu.Lock()
		defer mu.Unlock()
		all[r.World.Rank()] = res
		return err
	})
	for i := range all {
		if i > 0 {
			all[0].stats = append(all[0].stats, all[i].stats...)
		}
		for k, v := range all[i].params {
			if err == nil && v != all[0].params[k] {
				panic("ranks have different parameters")
			}
		}
	}
	return all[0], err
}

func (j job) rank(r *dist.Rank) (res result, err error) {
	model := j.model()
	j.cfg.DType, j.cfg.Seed = j.dtype, 7
	params, err := j.attach(r.World, model, j.cfg)
	if err != nil {
		return res, err
	}
	opt := optim.NewSGD(params, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Clip: j.clip})
	if j.adamw {
		opt = optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-3, Clip: j.clip})
	}
	tape := tensor.NewTape(r.Device, tensor.Seed(3), tensor.Trace(r.Trace))
	defer tape.Close()
	for step := range j.steps {
		loss := 0.0
		for m := range j.micro {
			loss += j.backward(r, tape, model, step, m)
		}
		if err := opt.Step(); err != nil {
			return res, err
		}
		res.losses = append(res.losses, loss)
	}
	res.stats = []dist.Stats{r.World.Stats()}
	for _, p := range params {
		res.params = append(res.params, tensor.Floats(p.Value)...)
		res.names = append(res.names, p.Name())
	}
	if err := r.World.SumFloats(res.losses); err != nil {
		return res, err
	}
	if j.inspect != nil {
		err = j.inspect(r, params)
	}
	return res, err
}

// backward runs one microbatch: this rank's part of batch/micro rows.
func (j job) backward(r *dist.Rank, tape *tensor.Tape, model nn.Layer, step, m int) float64 {
	rows := j.batch / j.micro
	first, n := disttest.Part(rows, r.World.Rank(), r.World.Size())
	x, y := batch(r.Device, j.dtype, step*j.batch+m*rows+first, n)
	x.WithRows(tensor.Rows{First: m*rows + first, Stride: 1, Total: j.batch})
	loss := nn.CrossEntropy(model.Forward(tape.Input(x)), y)
	part := loss.Item()
	if m < j.micro-1 {
		tape.Backward(loss, tensor.More())
	} else {
		tape.Backward(loss)
	}
	tape.Reset()
	return part
}

// batch returns samples first, first+1, … of an endless deterministic set.
func batch(dev tensor.Device, dtype tensor.DType, first, n int) (x, y tensor.Tensor) {
	x, y = tensor.NewStaging(tensor.OtherMemory, dev, dtype, n, 19), tensor.NewStaging(tensor.OtherMemory, dev, tensor.Int64, n)
	tensor.UniformInit(-1, 1).Fill(x, 11, uint64(first*19))
	v := tensor.Floats(x)
	for i := range n {
		best := 0
		for c := range 5 {
			if v[i*19+c]+v[i*19+5+c] > v[i*19+best]+v[i*19+5+best] {
				best = c
			}
		}
		tensor.Data[int64](y)[i] = int64(best)
	}
	return x, y
}

func requireClose(t *testing.T, want, got []float64, tol float64, what string, n int) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], got[i], tol*max(1, abs(want[i])), "%s %d on %d ranks", what, i, n)
	}
}

func abs(x float64) float64 { return max(x, -x) }
