package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// survivor is what a rank keeps when its function is called again after the loss of other ranks.
type survivor struct {
	loop *Loop // the last one that Start returned; nil for none
}

type survivorKey struct{}

// runAndRebuild calls f. If ranks are lost, it calls f again with a smaller World. It does not do so after an error of the program, or
// after a failure that all ranks survive.
func runAndRebuild(ctx context.Context, r *dist.Rank, f func(ctx context.Context, r *dist.Rank) error) error {
	s := new(survivor)
	ctx = context.WithValue(ctx, survivorKey{}, s)
	for {
		var err error
		if failed := tensor.Try(func() { err = f(ctx, r) }); failed != nil {
			err = failed
		}
		e, ok := errors.AsType[*dist.Error](err)
		if !ok || e.Group == "" || ctx.Err() != nil { // an error of this rank alone ends the job
			return err
		}
		if s.loop != nil {
			if err := s.loop.closeFailed(); err != nil {
				return err
			}
		}
		if r.World.Err() == nil { // a smaller group failed: all ranks begin again
			r.World.Abort(e)
		}
		next, failed := r.World.Rebuild(ctx)
		switch {
		case failed != nil:
			return fmt.Errorf("%w\n-rebuild: %w", err, failed)
		case next.Size() == r.World.Size(): // no rank is lost: the same would happen again
			return err
		}
		r.World = next
	}
}

// snapshot is the state of a rank between two steps of the optimizer. Parameters and the optimizer's state are not in it: they change only
// in the optimizer's steps. The rest changes at other times, too, so the snapshot has a copy.
type snapshot struct {
	opt     optSteps
	steps   int // of the loop
	loaders []data.State
	tape    tensor.TapeState
	extra   map[string]json.RawMessage
	buffers map[string]tensor.Tensor
}

// optSteps changes with each step of the optimizer. A step that the Scaler skips is not in done, but it halves the scale.
type optSteps struct {
	done  int
	scale float64
}

func stepsOf(o *optim.Optimizer) optSteps {
	s := optSteps{done: o.Steps()}
	if scaler := o.State().Scaler; scaler != nil {
		s.scale = scaler.Scale
	}
	return s
}

// canRebuild returns the reason why this training cannot go on without lost ranks; nil if it can.
func canRebuild(r *dist.Rank, st ckpt.State) error {
	const use = "use -max-restarts with checkpoints instead"
	switch {
	case st.Optimizer == nil:
		return fmt.Errorf("train: ringo run -rebuild needs the Optimizer in the State of Start: its steps say where to go on; or %s", use)
	case !r.Device.Host():
		return fmt.Errorf("train: ringo run -rebuild: on %v a step may be under way when the loss of a rank is seen: %s", r.Device, use)
	}
	for _, p := range st.Params {
		if owner := fmt.Sprint(p.Owner()); p.Owner() == nil || owner != "ddp" || p.Local.Len() != p.GlobalLen() {
			return fmt.Errorf("train: ringo run -rebuild needs parameters that package ddp has whole on each rank, but %s belongs to %s: %s",
				p, owner, use)
		}
	}
	return nil
}

// takeSnapshot makes the snapshot of a loop with so many steps done. It does nothing if the optimizer has done no step since the last
// snapshot: gradients of microbatches would be lost.
func (l *Loop) takeSnapshot(steps int) (err error) {
	if l.survivor == nil || l.snapshot != nil && l.snapshot.opt == stepsOf(l.opt) {
		return nil
	}
	m := &snapshot{opt: stepsOf(l.opt), steps: steps, loaders: l.places(), extra: map[string]json.RawMessage{},
		buffers: map[string]tensor.Tensor{}}
	if l.state.Tape != nil {
		m.tape = l.state.Tape.State()
	}
	for key, v := range l.state.Extra {
		if m.extra[key], err = json.Marshal(v); err != nil {
			return fmt.Errorf("train: extra %q: %w", key, err)
		}
	}
	for _, p := range l.state.Params {
		if p.IsBuffer() {
			m.buffers[p.Name()] = tensor.New(p.Value.Device(), p.Value.DType(), p.Dims()...)
			tensor.Copy(m.buffers[p.Name()], p.Value)
		}
	}
	l.snapshot = m
	return nil
}

// closeFailed closes a loop whose group has failed. The next loop takes its snapshot and its listener for signals.
func (l *Loop) closeFailed() error {
	var err error
	if l.snapshot != nil { // after a panic behind the optimizer's step; now, because f may use the variables in Extra again
		err = l.takeSnapshot(l.running + 1)
	}
	l.progress.Close()
	l.r.Trace.EndStep()
	return errors.Join(err, l.values.Close())
}

