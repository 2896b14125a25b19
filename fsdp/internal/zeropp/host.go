package zeropp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/memory"
)

// Host is those ranks of a sharding that are on this rank's host. A nil Host does nothing: there is no Config.Host.
type Host struct {
	Hops    *Hops         // nil: gradients are reduced over all ranks at once
	gathers *dist.Group   // for the host's copy of the values
	vote    tensor.Tensor // of Vote
}

// Open makes the groups of a host. It is collective over shard, and refuses hosts that overlap, or have other ranks.
func Open(shard, host *dist.Group, exec *tensor.Exec, hops bool) (*Host, error) {
	all := shard.Ranks()
	hosts, err := dist.AllGatherObject(shard, host.Ranks())
	if err != nil {
		return nil, err
	}
	for i, h := range hosts {
		for _, r := range h {
			k := slices.Index(all, r)
			if k < 0 {
				return nil, fmt.Errorf("fsdp: Config.Host has rank %d, which is not in Config.Shard: take the ranks of Shard on one host, as in "+
					`Shard: mesh.Group("host", "gpu"), Host: mesh.Group("gpu")`, r)
			}
			if !slices.Equal(h, hosts[k]) {
				return nil, fmt.Errorf("fsdp: ranks differ: Config.Host of rank %d has ranks %v, and that of rank %d has %v", all[i], h, r, hosts[k])
			}
		}
	}
	h := &Host{gathers: host.With(dist.Name(host.Name() + " host gather"))}
	h.vote = tensor.NewStaging(memory.Communication, exec.Device(), tensor.Int32, 2)
	if hops {
		h.Hops, err = newHops(shard, host, hosts, exec)
	}
	return h, err
}

// Vote compares, in the lane of the host's gathers, two numbers of which ranks should have the same.
func (h *Host) Vote(v []int32) dist.Work {
	if h == nil {
		return dist.Work{}
	}
	copy(tensor.Data[int32](h.vote), v)
	return h.gathers.AllReduce(h.vote, dist.Max)
}

// Abort makes the ranks of the host fail with err.
func (h *Host) Abort(err error) {
	if h != nil {
		h.gathers.Abort(err)
	}
}

// Groups returns the groups that carry the host's traffic.
func (h *Host) Groups() (list []*dist.Group) {
	if h != nil {
		list = append(list, h.gathers)
		if h.Hops != nil {
			list = append(list, h.Hops.within, h.Hops.across)
		}
	}
	return list
}

// Copy is the part that this rank keeps of its host's copy of some values, the secondary partition of ZeRO++. A nil Copy is none.
type Copy struct {
	g      *dist.Group
	values tensor.Tensor // the whole
	counts []int         // elements of each rank of the host
	part   tensor.Tensor // this rank's
	from   tensor.Tensor // where they are in values
	fill   bool          // the gather that goes on brings them
}

// NewCopy makes room for this rank's part.
func (h *Host) NewCopy(values tensor.Tensor) *Copy {
	n, rank, ranks := values.Len(), h.gathers.Rank(), h.gathers.Size()
	lo, hi := layout.Share(n, rank, ranks)
	return &Copy{g: h.gathers, values: values, counts: layout.Shares(make([]int, ranks), n), from: values.Range(lo, hi),
		part: h.gathers.AllocFor(memory.Gathered, values.DType(), hi-lo)}
}

// Gather issues the gather over the host. ok is false if the host does not have the values, as they are stale: then a gather over all ranks
// brings them.
func (c *Copy) Gather(stale bool) (work dist.Work, ok bool) {
	if c == nil {
		return work, false
	}
	if c.fill = stale; stale {
		return work, false
	}
	return c.g.AllGatherV(c.values, c.part, c.counts), true
}

// Fill keeps this rank's part of what was gathered over all ranks.
func (c *Copy) Fill() {
	if c != nil && c.fill {
		c.fill = false
		tensor.Copy(c.part, c.from)
	}
}
