package capture

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ringo-ml/ringo/tensor"
)

// Step is a captured step.
type Step struct {
	dev   tensor.Device
	on    tensor.Grapher // nil: the function always runs
	fn    func(in ...tensor.Tensor) error
	busy  atomic.Bool
	ran   int
	in    []tensor.Tensor // on the device, where the recording finds them
	given []tensor.Tensor // inputs of a run that is not replayed
	sent  tensor.Pending  // the last copy from host memory
	made  *tensor.Recording
	err   error // the step cannot be used any more
}

// warmups is how often the function runs before it is recorded. In the first run, kernels are compiled and most memory is allocated. In the
// second run, parallel packages may move gradients.
const warmups = 2

// New returns fn as a step for dev. fn gets the tensors that Run was given, in memory of dev.
func New(dev tensor.Device, fn func(in ...tensor.Tensor) error) *Step {
	s := &Step{dev: dev, on: tensor.GrapherOf(dev), fn: fn}
	s.count(1)
	return s
}

// steps has how many captured steps each device has.
var steps = struct {
	sync.Mutex
	of map[tensor.Grapher]int
}{of: map[tensor.Grapher]int{}}

func (s *Step) count(n int) {
	if s.on == nil {
		return
	}
	steps.Lock()
	defer steps.Unlock()
	if steps.of[s.on] += n; steps.of[s.on] == 0 {
		delete(steps.of, s.on)
	}
}

// On reports whether the program captures steps on the device.
func On(dev tensor.Device) bool {
	g, ok := dev.(tensor.Grapher)
	steps.Lock()
	defer steps.Unlock()
	return ok && steps.of[g] > 0
}

var (
	errRuns   = errors.New("capture: a captured step is used while it runs, by its own function or another goroutine")
	errReplay = errors.New("capture: a captured step failed in a replay")
)

// Run does a step on inputs in device or host memory; the caller may change them when Run returns. The inputs of the first call set types,
// shapes and rows; those of the second do so if they are another part of as many rows, as behind a data.Loader's first batch. For other
// ones, such as the smaller last batch of an epoch, the function runs. Two goroutines must not call Run at the same time, and the function
// of another step of the device must not call it.
func (s *Step) Run(in ...tensor.Tensor) error {
	if !s.busy.CompareAndSwap(false, true) {
		return errRuns
	}
	defer s.busy.Store(false)
	switch {
	case s.err != nil:
		return s.err
	case s.on != nil && s.on.Recording() != nil:
		return fmt.Errorf("capture: Run of a captured step inside another one of %v", s.dev)
	case s.on == nil || !s.fits(in):
		s.given = append(s.given[:0], in...)
		return s.fn(s.given...)
	}
	s.load(in)
	err := s.step()
	if e := s.sent.Wait(); err == nil {
		err = e
	}
	s.sent = tensor.Pending{}
	return err
}

// Close frees the recording and the memory that it kept. Later Runs return an error.
func (s *Step) Close() error {
	if !s.busy.CompareAndSwap(false, true) {
		return errRuns
	}
	defer s.busy.Store(false)
	var err error
	if s.fn != nil {
		s.count(-1)
	}
	if s.made != nil {
		err = s.made.Close()
	}
	s.fn, s.in, s.given, s.made = nil, nil, nil, nil
	s.err = errors.New("capture: Run of a captured step that is closed")
	return err
}

// step runs, records or replays.
func (s *Step) step() error {
	switch {
	case s.made != nil:
		return s.replay()
	case s.ran == warmups:
		return s.record()
	}
	s.ran++
	return s.fn(s.in...)
}

// record records the function, and launches what it recorded.
func (s *Step) record() error {
	failed := fmt.Errorf("capture: a captured step of %v failed when it was recorded", s.dev)
	r, err := tensor.Record(s.on, func() error {
		s.err = failed // unless recording succeeds
		return s.fn(s.in...)
	})
	switch {
	case err == nil:
		s.made, s.err = r, nil
	case s.err != nil:
		s.err = fmt.Errorf("%w: %w", failed, err)
	}
	return err
}

// replay does the host's part of a step, and launches the rest.
func (s *Step) replay() error {
	s.err = errReplay // unless the replay succeeds
	err := s.made.Replay()
	if s.err = nil; err != nil {
		s.err = fmt.Errorf("%w: %w", errReplay, err)
	}
	return err
}
