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
	set := disttest.Dataset{DType: j.dtype, Features: 19}
	for step := range j.steps {
		loss := set.Backward(r, tape, step, j.batch, j.micro, func(x, y nn.T) nn.T { return nn.CrossEntropy(model.Forward(x), y) })
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

// batch returns samples first, first+1, … of the training set.
func batch(r *dist.Rank, dtype tensor.DType, first, n int) (x, y tensor.Tensor) {
	x, y = disttest.Dataset{DType: dtype, Features: 19}.Samples(r.Device, first, n)
	return x.WithRows(r.World.Rows(n*r.World.Rank(), n*r.World.Size())), y
}

func requireClose(t *testing.T, want, got []float64, tol float64, what string, n int) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.InDelta(t, want[i], got[i], tol*max(1, want[i], -want[i]), "%s %d on %d ranks", what, i, n)
	}
}
