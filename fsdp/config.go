package fsdp

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/ringo-ml/ringo/dist"
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
	// others in an evaluation, change no values before the next step: these ranks gather the other units later, over Shard if values have
	// changed, where the others did over Host.
	Host *dist.Group
	// Stage is 1 (optimizer state is cut), 2 (and gradients) or 3 (and parameters); 0 is 3.
	Stage int
	// DType is the type of the values that the optimizer updates, Float32 or Float64. They are made with Seed. Values that parameters have
	// already get this type, too.
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
	// Offload, if not nil, is a device in host memory (cpu.New) that holds what the optimizer works with, and where it
	// computes: the values that it updates, its state and its gradients (PyTorch's CPUOffloadPolicy). It pays where the
	// device of Shard has memory of its own. Parameters outside of units then need an optimizer of their own.
	Offload tensor.Device
}

func (c Config) withDefaults() Config {
	c.Stage = cmp.Or(c.Stage, 3)
	c.Compute, c.Reduce = cmp.Or(c.Compute, c.DType), cmp.Or(c.Reduce, c.DType)
	return c
}

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
	return cmp.Or(c.checkFormats(), c.checkHost())
}

// checkHost refuses a Config.Host that nothing uses.
func (c *Config) checkHost() error {
	const each = "fsdp: Config.Host is for units that are gathered for each use: leave it out with "
	switch {
	case c.Host != nil && c.Stage != 3:
		return fmt.Errorf(each+"Stage %d", c.Stage)
	case c.Host != nil && c.OncePerStep:
		return errors.New(each + "OncePerStep")
	}
	return nil
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
