package pp

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// pass is a microbatch on a stage, from its forward pass to its last action.
type pass struct {
	tape    *tensor.Tape
	in, out tensor.Tensor
	grad    tensor.Tensor // from the next stage, if that is on this rank
	got     [2]*buffer    // the input, and the gradient, from other ranks
	sent    dist.Work     // the output, later the gradient, on its way
	added   bool          // the weight gradients are, before W
	before  *pass         // of the stage before, on this rank, whose memory out may have; without backward passes
}

// at returns the place of a pass.
func (p *Pipeline) at(stage, micro int) **pass { return &p.live[stage*p.Schedule.Micros+micro] }

func (p *Pipeline) makePasses(n int) {
	opts := []tensor.TapeOption{tensor.ShareMemory(p.Tape)}
	if !p.Schedule.trains() {
		opts = append(opts, tensor.NoGrad())
	}
	for range n {
		p.all = append(p.all, &pass{tape: tensor.NewTape(p.Tape.Device(), opts...)})
	}
	p.idle = slices.Clone(p.all)
}

// take returns a pass with an empty tape. Which one it is does not depend on time: ranks with other rows compare what their tapes know.
func (p *Pipeline) take() *pass {
	if len(p.idle) == 0 {
		p.free()
	}
	s := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	return s
}

// retire ends a pass. Its tape is used again when its message was sent.
func (p *Pipeline) retire(stage, micro int, s *pass) {
	*p.at(stage, micro) = nil
	p.done = append(p.done, s)
}

// free waits for the pass that was retired first, and empties its tape.
func (p *Pipeline) free() {
	s := p.done[0]
	p.done = slices.Delete(p.done, 0, 1)
	must(s.sent.Wait())
	s.tape.Reset()
	for _, b := range s.got {
		if b != nil {
			b.box.spare = append(b.box.spare, b)
		}
	}
	*s = pass{tape: s.tape}
	p.idle = append(p.idle, s)
}

func (p *Pipeline) forward(t *task) {
	s := p.take()
	*p.at(t.Stage, t.Micro) = s
	p.now.Micro = t.Micro
	s.tape.SetState(p.now)
	var before *pass // on this rank
	switch {
	case t.from >= 0:
		x := p.recv(t, s, 0)
		s.in = s.tape.LeafOf(x.view, x.from)
	case t.Stage > 0:
		before = *p.at(t.Stage-1, t.Micro)
		s.in = s.tape.LeafOf(before.out, before.out.Origin())
	}
	s.out = p.Stages[t.Stage](s.tape, t.Micro, s.in)
	if s.out.IsZero() {
		fail("%v returned none: a Stage returns its output, and the last one the loss", t.Action)
	}
	s.out = s.tape.Packed(s.out)
	for _, x := range p.Params { // the rows that the stages of the rank were given, also those that use no parameter
		s.tape.TellOwner(x)
		p.checks.Note(x)
	}
	switch {
	case p.Schedule.isLast(t.Stage):
		p.compareCounts(t, s.tape)
		if !p.Schedule.trains() { // else in Backward, which may compute the loss with its gradients
			p.loss += s.out.Item()
		}
	case t.to >= 0:
		s.sent = p.send(t, headerOf(s.out, s.out.Origin()), s.out)
	}
	if p.Schedule.trains() {
		return
	}
	if s.before = before; t.to >= 0 || p.Schedule.isLast(t.Stage) {
		for stage := t.Stage; s != nil; stage, s = stage-1, s.before {
			p.retire(stage, t.Micro, s)
		}
	}
}

// compareCounts fails if losses of a microbatch divide by other numbers than those of another one: their sum would be no mean. A microbatch
// may leave a loss out.
func (p *Pipeline) compareCounts(t *task, tape *tensor.Tape) {
	mine, all := tape.Agreed()
	if !all {
		return
	}
	p.counts[t.Micro] = append(p.counts[t.Micro], mine...)
	for _, others := range p.counts {
		x, y := except(mine, others), except(others, mine)
		if len(x) > 0 && len(y) > 0 {
			fail("%v divides by the count %v, and another microbatch of the step by %v: Count of CrossEntropyOptions, and the number of "+
				"Tape.Agree, are those of all microbatches together, in each of them", t.Action, x[0], y[0])
		}
	}
}

// except returns list from its first number on that others lack.
func except(list, others []float64) []float64 {
	for len(list) > 0 && slices.Contains(others, list[0]) {
		list = list[1:]
	}
	return list
}

// backward sends the gradient before the owners of parameters wait for sums over other ranks, and of the last backward pass, before it
// computes gradients of weights: the stage before waits for it.
func (p *Pipeline) backward(t *task) {
	s := *p.at(t.Stage, t.Micro)
	putOff := t.Kind == I || t == p.last && t.to >= 0
	p.differentiate(t, s, putOff)
	if t.Stage > 0 {
		g := s.tape.GradOf(s.in)
		if g.IsZero() {
			fail("the output of stage %d does not depend on its input: there is no gradient for stage %d", t.Stage, t.Stage-1)
		}
		if t.to >= 0 {
			s.sent = p.send(t, headerOf(g, tensor.Origin{Types: g.Types()}), g)
		} else {
			q := *p.at(t.Stage-1, t.Micro)
			q.grad = q.tape.Input(g)
		}
	}
	switch {
	case t.Kind == B:
		if putOff {
			p.weights(t, s)
		}
		p.retire(t.Stage, t.Micro, s)
	case !s.tape.Deferred() && (t.Stage != p.last.Stage || t.Micro != p.last.Micro):
		p.weights(t, s) // a stage that is computed again has them all: until W they would take memory for each microbatch
		s.added = true
	}
}

func (p *Pipeline) differentiate(t *task, s *pass, putOff bool) {
	p.opts = append(p.opts[:0], tensor.Scale(p.scale))
	switch {
	case putOff:
		p.opts = append(p.opts, tensor.DeferWeights())
	case t != p.last:
		p.opts = append(p.opts, tensor.More())
	}
	if p.Schedule.isLast(t.Stage) {
		s.tape.Backward(s.out, p.opts...)
		if n := p.Schedule.Micros; n > 1 && s.tape.MeansOwn() && !p.warned {
			p.warned = true
			slog.Warn(fmt.Sprintf("pp: the loss of %v is a mean over this microbatch alone, and Step adds up those of all %d: give inputs and "+
				"labels their Rows, and end a loss of your own with tensor.GlobalMean, or divide it by %d", t.Action, n, n))
		}
		p.loss += s.out.Item()
		return
	}
	g := s.grad
	if t.from >= 0 {
		g = p.recv(t, s, 1).view
	}
	if !s.out.NeedsGrad() { // of the first stage, that of which nothing trains: owners hear of it
		s.out = s.tape.Leaf(s.out)
	}
	p.pair = [2]tensor.Tensor{s.out, g}
	s.tape.BackwardFrom(p.pair[:1], p.pair[1:], p.opts...)
}

// weights computes gradients that were put off.
func (p *Pipeline) weights(t *task, s *pass) {
	if s.added {
		return
	}
	if p.opts = p.opts[:0]; t != p.last {
		p.opts = append(p.opts, tensor.More())
	}
	s.tape.RunDeferred(p.opts...)
}
