package fsdp

import (
	"fmt"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/fsdp/internal/order"
	"github.com/ringo-ml/ringo/tensor"
)

// do is perform for what a tape calls while it computes: it panics if something fails.
func (s *Sharding) do(todo []order.Action) { s.must(s.perform(todo)) }

// perform carries out what the order of units says.
func (s *Sharding) perform(todo []order.Action) error {
	done := 0
	defer func() {
		if done < len(todo) { // something failed or panicked
			s.order.Forget()
		}
	}()
	for ; done < len(todo); done++ {
		if err := s.act(todo[done], s.units[todo[done].Unit]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sharding) act(a order.Action, u *Unit) error {
	switch a.Do {
	case order.Misplaced:
		return s.abort(fmt.Errorf("%s is used at another place in Backward than in the first step: for a model whose order changes from step "+
			"to step, set Config.OncePerStep or Stage: 2, or Keep what changes its place", u.name))
	case order.Unshard:
		s.unshard(u, a.Stale)
	case order.WaitUnshard:
		return s.waitUnshard(u)
	case order.Reshard:
		s.reshard(u)
	case order.Lend:
		s.lendGradients(u)
	case order.Reduce:
		return s.reduce(u)
	case order.Hop:
		return s.hop(u)
	case order.WaitReduce:
		return s.waitReduce(u)
	default:
		return s.agree(u, a.Do)
	}
	return nil
}

var phaseNames = [...]string{"in forward", "in Backward", "in a new forward pass"} // of the first verbs of package order

// agree compares over all ranks which unit is gathered now, and where. The vote is in the lanes of the gathers. So if one
// rank votes while another one gathers, both get an error at once.
func (s *Sharding) agree(u *Unit, at order.Verb) error {
	phases := int32(len(phaseNames))
	code := int32(u.index)*phases + int32(at)
	v := tensor.Data[int32](s.orderVote)
	v[0], v[1] = code, -code
	near := s.host.Vote(v)
	err := s.all.AllReduce(s.all.Gathers, s.orderVote, dist.Max)
	if err == nil {
		err = near.Wait()
	}
	if err != nil {
		return &tensor.Failure{Op: fmt.Sprintf("fsdp: agreeing on the order of units, %s %s", u.name, phaseNames[at]), Err: err}
	}
	if most, least := v[0], -v[1]; most != least {
		return s.abort(fmt.Errorf("ranks use units in different orders: %s %s on one rank, %s %s on another", s.units[least/phases].name,
			phaseNames[least%phases], s.units[most/phases].name, phaseNames[most%phases]))
	}
	return nil
}

// fail makes every rank fail with err, and panics.
func (s *Sharding) fail(err error) { s.must(s.abort(err)) }

// abort makes every rank fail with err, and returns the failure.
func (s *Sharding) abort(err error) error {
	for _, o := range s.over {
		o.Gathers.Abort(fmt.Errorf("fsdp: %w", err))
	}
	s.host.Abort(fmt.Errorf("fsdp: %w", err))
	return s.all.Gathers.Err()
}

func (s *Sharding) must(err error) {
	if f, ok := err.(*tensor.Failure); ok {
		panic(f)
	}
	if err != nil {
		panic(&tensor.Failure{Op: "fsdp", Err: err})
	}
}
