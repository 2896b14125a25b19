package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/compare"
)

// Agreement returns what the tape's step must have alike on ranks that differ along the given axes.
func (t *Tape) Agreement(along Axes) compare.Agreement {
	r := &t.rows
	if t.inBackward { // a Checkpoint may run again at any time in it
		r = &t.agreement.Rows
	}
	return t.agreement.Agreement(t.random.Seed, uint64(t.random.Step), r, along)
}

// Agree says that all ranks use the same number in this step, such as a count by which a loss divides. Ranks that used different ones get
// an error when they next add something up. ops.CrossEntropy calls it with its Count. How often in a row it is called with the same number
// does not matter: ranks may divide their rows into other numbers of chunks.
func (t *Tape) Agree(number float64) {
	if t.recompute || !t.agreement.Agree(number) {
		return
	}
	if r := t.Recording(); r != nil {
		r.tape(t)
		r.Host(func() { t.Agree(number) })
	}
}

// Agreed returns the different numbers of Agree since the last Backward. It is valid until the next one. all is false if there are more.
func (t *Tape) Agreed() (numbers []float64, all bool) { return t.agreement.Agreed() }

// Stepped tells the tape that last used p the learning rate of an optimizer's step, and a digest of which of its parameters are frozen.
// Ranks with different ones get an error when they next add something up.
func (p *Param) Stepped(rate float64, frozen uint64) {
	if p.last != nil {
		p.last.t.agreement.Stepped(rate, frozen)
	}
}

// tell notes the values of a tensor of no tape, in steps that are compared: what a program uses without Rows, it says is the same on all
// ranks. So it is not with what a Function uses, which may depend on the rank.
func (t *Tape) tell(h *header) {
	if !t.compares() || h.tape != nil {
		return
	}
	sum := checksum(h)
	if h.rows != nil && h.st.dev.Host() { // also zeros: inputs are told apart by their order
		t.fed.Tell(valuesOf(h, batchOfInput(h), sum))
	}
	if sum == 0 {
		return
	}
	t.agreement.Value(sum)
	ofRows := (h.ndim > 1 || h.n > 1) && h.dims[0] == t.rows.N && uniform(h, -1) // such as labels, of which a rank without rows has none
	if h.dtype.IsFloat() && h.rows == nil && h.ty == (Types{}) && h != t.targets && !ofRows {
		t.agreement.Input(sum)
	}
}

// tellComputed notes the values of rows that another tape has computed, such as weights by a teacher's losses.
func (t *Tape) tellComputed(h *header) {
	if !t.compares() || h.at.Of == 0 || h.ndim == 0 || !h.st.dev.Host() {
		return
	}
	if b := t.batchAt(h.at); h.dims[0] == b.N {
		t.fed.Tell(valuesOf(h, *b, checksum(h)))
	}
}

// compares reports whether ranks compare values of the step.
func (t *Tape) compares() bool {
	return t.agreement.Compared() && !t.noGrad && t.training && !t.quiet && !t.recompute
}

// tellParam notes the values of a parameter that nobody owns, such as a teacher's.
func (t *Tape) tellParam(p *Param) {
	if t.compares() && !t.inBackward && p.owner == nil && !p.IsCut() {
		t.agreement.Param(checksum(p.Value.hdr()))
	}
}

// target notes the target of a loss: it belongs to the rows, also if it was an Input without Rows.
func (t *Tape) target(h *header) {
	t.targets, t.agreement.Over = h, t.agreement.Over|h.ty.Differ()
	if h.tape == t && h.st.arena == nil {
		t.agreement.Forget(func() uint64 { return checksum(h) })
	}
}

// checksum returns a digest of h's values, of the first MiB. It is 0 if the host does not see them, and for zeros.
func checksum(h *header) uint64 { return checksumOf(h, h.n) }

// checksumOf is checksum of the first n elements.
func checksumOf(h *header, n int) uint64 {
	if h.ld != 0 || n == 0 || !h.st.dev.Host() {
		return 0
	}
	size := h.dtype.Size()
	return compare.Digest(unsafe.Slice((*byte)(h.ptr()), min(n*size, 1<<20)), size)
}