// handedOver is what one rank sends to the others that are left, besides tensors.
type handedOver struct {
	Steps     int
	Loaders   []data.State
	Tape      tensor.TapeState
	Extra     map[string]json.RawMessage
	Values    []*metrics.Series
	Optimizer optim.State // without tensors
	Tensors   []string    // of the optimizer
}

// stepsDone is how far a rank got.
type stepsDone struct {
	Steps int // done; -1 if Start never returned
	Known int // done when the ranks last exchanged values
}

// takeOver gives all ranks the state of the rank that did most steps in the loop before, and reports whether there was such a loop. If one
// rank finished a step that others did not, the step counts. Otherwise the ranks that are left do it again. It is collective.
func (l *Loop) takeOver(old *Loop) (bool, error) {
	mine := stepsDone{Steps: -1}
	if old != nil && old.snapshot != nil {
		mine = stepsDone{old.snapshot.steps, old.values.Known}
	}
	all, err := dist.AllGatherObject(l.g, mine)
	if err != nil {
		return false, err
	}
	from := slices.Index(all, slices.MaxFunc(all, func(a, b stepsDone) int {
		return cmp.Or(cmp.Compare(a.Steps, b.Steps), cmp.Compare(a.Known, b.Known))
	}))
	if all[from].Steps < 0 {
		return false, nil
	}
	var x handedOver
	var has optim.State // of the optimizer, here
	if l.g.Rank() == from {
		has = old.opt.State()
		x = old.handOver(has)
	} else {
		old, has = nil, l.opt.State()
	}
	if x, err = dist.BroadcastObject(l.g, x, from); err != nil {
		return false, err
	}
	if err = l.takeParams(old, from); err == nil {
		err = l.takeOptimizer(&x, has, from)
	}
	if err != nil {
		return false, err
	}
	return true, l.takeRest(&x)
}

// handOver returns what the next loop gets from l.
func (l *Loop) handOver(has optim.State) handedOver {
	m := l.snapshot
	x := handedOver{Steps: m.steps, Loaders: m.loaders, Tape: m.tape, Extra: m.extra, Values: l.values.Until(m.steps), Optimizer: has}
	x.Optimizer.Tensors = nil
	for _, t := range has.Tensors {
		x.Tensors = append(x.Tensors, t.Name)
	}
	return x
}

// takeParams gives all ranks the parameters and buffers of old, which is the loop before on rank `from`, and nil on the others.
func (l *Loop) takeParams(old *Loop, from int) error {
	for i, p := range l.state.Params {
		if old != nil {
			was := old.state.Params
			if i >= len(was) || was[i].Name() != p.Name() || !slices.Equal(was[i].Dims(), p.Dims()) || was[i].Value.DType() != p.Value.DType() {
				return fmt.Errorf("train: -rebuild: %s of type %v was not in the model before", p, p.Value.DType())
			}
			value := was[i].Value
			if p.IsBuffer() {
				value = old.snapshot.buffers[p.Name()]
			}
			tensor.Copy(p.Value, value)
		}
		if err := l.g.Broadcast(p.Value, from).Wait(); err != nil {
			return err
		}
		p.Changed()
	}
	return nil
}

// takeOptimizer gives all ranks the optimizer's state of rank `from`, which is x and the tensors of has there.
func (l *Loop) takeOptimizer(x *handedOver, has optim.State, from int) error {
	st := x.Optimizer
	for _, t := range has.Tensors {
		if l.g.Rank() != from {
			t.Tensor = tensor.New(t.Tensor.Device(), t.Tensor.DType(), t.Tensor.Shape().Dims...)
		}
		if len(st.Tensors) == len(x.Tensors) || x.Tensors[len(st.Tensors)] != t.Name {
			return fmt.Errorf("train: -rebuild: %s was not in the optimizer before", t.Name)
		}
		if err := l.g.Broadcast(t.Tensor, from).Wait(); err != nil {
			return err
		}
		st.Tensors = append(st.Tensors, t)
	}
	return l.opt.SetState(st)
}

// takeRest sets values, tape, Extra and the place in the data.
func (l *Loop) takeRest(x *handedOver) error {
	l.values.Resume(x.Steps, x.Values)
	if l.state.Tape != nil {
		l.state.Tape.SetState(x.Tape)
	}
	for key, text := range x.Extra {
		if err := json.Unmarshal(text, l.state.Extra[key]); err != nil {
			return fmt.Errorf("train: -rebuild: extra %q: %w", key, err)
		}
	}
	l.Logf("go on at step %d with %d ranks", x.Steps, l.g.Size())
	return l.dir.Continue(l.g, x.Steps, x.Loaders)
}
