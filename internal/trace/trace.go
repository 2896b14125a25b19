package trace

import (
	"slices"
	"sync"
	"time"
)

// Track is a line of one rank's timeline.
type Track uint8

// The tracks of a rank.
const (
	Steps   Track = iota // steps of the training, and their phases
	Compute              // kernels
	Comm                 // communication, from issue to end
	Waits                // the rank's goroutine waits for communication: the exposed part of it
	NumTracks
)

// StepName is the name of the spans of whole steps on track Steps; their Arg is the number of the step. Other spans there are phases.
const StepName = "step"

// Lane says who communicates: the members of a group, or a sender and a receiver, in this order.
type Lane struct {
	Group string
	ID    uint64 // the same on all members, and different from those of other lanes
	Ranks []int  // world ranks
}

// Span is one piece of work. Times are nanoseconds since 1970. There are many spans, so their JSON names are short.
type Span struct {
	Name  string `json:"n"`
	Track Track  `json:"t,omitempty"`
	Root  int32  `json:"r,omitempty"` // the root's world rank, for communication with a root
	Lane  int32  `json:"l,omitempty"` // the number of the communication's lane, from 1; otherwise 0
	Seq   uint64 `json:"q,omitempty"`
	Start int64  `json:"s"`
	End   int64  `json:"e"`
	Arg   int64  `json:"a,omitempty"` // bytes of communication, elements of a kernel's result, or number of a step
}

// Recorder keeps the first spans of one rank, up to its capacity. The methods of a nil *Recorder do nothing, so tracing that is off costs
// one comparison. Goroutines that communicate for the rank may share it.
type Recorder struct {
	mu      sync.Mutex
	spans   []Span
	lanes   []Lane
	dropped int
	step    Span // it is open if its Start is set
	phase   Span
}

// base is the start of the process. All ranks of the process use it, so they have exactly the same clock, also if the machine sleeps
// between the two clocks that time.Now reads.
var base = time.Now()

// New returns a recorder with room for n spans.
func New(n int) *Recorder { return &Recorder{spans: make([]Span, 0, n)} }

// Now returns the time in nanoseconds since 1970, or 0 on a nil recorder. It is the wall clock's time at base, plus the monotonic clock.
func (r *Recorder) Now() int64 {
	if r == nil {
		return 0
	}
	return base.UnixNano() + int64(time.Since(base))
}

// Add records a span, whose times are those of Now.
func (r *Recorder) Add(s Span) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(s)
}

func (r *Recorder) add(s Span) {
	if len(r.spans) == cap(r.spans) {
		r.dropped++
		return
	}
	r.spans = append(r.spans, s)
}

// Lane returns the number of a lane, for spans.
func (r *Recorder) Lane(l Lane) int32 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes = append(r.lanes, l)
	return int32(len(r.lanes))
}

// Step begins step n of the training, and ends the step before. If step n is open already, it goes on.
func (r *Recorder) Step(n int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.step.Start != 0 && r.step.Arg == int64(n) {
		return
	}
	r.end()
	r.step = Span{Name: StepName, Track: Steps, Start: r.Now(), Arg: int64(n)}
}

// EndStep ends the open step.
func (r *Recorder) EndStep() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end()
}

// end ends the open step and phase.
func (r *Recorder) end() {
	now := r.Now()
	r.close(&r.phase, now)
	r.close(&r.step, now)
}

func (r *Recorder) close(s *Span, now int64) {
	if s.Start != 0 {
		s.End = now
		r.add(*s)
		*s = Span{}
	}
}

// Phase ends the open phase and begins another one, or none for "".
func (r *Recorder) Phase(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(name)
}

// During begins a phase unless one is open.
func (r *Recorder) During(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase.Start == 0 {
		r.begin(name)
	}
}

func (r *Recorder) begin(name string) {
	now := r.Now()
	r.close(&r.phase, now)
	if name != "" {
		r.phase = Span{Name: name, Track: Steps, Start: now}
	}
}

// Spans returns what was recorded, in the order of recording.
func (r *Recorder) Spans() []Span {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.spans)
}

// Lanes returns the lanes. Spans have their numbers.
func (r *Recorder) Lanes() []Lane {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.lanes)
}

// Dropped returns how many spans did not fit.
func (r *Recorder) Dropped() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}
