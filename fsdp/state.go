package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/tensor"
)

// Full returns the whole value of a parameter of the model, on every rank, also where Param.Place left each rank a part. It is
// collective, and for looking: its memory is new. Parts on ranks that are not in Config.Shard, those of tensor parallelism,
// are out of reach: that is an error, and a checkpoint has them.
func (s *Sharding) Full(p *tensor.Param) (tensor.Tensor, error) {
	pc, g := s.of[p], s.all.gathers
	switch {
	case pc != nil:
		if !p.IsCut() { // not by tensor or expert parallelism: the ranks of the unit have all of it
			g = pc.u.over.gathers
		}
		return s.join(p, g, tensor.ToDevice(s.exec.Device(), p.Local))
	case p.Value.IsZero():
		return p.Value, fmt.Errorf("fsdp: %v was never made", p)
	case p.Owner() != nil:
		return tensor.Tensor{}, fmt.Errorf("fsdp: %s belongs to %v, which was attached before", p.Name(), p.Owner())
	case p.IsCut():
		return s.join(p, g, p.Value.View(p.Len()))
	}
	return p.Value, nil
}

// holder is what a rank has of a parameter: elements Lo to Hi-1 of the boxes.
type holder struct {
	Boxes  []tensor.Box
	Lo, Hi int
}

// join makes the model's tensor of what the ranks of g hold.
func (s *Sharding) join(p *tensor.Param, g *dist.Group, mine tensor.Tensor) (tensor.Tensor, error) {
	lo, hi := p.Placement().Range()
	holders, err := dist.AllGatherObject(g, holder{p.Placement().Boxes(), lo, hi})
	if err != nil {
		return tensor.Tensor{}, err
	}
	held, counts, sum := make([]layout.Held[string], g.Size()), make([]int, g.Size()), 0
	for r, h := range holders {
		held[r] = layout.Held[string]{Of: fmt.Sprint(h.Boxes), Lo: h.Lo, Hi: h.Hi}
	}
	for r, counted := range layout.Counted(held) { // one of those that hold the same sends it
		if counted {
			counts[r] = held[r].Hi - held[r].Lo
			sum += counts[r]
		}
	}
	x := tensor.New(s.exec.Device(), mine.DType(), p.Global()...)
	if sum != x.Len() {
		return tensor.Tensor{},
			fmt.Errorf("fsdp: %s: the ranks of Config.Shard hold %d of the %d elements of %v; for the others, save a checkpoint",
				p.Name(), sum, x.Len(), p.Global())
	}
	flat := x.View(sum)
	parts := flat
	if p.IsCut() {
		parts = tensor.New(s.exec.Device(), mine.DType(), sum)
	}
	if err := g.AllGatherV(parts, mine.Range(0, counts[g.Rank()]), counts).Wait(); err != nil {
		return tensor.Tensor{}, fmt.Errorf("fsdp: gathering %s: %w", p.Name(), err)
	}
	if !p.IsCut() {
		return x, nil
	}
	at := 0
	for r, h := range holders {
		for first, n := range layout.Runs(p.Global(), h.Boxes, h.Lo, h.Lo+counts[r]) {
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
