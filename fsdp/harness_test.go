package fsdp_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/fsdp"
	"github.com/ringo-ml/ringo/internal/cuda/emu"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
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

type training = disttest.Training

// unabridged reports whether this form of a test has what is slow on the emulator: the long one, and on a GPU, where only short ones run.
func unabridged(t *testing.T) bool { return reliability.Long(t) || emu.OnGPU() }

// turn returns, in the short form of a test, one of these machines: tests take turns with them.
func turn(t *testing.T, machines []disttest.Machine, short string) []disttest.Machine {
	return slices.DeleteFunc(machines, func(m disttest.Machine) bool { return m.Name != short && !reliability.Long(t) })
}

// inShort reports whether this form of a test has a case: the short one those of the list, and the long one the others.
func inShort(t *testing.T, name string, short ...string) bool {
	return slices.Contains(short, name) != reliability.Long(t)
}

// job is a training of a model with dropout.
type job struct {
	training
	cfg         fsdp.Config
	offload     bool
	near        bool                                           // with Config.Host, on a mesh with axes host and gpu
	one         bool                                           // without fsdp
	with        func(r *dist.Rank, n model) (nn.Params, error) // in place of fsdp
	model       func() model                                   // nil: newToy
	before, end func(p place) error                            // of a step, and of the last one
	step        func(p place) ([]float64, error)               // in place of the ordinary one
}

// place is where a rank's training is.
type place struct {
	*disttest.State
	model    model
	sharding *fsdp.Sharding
}

func (j job) run(t *testing.T) disttest.Result {
	t.Helper()
	return j.whole().Run(t)
}

func (j job) whole() training {
	j.Name = fmt.Sprintf("%+v, offloaded %v", j.cfg, j.offload)
	if j.model == nil {
		j.model = func() model { return newToy() }
	}
	if j.before != nil { // which knows steps by their numbers
		j.Steps = cmp.Or(j.Steps, 10)
	}
	j.Attach = func(r *dist.Rank, m *dist.Mesh) (a disttest.Attached, err error) {
		n := j.model()
		params, s, err := j.attach(r, m, n)
		hook := func(f func(p place) error) func(*disttest.State) error {
			return func(state *disttest.State) error {
				if f == nil {
					return nil
				}
				return f(place{state, n, s})
			}
		}
		a = disttest.Attached{Params: params, Before: hook(j.before), End: hook(j.end)}
		if s != nil {
			a.Norm = s
		} else if !j.one {
			a.Norm = r.World
		}
		if j.step != nil {
			a.Step = func(state *disttest.State) ([]float64, error) { return j.step(place{state, n, s}) }
		}
		a.Loss = func(b disttest.Batch) nn.T {
			x, y := b.Samples(disttest.Dataset{DType: j.cfg.DType, Features: width})
			if c := j.cfg.Compute; c != 0 && c != j.cfg.DType {
				x = x.Cast(c)
			}
			return nn.CrossEntropy(n.Forward(x), y)
		}
		return a, err
	}
	return j.training
}

// attach cuts the model, over a mesh if there are copies.
func (j *job) attach(r *dist.Rank, m *dist.Mesh, n model) (nn.Params, *fsdp.Sharding, error) {
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
		c.Offload = cpu.New(1)
	}
	switch {
	case strings.Contains(j.Mesh, "gpu"):
		c.Shard, c.Replicate = m.Group("host", "gpu"), m.Group("dp")
		if j.near {
			c.Host = m.Group("gpu")
		}
	case m != nil:
		c.Shard, c.Replicate = m.Group("fsdp"), m.Group("dp")
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

// unclipped is a training whose norms of gradients change nothing.
func unclipped(p nn.Params, n optim.Norm) *optim.Optimizer {
	return optim.NewAdamW(p, optim.AdamWConfig{LR: 1e-2, WeightDecay: 0.1, Norm: n})
}

// batch returns samples first, first+1, … of the training set.
func batch(r *dist.Rank, dtype tensor.DType, first, n int) (x, y tensor.Tensor) {
	x, y = disttest.Dataset{DType: dtype, Features: width}.Samples(r.Device, first, n)
	return x.WithRows(r.World.Rows(n*r.World.Rank(), n*r.World.Size())), y
}
