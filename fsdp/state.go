package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Full returns the whole value of a parameter of the model, on every rank. It is collective, and for looking: its memory
// is new.
func (s *Sharding) Full(p *tensor.Param) (tensor.Tensor, error) {
	pc := s.of[p]
	if pc == nil {
		if p.Value.IsZero() {
			return p.Value, fmt.Errorf("fsdp: %v was never made", p)
		}
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

// StateDict returns the whole values of all parameters and buffers by name on rank 0 of all ranks, and nil on the others.
// It is collective. Rank 0 must have the memory for the model; others need it for one parameter at a time.
func (s *Sharding) StateDict() (map[string]tensor.Tensor, error) {
	var dict map[string]tensor.Tensor
	if s.cfg.Shard.Rank() == 0 && s.all.counts() {
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
