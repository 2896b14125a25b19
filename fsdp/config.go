package fsdp

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/pool"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// Config says over which ranks, and how far, a model is cut. Only Shard must be set. It is the same on all ranks.
type Config struct {
	// Shard is the group of the ranks that each hold a part.
	Shard *dist.Group
	// Replicate, if not nil, is the group of the ranks that hold the same part as this one, in as many copies of the model
	// (hybrid sharding): gradients are summed over both. On a mesh "dp=2,fsdp=4" they are Group("fsdp") and Group("dp").
	Replicate *dist.Group
	// Host, if not nil, is the group of those ranks of Shard that are on this rank's host: Group("gpu") where Shard is Group("host", "gpu").
	// They keep a second copy of the parameters, of which each has a part. What was gathered over Shard is then gathered over Host, until
	// values change: in Backward, and in later microbatches (hpZ of ZeRO++, Wang et al. 2023). So it crosses hosts once a step, and a rank
	// of h on a host has 1/h of the values in memory besides. It is for stage 3, without OncePerStep. Where some ranks use fewer units than
	// others in an evaluation, change no values before the next step.
	Host *dist.Group
	// Stage is 1 (optimizer state is cut), 2 (and gradients) or 3 (and parameters); 0 is 3.
	Stage int
	// DType is the type of the values that the optimizer updates, Float32 or Float64. They are made with Seed.
	DType tensor.DType
	Seed  uint64
	// Compute is the type in which parameters are gathered and used: DType (also if it is zero), BFloat16 or Float16. The
	// model's input must fit.
	Compute tensor.DType
	// Reduce is the type of gradients, in which they are added up over ranks and microbatches: DType (also if it is zero) or
	// a 16-bit type.
	Reduce tensor.DType
	// OncePerStep makes stages 2 and 3 gather each unit once a step, and reduce it once, after the last microbatch (tensor.More), in place
	// of doing so for each one: less communication for the memory of whole values and gradients (PyTorch's no_sync, with
	// reshard_after_backward off). Each unit is then one of Keep.
	OncePerStep bool
	// Weights, if Int8, is the form in which values are gathered: 1.02 bytes an element in place of 2 or 4 (qwZ of ZeRO++, Wang et al. 2023).
	// All ranks compute with the rounded values. The optimizer, checkpoints and Full have the exact ones.
	Weights Format
	// Grads, if Int4, is the form in which gradients are reduced: added up in each Host first, then between hosts (qgZ of ZeRO++). Each time
	// they are rounded to 15 numbers, in blocks of 256, and the sums are in DType. A rank sends 0.52 bytes an element in its host, and
	// 1/h of it, if a host has h ranks, between hosts.
	Grads Format
	// CheckEvery, if not 0, compares what ranks were fed, the values of copies (Replicate) by checksums, and those of frozen parameters
	// with what they were, in every so many steps, besides steps 0, 1, 4, 16, 64 and so on. It reads this rank's part of these parameters,
	// on the host.
	CheckEvery int
	// Offload, if not nil, is a device in host memory (tensor.NewCPU) that holds what the optimizer works with, and where it
	// computes: the values that it updates, its state and its gradients (PyTorch's CPUOffloadPolicy). It pays where the
	// device of Shard has memory of its own. Parameters outside of units then need an optimizer of their own.
	Offload tensor.Device
}

// Sharding is a model's division into units, and after Attach what gathers and reduces them. It belongs to its rank's
// goroutine. It is the optim.Norm of its parameters.
type Sharding struct {
	cfg     Config
	units   []*Unit
	ignored map[*tensor.Param]bool
	of      map[*tensor.Param]*piece // parameters of units
	params  nn.Params                // of the model
	exec    *tensor.Exec
	host    *tensor.Exec // on Config.Offload
	all     *ranks       // of the Config: who must agree
	over    []*ranks     // that share units; all is the first one
	hosts   hosts        // with Config.Host
	checks  dist.StepCheck

	order      order     // of the units
	values     pool.Pool // memory of gathered units
	codes      pool.Pool // and of their codes
	changes    changes   // of values
	orderVote  tensor.Tensor
	running    bool          // a Backward runs
	last       bool          // it is the last one before the optimizer's step
	reductions reductions    // in it
	grads      pool.Pool     // memory of whole gradients, but for kept units
	usage      tensor.Tensor // which units and parameters have gradients
}

var _ optim.Norm = (*Sharding)(nil)

