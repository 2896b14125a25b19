package tensor

import (
	"bytes"
	"hash/crc64"
	"math"
	"slices"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/tensor/compare"
)

// told is what a tape knows for its Agreement.
type told struct {
	numbers, kept  batches // kept: when the last Backward with More ended
	count          float64
	counts         uint64
	agreed         [5]float64 // the first different numbers of Agree since the last Backward
	numAgreed      int
	rate           float64 // of the last step of an optimizer, since the last Backward
	frozen         uint64  // in that step
	inputs         uint64  // a sum: see target
	params         uint64
	values         uint64
	over           Axes      // along which some input differs between ranks
	rows           batch     // when Backward began
	recent         [4]uint64 // of inputs
	told           int       // how many were
	target         *header   // of the last loss
	steps          int       // Backwards without More, up to comparedSteps
	compared, next bool      // the values of this step, and of the next one, are compared, too: see CompareNext
}

// batches is the numbers of a step's batches.
type batches struct {
	last   int
	digest uint64
}

// Agreement returns what the tape's step must have alike on ranks that differ along the given axes.
func (t *Tape) Agreement(along Axes) compare.Agreement {
	s, r := &t.told, &t.rows
	if t.inBackward { // a Checkpoint may run again at any time in it
		r = &s.rows
	}
	a := compare.Agreement{Seed: t.random.Seed, Step: uint64(t.random.Step), Batch: s.numbers.last, Batches: s.numbers.digest,
		Total: r.Total, SeqTotal: r.Seq.Total, Count: s.count, Counts: s.counts, Rate: s.rate, Frozen: s.frozen}
	if r.Seq.Total == 0 { // tables of positions differ rightly
		a.Inputs = s.inputs
		if r.Total != 0 { // the step has a batch
			a.Params = s.params
		}
	}
	if along != 0 && along&s.over == 0 {
		a.First, a.N, a.Seq, a.Values = r.First, r.N, r.Seq, s.values
	}
	return a
}

// Agree says that all ranks use the same number in this step, such as a count by which a loss divides. Ranks that used different ones get
// an error when they next add something up. CrossEntropy calls it with its Count. How often in a row it is called with the same number does
// not matter: ranks may divide their rows into other numbers of chunks.
func (t *Tape) Agree(number float64) {
	s := &t.told
	if t.recompute || s.counts != 0 && number == s.count {
		return
	}
	s.count, s.counts = number, kernel.Key(s.counts, math.Float64bits(number))
	if n := s.numAgreed; n < len(s.agreed) && !slices.Contains(s.agreed[:n], number) {
		s.agreed[n] = number
		s.numAgreed++
	}
	if r := t.Recording(); r != nil {
		r.tape(t)
		r.Host(func() { t.Agree(number) })
	}
}

// Agreed returns the different numbers of Agree since the last Backward. It is valid until the next one. all is false if there are more.
func (t *Tape) Agreed() (numbers []float64, all bool) {
	s := &t.told
	return s.agreed[:s.numAgreed], s.numAgreed < len(s.agreed)
}

// Stepped tells the tape that last used p the learning rate of an optimizer's step, and a digest of which of its parameters are frozen.
// Ranks with different ones get an error when they next add something up.
func (p *Param) Stepped(rate float64, frozen uint64) {
	if p.last != nil {
		s := &p.last.t.told
		s.rate, s.frozen = rate, frozen
	}
}

// add notes the number of a batch. Its microbatches and targets have the same one.
func (n *batches) add(number int) {
	if number != 0 && number != n.last {
		n.last, n.digest = number, kernel.Key(n.digest, uint64(number))
	}
}

// tell notes the values of a tensor of no tape, in steps that are compared: what a program uses without Rows, it says is the same on all
// ranks. So it is not with what a Function uses, which may depend on the rank.
func (t *Tape) tell(h *header) {
	s := &t.told
	if !t.compares() || h.tape != nil {
		return
	}
	sum := checksum(h)
	if sum == 0 {
		return
	}
	s.values = kernel.Key(s.values, sum)
	if h.rows != nil {
		t.fed.Tell(valuesOf(h, sum))
	}
	ofRows := (h.ndim > 1 || h.n > 1) && h.dims[0] == t.rows.N && uniform(h, -1) // such as labels, of which a rank without rows has none
	if h.dtype.IsFloat() && h.rows == nil && h.ty == (Types{}) && h != s.target && !ofRows {
		s.inputs += sum
		s.recent[s.told%len(s.recent)] = sum
		s.told++
	}
}

// compares reports whether ranks compare values of the step.
func (t *Tape) compares() bool {
	return (t.told.steps < comparedSteps || t.told.compared) && !t.noGrad && t.training && !t.quiet && !t.recompute
}

// tellParam notes the values of a parameter that nobody owns, such as a teacher's.
func (t *Tape) tellParam(p *Param) {
	if t.compares() && !t.inBackward && p.owner == nil && !p.IsCut() {
		t.told.params += checksum(p.Value.hdr())
	}
}

// target notes the target of a loss: it belongs to the rows, also if it was an Input without Rows.
func (t *Tape) target(h *header) {
	s := &t.told
	s.target, s.over = h, s.over|h.ty.Differ()
	if s.inputs == 0 || h.tape != t || h.st.arena != nil {
		return
	}
	if i := slices.Index(s.recent[:], checksum(h)); i >= 0 {
		s.inputs, s.recent[i] = s.inputs-s.recent[i], 0
	}
}

// comparedSteps is in how many steps of a tape the values of inputs are compared in any case.
const comparedSteps = 2

// checksum returns a digest of h's values, of the first MiB. It is 0 if the host does not see them, and for zeros, which say nothing: a
// rank without rows may have none.
func checksum(h *header) uint64 {
	if h.ld != 0 || h.n == 0 || !h.st.dev.Host() {
		return 0
	}
	size := h.dtype.Size()
	b := unsafe.Slice((*byte)(h.ptr()), min(h.n*size, 1<<20))
	if bytes.Equal(b[size:], b[:len(b)-size]) { // all elements are equal: their number may depend on the rows
		b = b[:size]
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return 0
	}
	return kernel.Key(crc64.Checksum(b, checksumTable))
}

var checksumTable = crc64.MakeTable(crc64.ECMA)

// reset drops what belongs to a step that ended or was given up.
func (s *told) reset() {
	*s = told{numbers: s.kept, kept: s.kept, over: s.over, steps: s.steps, compared: s.compared, rate: s.rate, frozen: s.frozen}
}

// backward notes the end of a Backward.
func (s *told) backward(more bool) {
	if more {
		s.kept = s.numbers
	} else {
		s.kept, s.rate, s.frozen, s.steps = batches{}, 0, 0, min(s.steps+1, comparedSteps)
		s.compared, s.next = s.next, false
	}
	s.numbers, s.count, s.counts, s.inputs, s.params, s.values, s.recent = s.kept, 0, 0, 0, 0, 0, [4]uint64{}
	s.numAgreed = 0
}
