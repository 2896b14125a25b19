package tensor

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Captured is a step of fixed shapes that can be launched as a whole, without the host's work for each operation, like CUDA graphs and
// torch.cuda.graph. On a device that can record (a Grapher, such as a CUDA GPU), the function runs twice, is recorded the third time, and
// is replayed from then on. Other devices always run the function: the results are the same. A step with collectives becomes several
// launches, one between two collectives: in each replay the host starts the collectives and waits for them, as the function does. Ranks
// need not record at the same time.
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
// A replay launches the same work again, on the same memory. The Go code of the function does not run. Only the values that a step changes
// on the host and that the device needs are updated: the step number of a tape's random keys, the learning rate and the step count of an
// optimizer. All other values that the function computes on the host keep their value from the recording. Tensors that the function leaves
// on a tape do not exist after Run: copy results to tensors outside, and read these after Run. The function must use the gradients that it
// makes.
//
// The function must not wait for the device: no Item, no optim.Scaler, no collective on host memory, no Ctx.HostInts (which a mixture of
// experts without a capacity needs). It must wait for all collectives that it starts. Its third run must not need more device memory than
// the first two. What breaks these rules is a Failure that says so, and the step cannot be used any more. This is so, too, when a
// collective fails in a replay: Run returns its error.
//
// With RINGO_DEBUG=1 the function always runs.
type Captured struct {
	dev   Device
	on    Grapher // nil: the function always runs
	fn    func(in ...Tensor) error
	busy  atomic.Bool
	ran   int
	in    []Tensor // on the device, where the recording finds them
	given []Tensor // inputs of a run that is not replayed
	sent  Pending  // the last copy from host memory
	made  *Recording
	err   error // the step cannot be used any more
}

// warmups is how often the function runs before it is recorded. In the first run, kernels are compiled and most memory is allocated. In the
// second run, parallel packages may move gradients.
const warmups = 2

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

// Graph is what a Grapher recorded.
type Graph interface {
	// Launch puts the whole graph on queue 0.
	Launch() error
	// Close frees the graph. What was launched still runs.
	Close() error
}

// Capture returns fn as a step for dev. fn gets the tensors that Run was given, in memory of dev.
func Capture(dev Device, fn func(in ...Tensor) error) *Captured {
	c := &Captured{dev: dev, fn: fn}
	if !debugMode {
		c.on, _ = dev.(Grapher)
	}
	c.count(1)
	return c
}

// captures has how many captured steps each device has.
var captures = struct {
	sync.Mutex
	of map[Grapher]int
}{of: map[Grapher]int{}}

func (c *Captured) count(n int) {
	captures.Lock()
	defer captures.Unlock()
	if captures.of[c.on] += n; captures.of[c.on] == 0 || c.on == nil {
		delete(captures.of, c.on)
	}
}

// Captures reports whether the program captures steps on the device.
func (e *Exec) Captures() bool {
	captures.Lock()
	defer captures.Unlock()
	return captures.of[e.grapher] > 0
}

var (
	errRuns   = errors.New("tensor: a captured step is used while it runs, by its own function or another goroutine")
	errReplay = errors.New("tensor: a captured step failed in a replay")
)

// Run does a step on inputs in device or host memory; the caller may change them when Run returns. The inputs of the first call set types,
// shapes and rows; those of the second do so if they are another part of as many rows, as behind a data.Loader's first batch. For other
// ones, such as the smaller last batch of an epoch, the function runs. Two goroutines must not call Run at the same time, and the function
// of another step of the device must not call it.
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

// Close frees the recording and the memory that it kept. Later Runs return an error.
func (c *Captured) Close() error {
	if !c.busy.CompareAndSwap(false, true) {
		return errRuns
	}
	defer c.busy.Store(false)
	var err error
	if c.fn != nil {
		c.count(-1)
	}
	if c.made != nil {
		err = c.made.close()
	}
	c.fn, c.in, c.given, c.made = nil, nil, nil, nil
	c.err = errors.New("tensor: Run of a captured step that is closed")
	return err
}

// step runs, records or replays.
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

// fits reports whether the inputs are like those that the recording has; before, it makes the tensors of the recording.
func (c *Captured) fits(in []Tensor) bool {
	if c.ran > 0 {
		same, total := c.compare(in)
		if same || !total || c.ran > 1 {
			return same
		}
	}
	c.ran, c.in = 0, c.in[:0]
	for _, x := range in {
		h := x.hdr()
		c.in = append(c.in, New(c.dev, h.dtype, h.dims[:h.ndim]...).WithRows(h.rowsOf()))
	}
	return true
}

// compare reports whether the inputs have the types, shapes and rows of those of the recording, and whether they are of as many rows of all
// ranks.
func (c *Captured) compare(in []Tensor) (same, total bool) {
	if len(in) != len(c.in) {
		return false, false
	}
	same, total = true, true
	for i, x := range in {
		h, own := x.hdr(), c.in[i].h
		r, of := h.rowsOf(), own.rowsOf()
		r.Number = of.Number
		same = same && h.alike(own) && h.dtype == own.dtype && r == of
		total = total && r.Total > 0 && r.Total == of.Total
	}
	return same, total
}

// load copies the inputs to the tensors of the recording.
func (c *Captured) load(in []Tensor) {
	q := c.dev.Queue(0)
	for i, x := range in {
		h, own := x.hdr(), c.in[i].h
		Raw(c.in[i]).Number(h.rowsOf().Number)
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

// record records the function, and launches what it recorded.
func (c *Captured) record() (err error) {
	r := &Recording{on: c.on, keys: map[keyUse]*uint64{}}
	if err := r.begin(); err != nil {
		return err
	}
	c.err = fmt.Errorf("tensor: a captured step of %v failed when it was recorded", c.dev) // unless recording succeeds
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

// replay does the host's part of a step, and launches the rest.
func (c *Captured) replay() error {
	c.err = errReplay // unless the replay succeeds
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
