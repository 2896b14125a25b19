package tensor

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/trace"
	"github.com/ringo-ml/ringo/tensor/compare"
	"github.com/ringo-ml/ringo/tensor/internal/arena"
)

const slabLen = 128 // headers, nodes and contributions are made in slabs of this many

// Tape records operations and owns the memory of a training step. After the first steps, a step allocates nothing on the Go heap. A Tape
// belongs to one goroutine; a rank may have several.
type Tape struct {
	Exec
	mem          *arena.Arena
	headers      []*[slabLen]header
	nh           int
	nodes        []*[slabLen]Node
	nn           int
	ptrs         [][]*header // operand lists of nodes
	np           int         // of these, begun since Reset
	calls        []*Ctx      // contexts of Functions, reused
	ncalls       int
	contribs     [][]contrib
	nc           int
	leaves       map[*Param]*leafState
	used         []*leafState // leaves used since Reset
	owners       []Hooks      // of the leaves used since the last Backward, each once
	unreferenced []*storage   // not referred to any more, but a collective still uses them
	modes
	pass
	step

	random    TapeState
	drawn     bool              // random numbers, in any step
	serial    uint32            // counts Resets
	stepsDone uint8             // steps that are done, up to firstSteps
	fed       fedInputs         // since the last Backward
	agreement compare.Step      // what Agreement returns a part of
	applied   map[Function]bool // see noteFields
	poller    Poller
	sent      Pending // the last copy from host memory

	// Memory that operations use while they run.
	turned [2][MaxNDim]int      // dimensions of operands that a product transposes
	times  []int                // how often indices pick each row
	shown  [2 * maxInputs]Types // for a Function's Types
}

// modes say what the tape does with an operation.
type modes struct {
	noGrad, training  bool // of the whole tape
	keepAll           bool // test hook: reuse nothing before Reset
	closed            bool
	record, recompute bool // in the first run of a Checkpoint record is false; in the second recompute is true
	quiet             bool // in a Function's Forward
	inBackward        bool
	putOff            bool        // weight gradients are put off until RunDeferred
	open              int         // running calls of Backward, Apply and Checkpoint; after a Failure, more than are running
	keeper, replayed  *Ctx        // Checkpoints whose functions run, for the first time and again: for Once
	fetched           *Ctx        // the Fetcher call whose output is in memory
	lazy              lazyProduct // a product that a Function computes
}

// pass is what Backward knows.
type pass struct {
	more        bool // see More
	scale       float64
	losses      float64 // of the microbatches of a step
	root        *header // the argument of Backward
	recorded    int     // number of nodes when Backward began
	at          int     // the node that run differentiates
	need        uint8   // of the rule that runs
	weightsOf   *Node   // its weight gradients come next: see drain
	weightsMask uint8
	putOffNodes int                // number of nodes whose weight gradients are put off
	factor      float64            // of the node that is differentiated, or 0
	factors     map[*header]Factor // with which they go into the loss
	ownMean     bool               // see MeansOwn
	lines       []line             // of the program, that gave numbers
	portions    []portion          // of rows, that reach the losses of a step
	choice      uint64             // the callSite of chosen ones that did, in the last step
}

// step is what the tape has learned since Reset.
type step struct {
	rows    batch
	tokens  int       // see SetTokens
	known   []batch   // that places refer to
	parts   Axes      // along which a NoGrad tape has parts of the features
	ownWhy  string    // how the first tensor of this rank's own came about
	sliced  bool      // rows were
	chosen  []chosen  // of rows
	alike   []alike   // numbers of operations
	added   []*header // by a rule of RowsAdded, without a gradient
	drew    bool      // random numbers since the last Backward
	seeds   int       // calls of WithAux
	ends    []*header // that Leaf made
	targets *header   // of the last loss
	free    []*header // the rest of the last list of operands
}

// TapeOption configures NewTape.
type TapeOption func(*Tape)

// NoGrad makes a tape for inference: nothing is recorded, Backward is an error. It implies Eval.
func NoGrad() TapeOption { return func(t *Tape) { t.noGrad, t.training = true, false } }

// Eval makes a tape on which Training reports false: dropout is the identity.
func Eval() TapeOption { return func(t *Tape) { t.training = false } }

