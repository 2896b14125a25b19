package tensor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/trace"
)

// Recording is what a replay of a Captured step does, in the order in which the recorded step did it: the host's part, launches of
// graphs, and what is done between them.
type Recording struct {
	on     Grapher
	begun  bool // the first graph
	open   bool // a graph is being made
	graphs []Graph
	steps  []func() error
	last   []func() error
	err    error         // a graph could not be made
	refill func(a *Args) // of the next launch
	keys   map[keyUse]*uint64
	tapes  []*Tape
	grads  []*Param // whose gradients were written
	spans  *trace.Recorder
}

// keyUse is a random key of a tape in the recording.
type keyUse struct {
	by  *Exec
	key uint64
}

// Recording returns the recording that the device is making, nil if it makes none. What an operation changes on the host from
// step to step it registers there.
func (e *Exec) Recording() *Recording {
	if e.grapher == nil {
		return nil
	}
	return e.grapher.Recording()
}

// Host makes replays call fn, which must not allocate: it changes what the recorded step changed, such as a number of steps.
func (r *Recording) Host(fn func()) {
	r.steps = append(r.steps, func() error {
		fn()
		return nil
	})
}

// Between ends the graph under way, which runs, calls fn, and begins the next graph. Replays call fn between the two graphs. So a
// step has what the host must do when the device has been given all that comes before, such as to issue a collective. While
// fn runs, nothing is recorded. An error of fn is that of Run, in a replay.
func (r *Recording) Between(fn func() error) (err error) {
	if err := r.end(); err != nil {
		return err
	}
	r.steps = append(r.steps, fn)
	defer func() { err = errors.Join(err, r.begin()) }()
	return fn()
}

// Last has fn called at the end of the recorded step, which it may add to.
func (r *Recording) Last(fn func() error) { r.last = append(r.last, fn) }

// begin begins the next graph.
func (r *Recording) begin() error {
	err := r.on.BeginGraph(r, !r.begun)
	r.begun, r.open, r.err = true, err == nil, errors.Join(r.err, err)
	return err
}

// end ends the graph under way, and launches what there is in it, as replays will.
func (r *Recording) end() error {
	if !r.open {
		return r.err
	}
	r.open = false
	g, err := r.on.EndGraph()
	if err != nil {
		r.err = errors.Join(r.err, err)
		return err
	}
	if g == nil {
		return nil
	}
	r.graphs = append(r.graphs, g)
	launch := func() error {
		start := r.spans.Now()
		err := g.Launch()
		r.spans.Add(trace.Span{Name: "graph", Track: trace.Compute, Start: start, End: r.spans.Now()})
		return err
	}
	r.steps = append(r.steps, launch)
	return launch()
}

// close forgets the graphs.
func (r *Recording) close() error {
	var errs []error
	if r.open {
		r.open = false
		if g, err := r.on.EndGraph(); err == nil && g != nil { // the step failed: that is the error
			errs = append(errs, g.Close())
		}
	}
	for _, g := range r.graphs {
		errs = append(errs, g.Close())
	}
	r.graphs = nil
	return errors.Join(errs...)
}

// Vary makes replays call refill with the arguments of the next launch: it changes F, I and Key, where these differ from step to
// step, such as by a learning rate.
func (r *Recording) Vary(refill func(a *Args)) { r.refill = refill }

// launch launches what the Exec prepared if it varies, and reports whether it did.
func (r *Recording) launch(e *Exec, k Kernel) bool {
	if e.spans != nil {
		r.spans = e.spans
	}
	refill := r.refill
	if r.refill = nil; refill == nil && e.a.Key != 0 {
		refill = r.keyed(e)
	}
	if refill == nil {
		return false
	}
	a := e.a
	a.List, a.ListLen = slices.Clone(a.List), slices.Clone(a.ListLen)
	set := r.on.Vary(k, &a)
	r.Host(func() {
		f, i, key := a.F, a.I, a.Key
		if refill(&a); a.F != f || a.I != i || a.Key != key {
			set()
		}
	})
	return true
}

// key notes that a tape made a key for a layer: a replay makes it anew.
func (r *Recording) key(t *Tape, layer, key uint64) {
	use := keyUse{&t.Exec, key}
	if r.keys[use] != nil {
		return
	}
	now := new(uint64)
	r.keys[use] = now
	r.Host(func() { *now = t.keyOf(layer) })
}

func (r *Recording) keyed(e *Exec) func(a *Args) {
	now := r.keys[keyUse{e, e.a.Key}]
	if now == nil {
		fail(e.a.Op.String(), nil, "a random key that is not the tape's (see Tape.RandomKey) would be the same in every replay")
	}
	return func(a *Args) { a.Key = *now }
}

// tape notes a tape that the step uses.
func (r *Recording) tape(t *Tape) {
	if !slices.Contains(r.tapes, t) {
		r.tapes = append(r.tapes, t)
	}
}

// grad notes that a gradient is written. Whether that adds to what is there is the host's to know, so a gradient is made and used
// up in one step.
func (r *Recording) grad(p *Param) {
	if slices.Contains(r.grads, p) {
		return
	}
	if p.HasGrad() {
		fail("Backward", nil, "%s has a gradient from before the captured step", p.name)
	}
	r.grads = append(r.grads, p)
}

// finish ends the step. It returns the error of a gradient that is left over.
func (r *Recording) finish() error {
	for _, fn := range r.last {
		if err := fn(); err != nil {
			return err
		}
	}
	for _, p := range r.grads {
		if p.HasGrad() {
			return fmt.Errorf("tensor: the captured step makes a gradient of %s and leaves it: call the optimizer's Step inside it, too", p.name)
		}
	}
	return r.end()
}

// reset takes from the tapes what an earlier run left there: it is not a replay's.
func (r *Recording) reset() {
	for _, t := range r.tapes {
		t.Reset()
	}
}

func (t *Tape) keyOf(layer uint64) uint64 { return kernel.Key(t.seed, t.step, t.micro, layer) }
