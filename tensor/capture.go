package tensor

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Captured is a step of fixed shapes: a function that a device which can (a Grapher, such as a CUDA GPU) runs twice, records
// the third time, and launches as one from then on, without the host's work for each operation: CUDA graphs, torch.cuda.graph.
// Elsewhere it is the function, and does the same. A step of several ranks is a few launches: one between collectives, which the
// host issues and waits for in each replay, as the function does. Ranks need not record at the same time.
//
//	step := tensor.Capture(dev, func(in ...tensor.Tensor) error {
//		loss := nn.CrossEntropy(model.Forward(tape.Input(in[0])), in[1])
//		tape.Backward(loss)
//		tensor.Copy(last, loss) // to read it later
//		err := opt.Step()
//		tape.Reset()
//		return err
//	})
//	defer step.Close()
//	err := step.Run(batch.X, batch.Y)
//
// A replay does again what was launched, on the same memory. The Go code of the function does not run, but for what a step
// changes on the host and the device must know: the step of a tape's random keys, an optimizer's learning rate and count of
// steps. Other values that the function computes on the host are what they were in the recording, and what it leaves on a tape
// is not there after Run: it copies results to tensors outside, which are read after Run. Gradients that it makes it also uses up.
//
// The function must not wait for the device: no Item, no optim.Scaler, no collective on host memory, no Ctx.HostInts, such as a
// mixture of experts without a capacity. It waits for all collectives that it issues. It must not take more device memory in its third
// run than in the first two. What it may not do is a Failure that says so; the step is useless then, as it is after a collective
// that fails in a replay: Run returns its error.
//
// With RINGO_DEBUG=1 the function is always run.
type Captured struct {
	dev   Device
	on    Grapher // nil: just run it
	fn    func(in ...Tensor) error
	busy  atomic.Bool
	ran   int
	in    []Tensor // on the device, where the recording finds them
	given []Tensor // those of a run outside of the recording
	sent  Pending  // the last copy from host memory
	made  *Recording
	err   error // the step is useless
}

// warmups is how often the function runs before it is recorded: the first time kernels are compiled and most memory is taken,
// the second time parallel packages may move gradients.
const warmups = 2

// Grapher is implemented by a Device that can record what is launched on its queue 0, to launch it again as one.
type Grapher interface {
	// BeginGraph begins to record: what the calling goroutine launches on queue 0 from now on does not run. Until EndGraph, what
	// a recording cannot hold is a Failure: to wait, to copy from or to host memory, to allocate. A recording has one graph after
	// another (see Recording.Between); before the first it waits for what was launched.
	BeginGraph(r *Recording, first bool) error
	// EndGraph ends the graph, called by the same goroutine; it is nil if nothing was launched. Whatever it returns, the device is as
	// before. The memory that the device had given out when the graph began stays the graph's until it is closed, also if it is freed.
	EndGraph() (Graph, error)
	// Recording returns what BeginGraph got, nil when nothing is recorded.
	Recording() *Recording
	// Vary launches k on queue 0, during a recording. set, called between launches of the graph, makes these use what is in a by
	// then: addresses, shapes and List as they were, other numbers.
	Vary(k Kernel, a *Args) (set func())
}

// Graph is what a Grapher recorded.
type Graph interface {
	// Launch puts all of it on queue 0.
	Launch() error
	// Close forgets it. What was launched still runs.
	Close() error
}

// Capture returns fn as a step for dev. fn gets the tensors that Run was given, in memory of dev.
func Capture(dev Device, fn func(in ...Tensor) error) *Captured {
	c := &Captured{dev: dev, fn: fn}
	if !debugMode {
		c.on, _ = dev.(Grapher)
	}
	return c
}

var (
	errRuns   = errors.New("tensor: a captured step is used while it runs, by its own function or another goroutine")
	errReplay = errors.New("tensor: a captured step failed in a replay")
)

