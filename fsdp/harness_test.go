package fsdp_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// block is a residual block with odd shapes.
type block struct {
	Norm *nn.LayerNorm
	MLP  *nn.MLP
	Drop *nn.Dropout
}

func (b *block) Forward(x nn.T) nn.T {
	return x.Add(b.Drop.Forward(b.MLP.Forward(b.Norm.Forward(x))))
}

const width, classes = 7, 5

// model is a network that divides itself into units.
type model interface {
	nn.Layer
	units(s *fsdp.Sharding)
}

// toy is a small network whose parts are units: a parameter of one element, matrices 7×15 and 16×17, and a tied weight.
type toy struct {
	Scale  *tensor.Param
	In     *nn.Linear // tied to Tied
	Blocks []*block
	Wide   *nn.Linear
	Tied   *nn.Linear
	Head   *nn.Linear
	skip   func(i int) bool // blocks that are left out
}

func newToy() *toy {
	n := &toy{Scale: tensor.NewParam(tensor.Constant(0.7), 1), In: nn.NewLinear(width, width), Wide: nn.NewLinear(width, 16)}
	n.Tied = &nn.Linear{W: n.In.W}
	for range 4 {
		n.Blocks = append(n.Blocks, &block{nn.NewLayerNorm(width), nn.NewMLP(width, 15), nn.NewDropout(0.2)})
	}
	n.Head = &nn.Linear{W: tensor.NewParam(tensor.KaimingUniform(16), 17, 16)}
	return n
}

func (n *toy) Forward(x nn.T) nn.T {
	t := x.Tape()
	x = n.In.Forward(x).Mul(t.Use(n.Scale))
	for i, b := range n.Blocks {
		if n.skip == nil || !n.skip(i) {
			x = b.Forward(x)
		}
	}
	x = n.Tied.Forward(x)
	return n.Head.Forward(n.Wide.Forward(x).Tanh())
}

// units divides n.
func (n *toy) units(s *fsdp.Sharding) {
	s.Keep(n.Scale, n.In, n.Tied)
	for _, b := range n.Blocks {
		s.Unit(b)
	}
	s.Unit(n.Wide, n.Head)
}

// chain is a sequence of layers, each of which is a unit.
type chain struct{ Layers nn.Sequential }

func newChain() model {
	c := &chain{}
	for range 5 {
		c.Layers = append(c.Layers, nn.NewLinear(width, width))
	}
	return c
}

func (c *chain) Forward(x nn.T) nn.T { return c.Layers.Forward(x) }

func (c *chain) units(s *fsdp.Sharding) {
	for _, l := range c.Layers {
		s.Unit(l)
	}
}

// job is a training on goroutine ranks, with dropout and parts of the batch that differ in size.
type job struct {
	ranks, copies, steps, batch, micro int
	cfg                                fsdp.Config
	noClip                             bool
	offload                            bool
	one                                bool                                           // one rank, without fsdp
	with                               func(r *dist.Rank, n model) (nn.Params, error) // in place of fsdp
	model                              func() model
	before                             func(r *dist.Rank, n model, s *fsdp.Sharding, params nn.Params, step int) error
	after                              func(r *dist.Rank, s *fsdp.Sharding) error // the last step
	inspect                            func(r *dist.Rank, s *fsdp.Sharding, params nn.Params, opt *optim.Optimizer) error
	launch                             disttest.Launcher // nil: dist.Run, on CPUs
}

type result struct {
	losses, norms []float64 // of the global batch
	params        []float64
	errs          []error // by rank
}

func (j job) run(t *testing.T) result {
	t.Helper()
	res, err := j.try()
	require.NoError(t, err)
	return res
}