// Seed sets the seed of the tape's randomness. Ranks of a job use the same seed: random numbers depend on the global position of an
// element, not on the rank.
func Seed(seed uint64) TapeOption { return func(t *Tape) { t.random.Seed = seed } }

// Trace records a span on r for each kernel, and the phases forward and backward; on a NoGrad tape, the phase evaluation.
func Trace(r *trace.Recorder) TapeOption {
	return func(t *Tape) { t.spans, t.phase = r, "forward" }
}

// NewTape returns a tape for dev.
func NewTape(dev Device, opts ...TapeOption) *Tape {
	t := &Tape{modes: modes{record: true, training: true}, pass: pass{scale: 1}, leaves: map[*Param]*leafState{}, serial: 1}
	t.init(dev)
	t.mem = t.newArena(dev)
	t.poller, _ = dev.(Poller)
	for _, o := range opts {
		o(t)
	}
	if t.phase != "" && t.noGrad {
		t.phase = "evaluation"
	}
	t.mem.Open()
	return t
}

// Training reports whether layers behave as in training (dropout) or as in evaluation.
func (t *Tape) Training() bool { return t.training }

// Recomputing reports whether a Checkpoint runs its function for the second time. Choices must come out as the first time: see Once.
func (t *Tape) Recomputing() bool { return t.recompute }

// Close returns the tape's memory to the device, or to the tapes that share it. Its tensors must not be used afterwards.
func (t *Tape) Close() {
	t.putOff = false
	t.Reset()
	if t.closed {
		return
	}
	t.closed = true
	t.mem.Close()
}

// newHeader returns a header with no memory. dims does not escape.
func (t *Tape) newHeader(dtype DType, dims ...int) *header {
	h := t.blankHeader()
	h.dtype = dtype
	h.setDims(dims)
	return h
}

func (t *Tape) blankHeader() *header {
	i := uint(t.nh) / slabLen
	if i == uint(len(t.headers)) {
		t.headers = append(t.headers, t.newSlab())
	}
	h := &t.headers[i][uint(t.nh)%slabLen]
	t.nh++
	// Setting the whole header to zero would take most of the time; alloc sets own, and setDims sets the shape.
	h.st, h.off, h.ld, h.grad, h.more, h.base = nil, 0, 0, nil, nil, nil
	h.needs, h.kept, h.saved, h.local, h.isGrad, h.inLoss, h.uses, h.ty, h.at = false, false, false, false, false, false, 0, Types{}, place{}
	return h
}

// newSlab makes headers, and sets the fields that never change.
func (t *Tape) newSlab() *[slabLen]header {
	hs := new([slabLen]header)
	for i := range hs {
		hs[i].tape, hs[i].own.dev, hs[i].own.arena = t, t.dev, t.mem
	}
	return hs
}

// header returns the i-th header that was made since Reset.
func (t *Tape) header(i int) *header { return &t.headers[uint(i)/slabLen][uint(i)%slabLen] }

// alloc gives h memory of its own.
func (t *Tape) alloc(h *header) {
	if len(t.unreferenced) > 0 && !t.keepAll {
		t.reap()
		if t.Recording() != nil && !t.mem.Has(h.n*h.dtype.Size()) {
			t.waitUnreferenced()
		}
	}
	b := t.take(h, h.n*h.dtype.Size())
	h.own.ptr, h.own.bytes, h.own.refs, h.own.coming = b.P, b.Bytes, 1, nil
	h.st = &h.own
}

// newTensor returns a header with memory of any content.
func (t *Tape) newTensor(dtype DType, dims ...int) *header {
	h := t.newHeader(dtype, dims...)
	t.alloc(h)
	return h
}

func (t *Tape) newLike(x *header) *header {
	h := t.blankHeader()
	h.sizeAs(x)
	t.alloc(h)
	return h
}

// alias returns a header of the same shape on the same memory.
func (t *Tape) alias(x *header) *header {
	h := t.blankHeader()
	h.sizeAs(x)
	h.ld, h.off, h.ty, h.at = x.ld, x.off, x.ty, x.at
	h.st, h.base = x.st, x.base
	if h.st != nil && h.st.arena != nil {
		h.st.refs++
	}
	return h
}

func (h *header) tensor() Tensor { return Tensor{h, h.gen} }

