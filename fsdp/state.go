package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
)

// Full returns the whole value of a parameter of the model, on every rank, also where Param.Place left each rank a part. It is
// collective, and for looking: its memory is new. Parts on ranks that are not in Config.Shard, those of tensor parallelism,
// are out of reach: that is an error, and a checkpoint has them.
func (s *Sharding) Full(p *tensor.Param) (tensor.Tensor, error) {
	pc, over := s.of[p], s.all
	switch {
	case pc != nil:
		if !p.IsCut() { // not by tensor or expert parallelism: the ranks of the unit have all of it
			over = pc.u.over
		}
		return over.Whole(p, s.exec.Device(), tensor.ToDevice(s.exec.Device(), p.Local))
	case p.Value.IsZero():
		return p.Value, fmt.Errorf("fsdp: %v was never made", p)
	case p.Owner() != nil && s.foreign(p):
		return tensor.Tensor{}, fmt.Errorf("fsdp: %s belongs to %v, which was attached before", p.Name(), p.Owner())
	case p.IsCut():
		return over.Whole(p, s.exec.Device(), p.Value.View(p.Len()))
	}
	return p.Value, nil
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
