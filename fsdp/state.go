package fsdp

import (
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Full returns the whole value of a parameter of the model, on every rank, also where Param.Place left each rank a part. It is
// collective, and for looking: its memory is new. Parts on ranks that are not in Config.Shard, those of tensor parallelism,
// are out of reach: that is an error, and a checkpoint has them.
func (s *Sharding) Full(p *tensor.Param) (tensor.Tensor, error) {
	x, err := s.ofRank(p)
	if err != nil || !p.IsCut() {
		return x, err
	}
	return s.joinParts(p, x.View(p.Len()))
}

// ofRank returns this rank's part of a parameter, whole but for Param.Place.
func (s *Sharding) ofRank(p *tensor.Param) (tensor.Tensor, error) {
	pc := s.of[p]
	switch {
	case pc != nil:
	case p.Value.IsZero():
		return p.Value, fmt.Errorf("fsdp: %v was never made", p)
	case p.Owner() != nil:
		return tensor.Tensor{}, fmt.Errorf("fsdp: %s belongs to %v, which was attached before", p.Name(), p.Owner())
	default:
		return p.Value, nil
	}
	x := tensor.New(s.exec.Device(), s.cfg.DType, p.Len())
	local := p.Local
	if s.host != nil {
		local = tensor.New(s.exec.Device(), s.cfg.DType, max(local.Len(), 1)).Range(0, local.Len())
		s.copyTo(local, p.Local)
	}
	if err := pc.u.over.gathers.AllGatherV(x, local, pc.counts()).Wait(); err != nil {
		return tensor.Tensor{}, fmt.Errorf("fsdp: gathering %s: %w", p.Name(), err)
	}
	return x.View(p.Dims()...), nil
}

// joinParts makes the model's tensor of the parts that the ranks of Config.Shard hold.
func (s *Sharding) joinParts(p *tensor.Param, part tensor.Tensor) (tensor.Tensor, error) {
	g, x := s.all.gathers, tensor.New(s.exec.Device(), part.DType(), p.Global()...)
	holders, err := dist.AllGatherObject(g, p.Placement().Boxes())
	if err != nil {
		return x, err
	}
	counts, held := make([]int, g.Size()), 0
	for r, boxes := range holders {
		same := func(other []tensor.Box) bool { return slices.EqualFunc(other, boxes, tensor.Box.Equal) }
		if slices.ContainsFunc(holders[:r], same) { // one of those that hold the same sends it
			continue
		}
		for _, b := range boxes {
			counts[r] += b.Len()
		}
		held += counts[r]
	}
	if held != x.Len() {
		return tensor.Tensor{},
			fmt.Errorf("fsdp: %s: the ranks of Config.Shard hold %d of the %d elements of %v; for the others, save a checkpoint",
				p.Name(), held, x.Len(), p.Global())
	}
	parts := tensor.New(s.exec.Device(), part.DType(), held)
	if err := g.AllGatherV(parts, part.Range(0, counts[g.Rank()]), counts).Wait(); err != nil {
		return tensor.Tensor{}, fmt.Errorf("fsdp: joining the parts of %s: %w", p.Name(), err)
	}
	at, flat := 0, x.View(held)
	for r, boxes := range holders {
		for first, n := range layout.Runs(p.Global(), boxes, 0, counts[r]) {
			tensor.Copy(flat.Range(first, first+n), parts.Range(at, at+n))
			at += n
		}
	}
	return x, nil
}

// StateDict returns the whole values of all parameters and buffers by name on rank 0 of all ranks, and nil on the others.
// It is collective. Rank 0 must have the memory for the model; others need it for one parameter at a time.
func (s *Sharding) StateDict() (map[string]tensor.Tensor, error) {
	var dict map[string]tensor.Tensor
	if s.Rank() == 0 {
		dict = make(map[string]tensor.Tensor, len(s.params))
	}
	for _, p := range s.params {
		x, err := s.Full(p)
		if err != nil {
			return nil, err
		}
		if dict != nil {
			dict[p.Name()] = x
		}
	}
	return dict, nil
}