// New returns a Sharding with no units.
func New(c Config) *Sharding {
	return &Sharding{cfg: c.withDefaults(), all: &ranks{shard: c.Shard, replicate: c.Replicate}, ignored: map[*tensor.Param]bool{},
		of: map[*tensor.Param]*piece{}, checks: dist.StepCheck{Every: c.CheckEvery}}
}

func (c Config) withDefaults() Config {
	c.Stage = cmp.Or(c.Stage, 3)
	c.Compute, c.Reduce = cmp.Or(c.Compute, c.DType), cmp.Or(c.Reduce, c.DType)
	return c
}

// String names the owner of gradients in errors.
func (*Sharding) String() string { return "fsdp" }

func (c *Config) check() error {
	switch {
	case c.Shard == nil:
		return fmt.Errorf("fsdp: Config.Shard is not set")
	case c.Stage < 1 || c.Stage > 3:
		return fmt.Errorf("fsdp: Config.Stage is %d, not 1, 2 or 3", c.Stage)
	case c.DType != tensor.Float32 && c.DType != tensor.Float64:
		return fmt.Errorf("fsdp: Config.DType is %v, not float32 or float64 (see Compute)", c.DType)
	case c.Offload != nil && !c.Offload.Host():
		return fmt.Errorf("fsdp: Config.Offload is %v, which is not in host memory", c.Offload)
	}
	if err := c.checkTypes(c.Compute, c.Reduce); err != nil {
		return fmt.Errorf("fsdp: %w", err)
	}
	if err := c.checkFormats(); err != nil {
		return err
	}
	return c.checkHost()
}

// checkTypes says whether values of DType can be used and reduced in other types.
func (c *Config) checkTypes(compute, reduce tensor.DType) error {
	fits := func(d tensor.DType) bool { return d == c.DType || d.IsHalf() }
	switch {
	case !fits(compute) || !fits(reduce):
		return fmt.Errorf("types Compute=%v and Reduce=%v must each be %v or a 16-bit float type", compute, reduce, c.DType)
	case c.DType == tensor.Float64 && reduce != c.DType:
		return fmt.Errorf("type Reduce=%v with values of %v", reduce, c.DType)
	}
	return nil
}

// Unit makes the parameters of layers a unit. Layers are parts of the model: structs, slices or parameters.
func (s *Sharding) Unit(layers ...any) *Unit {
	if s.cfg.OncePerStep {
		return s.Keep(layers...)
	}
	return s.add(&Unit{keep: s.cfg.Stage < 3, gradPool: &s.grads}, layers)
}

// Keep makes the parameters of layers a unit whose values stay from its use in forward until the end of Backward: for what
// is used first in forward and last in backward, or at several places.
func (s *Sharding) Keep(layers ...any) *Unit {
	return s.add(&Unit{keep: true, gradPool: &pool.Pool{}}, layers)
}

func (s *Sharding) add(u *Unit, layers []any) *Unit {
	u.index, u.over, u.compute, u.reduce = len(s.units), s.all, s.cfg.Compute, s.cfg.Reduce
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
	u.over = &ranks{shard: shard, replicate: replicate}
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
func (s *Sharding) SumFloats(x []float64) error {
	if err := s.cfg.Shard.SumFloats(x); err != nil || s.all.control == nil {
		return err
	}
	return s.all.control.SumFloats(x)
}

// Rank is this rank's number among the ranks of Shard and Replicate.
func (s *Sharding) Rank() int {
	if s.all.replicate == nil {
		return s.cfg.Shard.Rank()
	}
	return s.all.replicate.Rank()*s.cfg.Shard.Size() + s.cfg.Shard.Rank()
}

// Size is the number of the ranks of Shard and Replicate.
func (s *Sharding) Size() int { return s.all.size() }

// SumTensor is SumFloats for a tensor, in the memory of its device.
func (s *Sharding) SumTensor(x tensor.Tensor) error {
	return s.all.allReduce(s.cfg.Shard, x, dist.Sum)
}

// Groups returns the groups that carry the traffic, for their Stats and Waited: parameters are gathered over the first,
// gradients are reduced over the second, and with Config.Replicate summed over the third. Behind them are those of Unit.Over, and the last
// one is that of Config.Host.
func (s *Sharding) Groups() (list []*dist.Group) {
	for _, o := range s.over {
		list = append(list, o.groups()...)
	}
	if s.hosts.gathers != nil {
		list = append(list, s.hosts.gathers)
	}
	if s.hosts.reduces != nil {
		list = append(list, s.hosts.reduces.Groups()...)
	}
	return list
}
