package fsdp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/ringo-ml/ringo/fsdp/internal/groups"
	"github.com/ringo-ml/ringo/fsdp/internal/zeropp"
	"github.com/ringo-ml/ringo/internal/rebuild"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

// Attach shards the parameters of model, the same on all ranks of Shard and Replicate, which must all call it, and hooks
// gathers and reductions into forward and backward. It returns the parameters and buffers, for the optimizer.
//
// Parameters without values get theirs, those of nn.Init, part by part: no rank holds the whole model. Of parameters that
// have values, rank 0's are taken. Each parameter must be in one unit, or ignored. Buffers belong in no unit; ranks hold
// them whole. Parameters may be frozen later, on all ranks alike.
func (s *Sharding) Attach(model any) (_ nn.Params, err error) {
	if err := cmp.Or(rebuild.Refuse("fsdp"), s.cfg.check()); err != nil {
		return nil, err
	}
	if s.params != nil {
		return nil, errors.New("fsdp: Attach was called before")
	}
	s.params = nn.ParamsOf(model)
	if len(s.params) == 0 {
		return nil, fmt.Errorf("fsdp: no parameters in a model of type %T: a rank of a pipeline that has none does not call Attach", model)
	}
	s.exec = tensor.NewExec(s.cfg.Shard.Device())
	s.optimizer = tensor.NewExec(cmp.Or(s.cfg.Offload, s.exec.Device()))
	s.shareRanks()
	problem := s.assign()
	if problem == nil {
		for _, u := range s.units {
			u.plan()
			u.setName()
		}
	}
	if err := s.verify(nn.SettingsOf(model), problem); err != nil {
		return nil, err
	}
	s.warnOfType()
	for _, o := range s.over {
		o.Open()
	}
	if s.cfg.Host != nil {
		if s.host, err = zeropp.Open(s.cfg.Shard, s.cfg.Host, s.exec, s.cfg.Grads != unquantized); err != nil {
			return nil, err
		}
	}
	if err := s.layOut(); err != nil {
		return nil, err
	}
	return s.params, nil
}

// assign finds each parameter's unit.
func (s *Sharding) assign() error {
	s.dropEmpty()
	var errs []error
	refuse := func(format string, a ...any) { errs = append(errs, fmt.Errorf("fsdp: "+format, a...)) }
	for i, u := range s.units {
		u.index = i
		u.pieces = slices.DeleteFunc(u.pieces, func(pc *piece) bool { return pc.p.IsBuffer() })
		if len(u.pieces) == 0 {
			refuse("unit %d has no parameters", u.index)
		}
		if err := s.cfg.checkTypes(u.compute, u.reduce); err != nil {
			refuse("unit %d: %w", u.index, err)
		}
		for _, pc := range u.pieces {
			switch other := s.of[pc.p]; {
			case !slices.Contains(s.params, pc.p):
				refuse("%v in unit %d is not in the model", pc.p, u.index)
			case other != nil:
				refuse("%s is in units %d and %d; a layer belongs in one, as what is tied: Keep what is in none", pc.p.Name(), other.u.index, u.index)
			case s.ignored[pc.p]:
				refuse("%s is in unit %d, and ignored", pc.p.Name(), u.index)
			case pc.p.Owner() != nil:
				refuse("%s is attached already: its gradient belongs to %v", pc.p.Name(), pc.p.Owner())
			}
			pc.slot = len(s.units) + len(s.of)
			s.of[pc.p] = pc
		}
	}
	for _, p := range s.params {
		if s.of[p] == nil && !s.foreign(p) && !p.IsBuffer() {
			refuse("%s is in no unit", p.Name())
		}
	}
	return errors.Join(errs...)
}

// warnOfType warns of values that Attach rounds to DType.
func (s *Sharding) warnOfType() {
	var names []string
	for p := range s.of {
		if !p.Value.IsZero() && p.Value.DType() == tensor.Float64 && s.cfg.DType != tensor.Float64 {
			names = append(names, p.Name())
		}
	}
	if slices.Sort(names); len(names) > 0 && s.cfg.Shard.Rank() == 0 && (s.cfg.Replicate == nil || s.cfg.Replicate.Rank() == 0) {
		slog.Warn(fmt.Sprintf("fsdp: Config.DType is %v, and the values of %d parameters, such as %s, are float64: they are rounded; "+
			"DType: tensor.Float64 keeps them", s.cfg.DType, len(names), names[0]))
	}
}

// dropEmpty makes the parameters without elements, and leaves them out: there is nothing to gather or to sum.
func (s *Sharding) dropEmpty() {
	s.units = slices.DeleteFunc(s.units, func(u *Unit) bool {
		n := len(u.pieces)
		u.pieces = slices.DeleteFunc(u.pieces, func(pc *piece) bool { return s.makeEmpty(pc.p, u.over, u.compute) })
		return n > 0 && len(u.pieces) == 0
	})
	for _, p := range s.params {
		s.makeEmpty(p, s.all, s.cfg.Compute)
	}
}

// makeEmpty makes p, in the type in which it is used, if it has no elements, and reports whether that is so. From then on it is ignored.
func (s *Sharding) makeEmpty(p *tensor.Param, over *groups.Ranks, compute tensor.DType) bool {
	if p.Len() > 0 || p.IsBuffer() || s.foreign(p) {
		return false
	}
	s.ignored[p] = true
	p.SetValue(tensor.New(s.exec.Device(), compute, p.Dims()...))
	dev := s.optimizer.Device()
	p.Local, p.Grad = tensor.New(dev, s.cfg.DType, p.Dims()...), tensor.New(dev, s.cfg.DType, p.Dims()...)
	p.SumOver(over.Axes())
	return true
}

// attachPiece makes this rank's part of a parameter, with its value, and the views of the whole value and gradient.
func (s *Sharding) attachPiece(pc *piece) error {
	p, u := pc.p, pc.u
	at := pc.off + pc.lo - pc.in.lo
	if pc.lo == pc.hi {
		at = 0
	}
	local := pc.in.local.Range(at, at+pc.hi-pc.lo)
	if p.Value.IsZero() {
		p.Fill(local, s.cfg.Seed, pc.lo)
	} else {
		if err := u.over.Broadcast(p, s.exec.Device()); err != nil {
			return err
		}
		s.optimizer.Cast(local, tensor.ToDevice(local.Device(), p.Value.View(p.Len()).Range(pc.lo, pc.hi)))
	}
	pc.value = pc.in.flat.Range(pc.off-pc.in.off, pc.off-pc.in.off+p.Len()).View(p.Dims()...)
	p.Value = pc.value
	p.Local = local
	p.Shard(pc.lo, pc.hi)
	if !p.Frozen() {
		pc.grad = u.grads.Range(pc.off, pc.off+p.Len()).View(p.Dims()...)
		pc.gradPart = u.offloaded.Range(at, at+pc.hi-pc.lo)
		p.Grad = pc.gradPart
	}
	return p.Own(s, u.over.Axes())
}

// foreign reports whether a parameter is not for this Sharding: it is ignored, or another Attach has it. This package does not make,
// gather or sum it.
func (s *Sharding) foreign(p *tensor.Param) bool {
	return s.ignored[p] || p.Owner() != nil && p.Owner() != tensor.Hooks(s) && p.Owner() != tensor.Hooks(buffers{s})
}