// maybe is tensor for an operand that may be nil.
func (h *header) maybe() Tensor {
	if h == nil {
		return Tensor{}
	}
	return h.tensor()
}

// release drops a header's reference to its memory and makes its handles invalid.
func (t *Tape) release(h *header) {
	if h.st != nil {
		t.unref(h.st)
		h.st = nil
	}
	h.gen++
}

// unref drops one reference. Memory of other owners is not counted: tapes of several goroutines may read it.
func (t *Tape) unref(s *storage) {
	if s.arena == nil {
		return
	}
	if s.refs--; s.refs > 0 {
		return
	}
	if t.keepAll || s.busy() {
		t.unreferenced = append(t.unreferenced, s)
		return
	}
	s.free()
}

// shared reports whether something else may refer to h's memory.
func (h *header) shared() bool { return h.st.arena == nil || h.st.refs > 1 }

// waitUnreferenced waits for the collectives that use memory to which no tensor refers any more. A recorded step needs the same memory as
// the runs before it, in which these collectives may have ended earlier.
func (t *Tape) waitUnreferenced() {
	for _, s := range t.unreferenced {
		s.waitUsers()
	}
	t.reap()
}

// reap frees memory that no collective uses any more.
func (t *Tape) reap() {
	k := 0
	for _, s := range t.unreferenced {
		if s.busy() {
			t.unreferenced[k] = s
			k++
			continue
		}
		s.free()
	}
	t.unreferenced = t.unreferenced[:k]
}

// Reset ends the step: it waits for collectives that still use step memory, and then all of it is free. Tensors of the tape become invalid.
// After a Failure, Reset makes the tape usable again; it drops gradients that a Backward wrote only in part.
func (t *Tape) Reset() {
	for i, slab := range t.headers {
		for j := range slab[:min(max(t.nh-i*slabLen, 0), slabLen)] {
			t.release(&slab[j])
		}
	}
	t.waitUnreferenced()
	lost := t.putOff && t.open == 0
	for _, s := range t.used {
		s.invalidate()
		s.more = nil
		if (t.inBackward || t.putOff) && s.p.state == gradPartial {
			s.p.state = gradEmpty
		}
	}
	if t.inBackward || t.putOff {
		clear(t.factors)
		t.portions = t.portions[:0]
	}
	t.nh, t.nn, t.np, t.nc, t.ncalls = 0, 0, 0, 0, 0
	t.modes = modes{noGrad: t.noGrad, training: t.training, keepAll: t.keepAll, closed: t.closed, record: true}
	t.weightsOf = nil
	t.forgetOwners()
	t.used = t.used[:0]
	t.step = step{known: t.known[:0], ends: t.ends[:0], added: t.added[:0], alike: t.alike[:0]}
	t.fed.reset()
	t.agreement.Reset()
	t.serial++
	t.spans.Phase("") // ends a forward phase without Backward
	_ = t.sent.Wait() // the next Sync returns the error
	t.sent = Pending{}
	t.mem.Report()
	if lost {
		fail("Reset", nil, "weight gradients that DeferWeights put off are lost: RunDeferred comes before Reset")
	}
}

// Input puts a tensor from outside (a batch) on the tape, without a copy if the device can use its memory. x must not change before Reset.
// If the device has its own memory, a tensor in host memory is copied there, in the order of its queue. The Rows of x become those of the
// step. A tensor of another tape is copied; no gradient flows back to it.
func (t *Tape) Input(x Tensor) Tensor {
	in := t.put(x)
	switch {
	case in == x:
	case x.h.tape == nil:
		t.tell(x.h)
	default:
		t.tellComputed(in.h)
		t.takeNumbers(x.h.tape)
	}
	return in
}

// put is Input without the comparison between ranks, for values that the program may have computed.
func (t *Tape) put(x Tensor) Tensor {
	h := x.hdr()
	h.mustNotBePart("Input")
	if r := t.Recording(); r != nil {
		r.tape(t)
	}
	var in *header
	switch {
	case h.tape == t:
		return x
	case !t.reaches(h):
		in = t.copyToDevice(h)
	case h.tape != nil:
		in = t.contiguousCopy(h)
	default:
		in = t.alias(h)
	}
	in.ty = h.ty
	t.noteRows(in, h)
	return in.tensor()
}