// Run does a step on inputs in memory of the device or of the host, which may change when Run returns. Those of the first call
// decide on types, shapes and rows; with others, such as the smaller batch at the end of an epoch, the function is run. Run is
// not called by two goroutines at once, nor by the function of another step of the device.
func (c *Captured) Run(in ...Tensor) error {
	if !c.busy.CompareAndSwap(false, true) {
		return errRuns
	}
	defer c.busy.Store(false)
	switch {
	case c.err != nil:
		return c.err
	case c.on != nil && c.on.Recording() != nil:
		return fmt.Errorf("tensor: Run of a captured step inside another one of %v", c.dev)
	case c.on == nil || !c.fits(in):
		c.given = append(c.given[:0], in...)
		return c.fn(c.given...)
	}
	c.load(in)
	err := c.step()
	if e := c.sent.Wait(); err == nil {
		err = e
	}
	c.sent = Pending{}
	return err
}

// Close gives up the recording and the memory that it kept. Later Runs return an error.
func (c *Captured) Close() error {
	if !c.busy.CompareAndSwap(false, true) {
		return errRuns
	}
	defer c.busy.Store(false)
	var err error
	if c.made != nil {
		err = c.made.close()
	}
	c.fn, c.in, c.given, c.made = nil, nil, nil, nil
	c.err = errors.New("tensor: Run of a captured step that is closed")
	return err
}

// step does what is due: run, record, or replay.
func (c *Captured) step() error {
	switch {
	case c.made != nil:
		return c.replay()
	case c.ran == warmups:
		return c.record()
	}
	c.ran++
	return c.fn(c.in...)
}

// fits reports whether the inputs are like the first ones, of which it makes the recording's.
func (c *Captured) fits(in []Tensor) bool {
	if c.ran == 0 {
		c.in = c.in[:0]
		for _, x := range in {
			h := x.hdr()
			c.in = append(c.in, New(c.dev, h.dtype, h.dims[:h.rank]...).WithRows(h.rowsOf()))
		}
		return true
	}
	if len(in) != len(c.in) {
		return false
	}
	for i, x := range in {
		if h, own := x.hdr(), c.in[i].h; !h.alike(own) || h.dtype != own.dtype || h.rowsOf() != own.rowsOf() {
			return false
		}
	}
	return true
}

// load copies the inputs to their places.
func (c *Captured) load(in []Tensor) {
	q := c.dev.Queue(0)
	for i, x := range in {
		h, own := x.hdr(), c.in[i].h
		switch {
		case h.n == 0:
		case h.ld != 0:
			fail("Run", these(h), "input %d is not contiguous", i)
		case h.st.dev == c.dev:
			c.dev.Copy(own.ptr(), h.ptr(), h.n*h.dtype.Size(), q)
		case h.st.dev.Host():
			c.dev.Copy(own.ptr(), h.ptr(), h.n*h.dtype.Size(), q)
			c.sent = q.Mark()
		default:
			Copy(c.in[i], x)
		}
	}
}

// record runs the function on a recording device, and what it launched.
func (c *Captured) record() (err error) {
	r := &Recording{on: c.on, keys: map[keyUse]*uint64{}}
	if err := r.begin(); err != nil {
		return err
	}
	c.err = fmt.Errorf("tensor: a captured step of %v failed when it was recorded", c.dev) // unless it does not
	defer func() {
		if c.made == nil {
			_ = r.close()
		}
	}()
	err = c.fn(c.in...)
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		c.err = fmt.Errorf("%w: %w", c.err, err)
		return err
	}
	c.made, c.err = r, nil
	r.reset()
	return nil
}

// replay does what the host does in a step, and launches the rest.
func (c *Captured) replay() error {
	c.err = errReplay // unless it does not
	c.made.reset()
	for _, do := range c.made.steps {
		if err := do(); err != nil {
			c.err = fmt.Errorf("%w: %w", errReplay, err)
			return err
		}
	}
	c.err = nil
	return nil
}
