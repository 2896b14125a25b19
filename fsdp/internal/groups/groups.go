package groups

import (
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// Ranks is who shares units, and what carries their traffic.
type Ranks struct {
	Shard       *dist.Group // each rank holds a part
	Replicate   *dist.Group // each rank holds the same part as this one; nil: one copy
	Gathers     *dist.Group // over shard
	Reduces     *dist.Group
	CopyReduces *dist.Group // over replicate, for gradients
	Control     *dist.Group // over replicate, for everything else
}

// Open makes the groups. It is collective.
func (o *Ranks) Open() {
	g, r := o.Shard, o.Replicate
	o.Gathers, o.Reduces = g.With(dist.Name(g.Name()+" gather")), g.With(dist.Name(g.Name()+" reduce"))
	if r != nil {
		o.CopyReduces, o.Control = r.With(dist.Name(r.Name()+" copies")), r.With(dist.Name(r.Name()+" control"))
	}
}

// Axes returns the axes of the job along which gradients are summed.
func (o *Ranks) Axes() tensor.Axes {
	a := o.Shard.Axes()
	if o.Replicate != nil {
		a |= o.Replicate.Axes()
	}
	return a
}

// Size returns how many ranks there are.
func (o *Ranks) Size() int {
	if o.Replicate == nil {
		return o.Shard.Size()
	}
	return o.Shard.Size() * o.Replicate.Size()
}

// AllReduce is an all-reduce over a group of the ranks of shard, and then over the copies.
func (o *Ranks) AllReduce(shard *dist.Group, x tensor.Tensor, op dist.Reduction) error {
	err := shard.AllReduce(x, op).Wait()
	if err != nil || o.Control == nil {
		return err
	}
	return o.Control.AllReduce(x, op).Wait()
}

// Broadcast copies the first rank's value of p to all, on their devices.
func (o *Ranks) Broadcast(p *tensor.Param, dev tensor.Device) error {
	p.To(dev)
	if o.Control != nil {
		if err := o.Control.Broadcast(p.Value, 0).Wait(); err != nil {
			return err
		}
	}
	return o.Gathers.Broadcast(p.Value, 0).Wait()
}

// Agree compares lines over all ranks.
func (o *Ranks) Agree(lines []string, problem error) error {
	problem = dist.Agree(o.Shard, "fsdp", lines, problem)
	if o.Replicate != nil {
		problem = dist.Agree(o.Replicate, "fsdp", lines, problem)
	}
	return problem
}

// First returns the world rank of the first of all ranks.
func (o *Ranks) First() (int, error) {
	first, err := dist.BroadcastObject(o.Shard, o.Shard.GlobalRank(), 0)
	if err != nil || o.Replicate == nil {
		return first, err
	}
	return dist.BroadcastObject(o.Replicate, first, 0)
}

// Rank is this rank's number among all ranks.
func (o *Ranks) Rank() int {
	if o.Replicate == nil {
		return o.Shard.Rank()
	}
	return o.Replicate.Rank()*o.Shard.Size() + o.Shard.Rank()
}

// SumFloats adds up x over all ranks.
func (o *Ranks) SumFloats(x []float64) error {
	if err := o.Shard.SumFloats(x); err != nil || o.Control == nil {
		return err
	}
	return o.Control.SumFloats(x)
}
