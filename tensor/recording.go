package tensor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/internal/trace"
)

// Grapher is a Device that can record what is launched on its queue 0, and launch it again as one.
type Grapher interface {
	// BeginGraph starts to record: what the calling goroutine launches on queue 0 does not run until EndGraph. What a recording cannot
	// contain is a Failure: a wait, a copy from or to host memory, an allocation. A recording may have several graphs, one after another
	// (see Recording.Between); before the first one it waits for what was launched.
	BeginGraph(r *Recording, first bool) error
	// EndGraph ends the graph. The same goroutine calls it. The Graph is nil if nothing was launched. The device is as before, also after
	// an error. Memory that the device had given out when the graph began belongs to the graph until its Close, even if it is freed.
	EndGraph() (Graph, error)
	// Recording returns the argument of BeginGraph, or nil when nothing is recorded.
	Recording() *Recording
	// Vary launches k on queue 0, during a recording. Calling set between two launches of the graph makes the later ones use the numbers
	// that are in a by then. Addresses, shapes and List must not change.
	Vary(k Kernel, a *Args) (set func())
}

// GrapherOf returns dev as a Grapher; nil if it cannot record, and in debug mode, in which nothing is recorded.
func GrapherOf(dev Device) Grapher {
	g, _ := dev.(Grapher)
	if debugMode {
		return nil
	}
	return g
}

// Graph is what a Grapher recorded.
type Graph interface {
	// Launch puts the whole graph on queue 0.
	Launch() error
	// Close frees the graph. What was launched still runs.
	Close() error
}

// Recording lists what a replay of a captured step does (package capture), in the order of the recorded step: the host's part, launches of
// graphs, and the functions between them.
type Recording struct {
	on     Grapher
	begun  bool // the first graph has begun
	open   bool // a graph is being recorded
	graphs []Graph
	steps  []func() error
	last   []func() error
	err    error         // a graph could not be recorded
	refill func(a *Args) // of the next launch
	keys   map[keyUse]*uint64
	tapes  []*Tape
	grads  []*Param        // whose gradients were written
	uses   map[*Param]bool // by tapes that train; whether it is frozen
	spans  *trace.Recorder
}

// keyUse is a random key that a tape made in the recording.
type keyUse struct {
	by  *Exec
	key uint64
}

// Recording returns the device's recording, nil if there is none. If an operation changes something on the host in each step, it registers
// it there.
func (e *Exec) Recording() *Recording {
	if e.grapher == nil {
		return nil
	}
	return e.grapher.Recording()
}

// Record records what fn launches on queue 0 of the device, and launches it. An error or a Failure of fn ends the recording.
func Record(on Grapher, fn func() error) (made *Recording, err error) {
	r := &Recording{on: on, keys: map[keyUse]*uint64{}, uses: map[*Param]bool{}}
	if err := r.begin(); err != nil {
		return nil, err
	}
	defer func() {
		if made == nil {
			_ = r.Close()
		}
	}()
	if err = fn(); err == nil {
		err = r.finish()
	}
	if err != nil {
		return nil, err
	}
	r.reset()
	return r, nil
}

// Replay does the host's part of the recorded step, and launches the rest.
func (r *Recording) Replay() error {
	r.reset()
	for p, frozen := range r.uses {
		if p.frozen != frozen {
			return fmt.Errorf("tensor: Freeze or Unfreeze of %s after the step was recorded, which trains what it trained then: "+
				"make another captured step", p.name)
		}
	}
	for _, do := range r.steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// Host makes replays call fn, which must not allocate. fn changes what the recorded step changed on the host, such as a step number.
func (r *Recording) Host(fn func()) {
	r.steps = append(r.steps, func() error {
		fn()
		return nil
	})
}

// Between ends the current graph and launches it, calls fn, and begins the next graph. Replays call fn between the two graphs. So the host
// can do something after all earlier work was given to the device, such as start a collective. While fn runs, nothing is recorded. In a
// replay, Run returns an error of fn.
func (r *Recording) Between(fn func() error) (err error) {
	if err := r.end(); err != nil {
		return err
	}
	r.steps = append(r.steps, fn)
	defer func() { err = errors.Join(err, r.begin()) }()
	return fn()
}

// Last makes fn run at the end of the recorded step; fn may add to the recording.
func (r *Recording) Last(fn func() error) { r.last = append(r.last, fn) }

// begin begins the next graph.
func (r *Recording) begin() error {
	err := r.on.BeginGraph(r, !r.begun)
	r.begun, r.open, r.err = true, err == nil, errors.Join(r.err, err)
	return err
}

// end ends the current graph and, if it is not empty, launches it, as replays will.
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

// Close frees the graphs.
func (r *Recording) Close() error {
	var errs []error
	if r.open {
		r.open = false
		if g, err := r.on.EndGraph(); err == nil && g != nil { // the step failed, and that error is reported
			errs = append(errs, g.Close())
		}
	}
	for _, g := range r.graphs {
		errs = append(errs, g.Close())
	}
	r.graphs = nil
	return errors.Join(errs...)
}

// Vary makes replays call refill with the arguments of the next launch. refill may change F, I and Key, for numbers that differ from step
// to step, such as a learning rate.
func (r *Recording) Vary(refill func(a *Args)) { r.refill = refill }

// launch launches what the Exec prepared, if Vary was called for it, and reports whether it did.
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

// key records that a tape made a key for a layer: a replay makes it again.
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

// tape records that the step uses t.
func (r *Recording) tape(t *Tape) {
	if !slices.Contains(r.tapes, t) {
		r.tapes = append(r.tapes, t)
	}
}

// grad records that a gradient is written. Whether a write adds to the old gradient is decided on the host, so a replay cannot change it:
// the step must make and use a gradient.
func (r *Recording) grad(p *Param) {
	if slices.Contains(r.grads, p) {
		return
	}
	if p.HasGrad() {
		fail("Backward", nil, "%s has a gradient from before the captured step", p.name)
	}
	r.grads = append(r.grads, p)
}

// finish ends the step. It returns an error if a gradient was not used.
func (r *Recording) finish() error {
	for _, fn := range r.last {
		if err := fn(); err != nil {
			return err
		}
	}
	for p := range r.uses {
		r.uses[p] = p.frozen // a step may freeze it for a part of its work
	}
	for _, p := range r.grads {
		if p.HasGrad() {
			return fmt.Errorf("tensor: the captured step makes a gradient of %s and leaves it: call the optimizer's Step inside it, too", p.name)
		}
	}
	return r.end()
}

// reset drops what an earlier run left on the tapes: it is not part of a replay.
func (r *Recording) reset() {
	for _, t := range r.tapes {
		t.Reset()
	}
}

func (t *Tape) keyOf(layer uint64) uint64 {
	return kernel.Key(t.random.Seed, uint64(t.random.Step), uint64(t.random.Micro), layer)
}