// copyToDevice copies a tensor whose memory the device cannot use. Reset waits until the host's memory has been read.
func (t *Tape) copyToDevice(h *header) *header {
	if h.ld != 0 {
		fail("Input", these(h), "not contiguous")
	}
	in := t.newLike(h)
	if h.n == 0 {
		return in
	}
	if h.st.dev.Host() {
		t.dev.Copy(in.ptr(), h.ptr(), h.n*h.dtype.Size(), t.q)
		t.sent = t.q.Mark()
	} else {
		Copy(in.tensor(), h.tensor())
	}
	return in
}

// reaches reports whether the device's kernels can read h's memory.
func (t *Tape) reaches(h *header) bool {
	return h.st.dev == t.dev || h.st.dev.Host() && t.dev.Host()
}

// arg returns the header of an operand, which is of this tape, or a constant of no tape.
func (t *Tape) arg(x Tensor) *header {
	h := x.hdr()
	if h.tape == t {
		if h.base != nil {
			h.base.makeResident(h)
		}
		return h
	}
	if h.tape != nil {
		fail("use", these(h), "tensor of another tape")
	}
	h.mustNotBePart("use")
	if !t.reaches(h) {
		return t.Input(x).h
	}
	t.tell(h)
	if h.rows != nil {
		in := t.alias(h)
		t.placeInput(in, batchOfInput(h))
		return in
	}
	return h
}

// maybeArg is arg of an operand that may be none.
func (t *Tape) maybeArg(x Tensor) *header {
	if x.IsZero() {
		return nil
	}
	return t.arg(x)
}

// tapeOfOp is tapeOf for operations of two operands.
func tapeOfOp(op Op, x, y Tensor) *Tape {
	if t := x.hdr().tape; t != nil {
		return t
	}
	if t := y.hdr().tape; t != nil {
		return t
	}
	return tapeOf(op.String(), x, y)
}

// tapeOf returns the tape of the first operand that has one.
func tapeOf(op string, xs ...Tensor) *Tape {
	for _, x := range xs {
		if x.h != nil && x.hdr().tape != nil {
			return x.h.tape
		}
	}
	var in []*header
	for _, x := range xs {
		if !slices.Contains(in, x.h) {
			in = append(in, x.h)
		}
	}
	fail(op, in, "no operand is on a tape; put it there with Tape.Input")
	return nil
}

// New returns a tensor of the tape with undefined content: the output of an operation of another package.
func (t *Tape) New(dtype DType, dims ...int) Tensor { return t.newTensor(dtype, dims...).tensor() }

// NewLike returns a tensor of the tape with x's type and shape and undefined content.
func (t *Tape) NewLike(x Tensor) Tensor { return t.newLike(x.hdr()).tensor() }

// Keep makes x survive Backward; it lives until Reset. Its values stay, but not the graph that made it: a later Backward whose gradient
// reaches x, or what was computed from x, is a Failure. For two losses of x, call Backward once, with their sum, or run the forward pass
// again. Where no gradient is wanted, Detach x.
func (t *Tape) Keep(x Tensor) Tensor {
	x.hdr().kept = true
	return x
}

// SetStep sets the numbers of steps and of microbatches that are done: random keys depend on them. The tape counts both itself; call it if
// several tapes are used for one step, as in a pipeline.
func (t *Tape) SetStep(step, micro int) {
	if t.Recording() != nil {
		fail("SetStep", nil, "inside a captured step, whose replays would not do it")
	}
	if step == t.random.Step+1 { // its last Backward had More: another tape ended the step
		t.agreement.Backward(false)
		t.stepsDone = min(t.stepsDone+1, firstSteps)
	}
	t.random.Step, t.random.Micro = step, micro
}

// TapeState is what a tape's random numbers depend on, for checkpoints.
type TapeState struct {
	Seed  uint64 `json:"seed"`
	Step  int    `json:"step"`  // Backwards without More, also in steps that the optimizer skipped
	Micro int    `json:"micro"` // Backwards with More since then
}

// State returns the present state.
func (t *Tape) State() TapeState { return t.random }

// SetState continues from the state of another tape.
func (t *Tape) SetState(s TapeState) {
	t.random.Seed = s.Seed
	t.SetStep(s.Step, s.Micro)
}