// try trains and returns what rank 0 has at the end.
func (j job) try() (result, error) {
	if j.model == nil {
		j.model = func() model { return newToy() }
	}
	j.micro, j.copies = max(j.micro, 1), max(j.copies, 1)
	var res result
	errs := make([]error, j.ranks*j.copies)
	var mu sync.Mutex
	if j.launch == nil {
		j.launch = dist.Run
	}
	err := j.launch(context.Background(), dist.Config{Ranks: j.ranks * j.copies, Threads: 1, Timeout: time.Minute, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error {
		var mine result
		var err error
		if failure := tensor.Try(func() { mine, err = j.rank(r) }); failure != nil {
			err = failure
		}
		mu.Lock()
		defer mu.Unlock()
		errs[r.World.Rank()] = err
		if r.World.Rank() == 0 {
			res = mine
		}
		return err
	})
	res.errs = errs
	return res, err
}

// onRanks runs fn on goroutine ranks.
func onRanks(n int, fn func(r *dist.Rank) error) error {
	return dist.Run(context.Background(), dist.Config{Ranks: n, Threads: 1, Timeout: time.Minute, Log: io.Discard}, func(_ context.Context, r *dist.Rank) error { return fn(r) })
}

// attach cuts the model, over a mesh if there are copies.
func (j *job) attach(r *dist.Rank, n model) (nn.Params, *fsdp.Sharding, error) {
	c := j.cfg
	c.Seed, c.Shard = 7, r.World
	if j.with != nil {
		params, err := j.with(r, n)
		return params, nil, err
	}
	if j.one {
		return nn.Init(n, r.Device, c.DType, c.Seed), nil, nil
	}
	if j.offload {
		c.Offload = tensor.NewCPU(1)
	}
	if j.copies > 1 {
		mesh, err := r.Mesh(map[int]string{2: "dp=2,fsdp=2", 3: "dp=3,fsdp=2"}[j.copies])
		if err != nil {
			return nil, nil, err
		}
		c.Shard, c.Replicate = mesh.Group("fsdp"), mesh.Group("dp")
	}
	makeOwn(r, n, c)
	s := fsdp.New(c)
	n.units(s)
	params, err := s.Attach(n)
	return params, s, err
}

// makeOwn makes what a model does not leave to fsdp.
func makeOwn(r *dist.Rank, n model, c fsdp.Config) {
	if m, ok := n.(interface {
		makeOwn(dev tensor.Device, dtype tensor.DType, seed uint64)
	}); ok {
		m.makeOwn(r.Device, c.DType, c.Seed)
	}
}

func (j *job) rank(r *dist.Rank) (res result, err error) {
	n := j.model()
	params, s, err := j.attach(r, n)
	if err != nil {
		return res, err
	}
	var norm optim.Norm
	if s != nil {
		norm = s
	} else if !j.one {
		norm = r.World
	}
	opt := j.optimizer(params, norm)
	tape := tensor.NewTape(r.Device, tensor.Seed(3))
	defer tape.Close()
	set := disttest.Dataset{DType: j.cfg.DType, Features: width}
	for step := range j.steps {
		if j.before != nil {
			if err := j.before(r, n, s, params, step); err != nil {
				return res, err
			}
		}
		loss := set.Backward(r, tape, step, j.batch, j.micro, func(x, y nn.T) nn.T { return j.loss(n, x, y) })
		if err := opt.Step(); err != nil {
			return res, err
		}
		res.losses = append(res.losses, loss)
		res.norms = append(res.norms, opt.GradNorm())
	}
	if j.after != nil {
		if err := j.after(r, s); err != nil {
			return res, err
		}
	}
	if err := r.World.SumFloats(res.losses); err != nil {
		return res, err
	}
	if res.params, err = disttest.Whole(r.World, params...); err != nil {
		return res, err
	}
	if j.inspect != nil {
		err = j.inspect(r, s, params, opt)
	}
	return res, err
}

func (j *job) optimizer(params nn.Params, norm optim.Norm) *optim.Optimizer {
	clip := 0.5
	if j.noClip {
		clip = 0
	}
	return optim.NewAdamW(params, optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.1, Clip: clip, Norm: norm})
}

// loss of rows, in the type that the model computes in.
func (j *job) loss(n model, x, y nn.T) nn.T {
	if c := j.cfg.Compute; c != 0 && c != j.cfg.DType {
		x = x.Cast(c)
	}
	return nn.CrossEntropy(n.Forward(x), y)
}

// batch returns samples first, first+1, … of the training set.
func batch(r *dist.Rank, dtype tensor.DType, first, n int) (x, y tensor.Tensor) {
	x, y = disttest.Dataset{DType: dtype, Features: width}.Samples(r.Device, first, n)
	return x.WithRows(r.World.Rows(n*r.World.Rank(), n*r.World.Size())), y
}

func requireClose(t *testing.T, want, got result, tol float64, msg string, args ...any) {
	t.Helper()
	for _, c := range [][2][]float64{{want.losses, got.losses}, {want.norms, got.norms}, {want.params, got.params}} {
		require.Len(t, c[1], len(c[0]))
		for i := range c[0] {
			require.InDelta(t, c[0][i], c[1][i], tol*max(1, c[0][i], -c[0][i]), append([]any{msg}, args...)...)
		}
	}
}
