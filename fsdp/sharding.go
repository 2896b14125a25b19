package fsdp

import (
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/groups"
	"github.com/ringo-ml/ringo/fsdp/internal/naive"
	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/fsdp/internal/pool"
	"github.com/ringo-ml/ringo/fsdp/internal/zeropp"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Sharding is a model's division into units, and after Attach what gathers and reduces them. It belongs to its rank's
// goroutine. It is the optim.Norm of its parameters.
type Sharding struct {
	cfg       Config
	units     []*Unit
	ignored   map[*tensor.Param]bool
	of        map[*tensor.Param]*piece // parameters of units
	params    nn.Params                // of the model
	exec      *tensor.Exec
	optimizer *tensor.Exec    // on the device where the optimizer computes
	all       *groups.Ranks   // of the Config: who must agree
	over      []*groups.Ranks // that share units; all is the first one
	host      *zeropp.Host    // nil without Config.Host
	checks    dist.StepCheck

	order     *order.Order                             // of the units
	pools     struct{ values, codes, grads pool.Pool } // memory of gathered units, of their codes, of whole gradients but for kept units
	changes   changes
	orderVote tensor.Tensor
	running   bool           // a Backward runs
	last      bool           // it is the last one before the optimizer's step
	sum       dist.Reduction // of gradients, in the step of its tape
	usage     tensor.Tensor  // which units and parameters have gradients
}

var _ optim.Norm = (*Sharding)(nil)

// New returns a Sharding with no units.
func New(c Config) *Sharding {
	return &Sharding{cfg: c.withDefaults(), all: &groups.Ranks{Shard: c.Shard, Replicate: c.Replicate}, ignored: map[*tensor.Param]bool{},
		of: map[*tensor.Param]*piece{}, checks: dist.StepCheck{Every: c.CheckEvery}}
}

// String names the owner of gradients in errors.
func (*Sharding) String() string { return "fsdp" }

// Unit makes the parameters of layers a unit. Layers are parts of the model: structs, slices or parameters.
func (s *Sharding) Unit(layers ...any) *Unit {
	if s.cfg.OncePerStep {
		return s.Keep(layers...)
	}
	return s.add(&Unit{keep: s.cfg.Stage < 3, gradPool: &s.pools.grads}, layers)
}

// Keep makes the parameters of layers a unit whose whole values always have memory. It is gathered once a step, before its first use. It
// is for what is used first in forward and last in backward, or at several places.
func (s *Sharding) Keep(layers ...any) *Unit {
	return s.add(&Unit{keep: true, gradPool: &pool.Pool{}}, layers)
}

func (s *Sharding) add(u *Unit, layers []any) *Unit {
	u.over, u.compute, u.reduce = s.all, s.cfg.Compute, s.cfg.Reduce
	for _, p := range nn.Within(layers) {
		u.pieces = append(u.pieces, &piece{p: p, u: u})
	}
	s.units = append(s.units, u)
	return u
}

// Over cuts the unit over the ranks of shard, in place of Config.Shard, and sums its gradients over replicate too, unless
// that is nil. It is for parameters that fewer ranks share: on a mesh "dp=4,ep=2", where Config.Shard is Group("dp", "ep"),
// the experts of a rank are shared by those of Group("dp"). All of them are ranks of the Config, and all ranks of the
// Config use the unit, each with its own. Call it before Attach.
func (u *Unit) Over(shard, replicate *dist.Group) *Unit {
	if shard == nil {
		panic(&tensor.Failure{Op: "fsdp: Unit.Over", Err: errors.New("the group of the ranks that share the unit is nil")})
	}
	u.over = &groups.Ranks{Shard: shard, Replicate: replicate}
	return u
}

// Types sets what the unit has in place of Config.Compute and Config.Reduce: a float32 router in a bfloat16 model. Call it
// before Attach.
func (u *Unit) Types(compute, reduce tensor.DType) *Unit {
	u.compute, u.reduce = compute, reduce
	return u
}

// Ignore leaves the parameters of layers alone: nobody makes, gathers or sums them here. They are for another package, or
// for nobody.
func (s *Sharding) Ignore(layers ...any) {
	for _, p := range nn.Within(layers) {
		s.ignored[p] = true
	}
}

// GathersOnce returns an error if a unit is gathered for each microbatch. A pipeline asks: it would be so for each stage, and W, too.
func (s *Sharding) GathersOnce() error {
	for _, u := range s.units {
		if !u.keep {
			return fmt.Errorf("fsdp: %s is gathered for each use: set OncePerStep in fsdp.Config", u.name)
		}
	}
	return nil
}

// SumFloats adds up x over the ranks of Shard and Replicate, for clipping by the norm of all gradients. It is collective.
func (s *Sharding) SumFloats(x []float64) error { return s.all.SumFloats(x) }

// Rank is this rank's number among the ranks of Shard and Replicate.
func (s *Sharding) Rank() int { return s.all.Rank() }

// Size is the number of the ranks of Shard and Replicate.
func (s *Sharding) Size() int { return s.all.Size() }

// SumTensor is SumFloats for a tensor, in the memory of its device.
func (s *Sharding) SumTensor(x tensor.Tensor) error {
	return s.all.AllReduce(s.cfg.Shard, x, dist.Sum)
}

// Groups returns the groups that carry the traffic, for their Stats and Waited: parameters are gathered over the first,
// gradients are reduced over the second, and with Config.Replicate summed over the third. Behind them are those of Unit.Over, and the last
// one is that of Config.Host.
func (s *Sharding) Groups() (list []*dist.Group) {
	for _, o := range s.over {
		list = append(list, o.Gathers, o.Reduces)
		if o.CopyReduces != nil {
			list = append(list, o.CopyReduces)
		}
	}
	return append(list, s.host.Groups()...)
}

// Naive is sharded data parallelism in its simplest form. Each rank owns 1/n of every parameter, and only that part has
// optimizer state. A forward pass gathers all parameters, Backward computes whole gradients, and at its end each gradient is
// reduce-scattered: every rank gets the sum of its part. There are no units, and whole values and gradients stay in memory:
// it saves what stage 1 saves.
//
// It is where to start reading (internal/naive), and what Attach is tested against. Of the Config it knows Shard, DType and Seed. Clip with
// Config.Shard as the optimizer's Norm.
func Naive(model any, c Config) (nn.Params, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	return naive.Attach(model, c.Shard, c.DType, c.Seed)
}
