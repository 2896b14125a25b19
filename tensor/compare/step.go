package compare

import (
	"bytes"
	"hash/crc64"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/layout"
)

// Step is what a tape knows for its Agreement: numbers and digests, since the last Backward.
type Step struct {
	Rows  layout.Batch // when Backward began
	Over  layout.Axes  // along which some input differs between ranks
	Steps int          // Backwards without More, up to ComparedSteps

	// Numbers are those of the host on which the loss of the Backward that runs depends, in steps that note them.
	Numbers []Number

	numbers, kept  batches // kept: when the last Backward with More ended
	count          float64
	counts         uint64
	agreed         [5]float64 // the first different numbers of Agree since the last Backward
	numAgreed      int
	rate           float64 // of the last step of an optimizer, since the last Backward
	frozen         uint64  // in that step
	inputs         uint64  // a sum: see Forget
	params         uint64
	values         uint64
	recent         [4]uint64 // of inputs
	told           int       // how many were
	compared, next bool      // the values of this step, and of the next one, are compared, too: see CompareNext
}

// Number is one of the host that ranks along Axes must give an operation alike.
type Number struct {
	Axes   layout.Axes
	Digest uint64
}

// ComparedSteps is in how many steps of a tape the values of inputs are compared in any case.
const ComparedSteps = 2

// batches is the numbers of a step's batches.
type batches struct {
	last   int
	digest uint64
}

// Agreement returns what the step must have alike on ranks that differ along the given axes. r is its rows.
func (s *Step) Agreement(seed, step uint64, r *layout.Batch, along layout.Axes) Agreement {
	a := Agreement{Seed: seed, Step: step, Batch: s.numbers.last, Batches: s.numbers.digest,
		Total: r.Total, SeqTotal: r.Seq.Total, Count: s.count, Counts: s.counts, Rate: s.rate, Frozen: s.frozen}
	if r.Seq.Total == 0 { // tables of positions differ rightly
		a.Inputs = s.inputs
		if r.Total != 0 { // the step has a batch
			a.Params = s.params
		}
	}
	if along != 0 && along&s.Over == 0 {
		a.First, a.N, a.Seq, a.Values = r.First, r.N, r.Seq, s.values
		for _, n := range s.Numbers { // a sum: the order says nothing
			if along&^n.Axes == 0 {
				a.Numbers += n.Digest
			}
		}
	}
	return a
}

// Agree notes a number that all ranks use, and reports whether it is another one than the last.
func (s *Step) Agree(number float64) bool {
	if s.counts != 0 && number == s.count {
		return false
	}
	s.count, s.counts = number, kernel.Key(s.counts, math.Float64bits(number))
	if n := s.numAgreed; n < len(s.agreed) && !slices.Contains(s.agreed[:n], number) {
		s.agreed[n] = number
		s.numAgreed++
	}
	return true
}

// Count returns the last number of Agree, if there is one.
func (s *Step) Count() (number float64, ok bool) { return s.count, s.counts != 0 }

// Agreed returns the different numbers of Agree. It is valid until the next Backward. all is false if there are more.
func (s *Step) Agreed() (numbers []float64, all bool) {
	return s.agreed[:s.numAgreed], s.numAgreed < len(s.agreed)
}

// Stepped notes the learning rate of an optimizer's step, and a digest of which of its parameters are frozen.
func (s *Step) Stepped(rate float64, frozen uint64) { s.rate, s.frozen = rate, frozen }

// Batch notes the number of a batch. Its microbatches and targets have the same one.
func (s *Step) Batch(number int) { s.numbers.add(number) }

func (n *batches) add(number int) {
	if number != 0 && number != n.last {
		n.last, n.digest = number, kernel.Key(n.digest, uint64(number))
	}
}

// Compared reports whether the values of this step are compared.
func (s *Step) Compared() bool { return s.Steps < ComparedSteps || s.compared }

// Asked reports whether CompareNext was called in the step before.
func (s *Step) Asked() bool { return s.compared }

// CompareNext makes the next step one whose values are compared.
func (s *Step) CompareNext() { s.next = true }

// Value notes the digest of an input.
func (s *Step) Value(sum uint64) { s.values = kernel.Key(s.values, sum) }

// Input notes the digest of an input without Rows, which all ranks must have alike.
func (s *Step) Input(sum uint64) {
	s.inputs += sum
	s.recent[s.told%len(s.recent)] = sum
	s.told++
}

// Forget takes back one of the last calls of Input, if there was one with this digest.
func (s *Step) Forget(sum func() uint64) {
	if s.inputs == 0 {
		return
	}
	if i := slices.Index(s.recent[:], sum()); i >= 0 {
		s.inputs, s.recent[i] = s.inputs-s.recent[i], 0
	}
}

// Param notes the digest of a parameter that nobody owns, such as a teacher's.
func (s *Step) Param(sum uint64) { s.params += sum }

// Reset drops what belongs to a step that ended or was given up.
func (s *Step) Reset() {
	*s = Step{numbers: s.kept, kept: s.kept, Over: s.Over, Steps: s.Steps, compared: s.compared, rate: s.rate, frozen: s.frozen,
		Numbers: s.Numbers[:0]}
}

// Backward notes the end of a Backward.
func (s *Step) Backward(more bool) {
	if more {
		s.kept = s.numbers
	} else {
		s.kept, s.rate, s.frozen, s.Steps = batches{}, 0, 0, min(s.Steps+1, ComparedSteps)
		s.compared, s.next = s.next, false
	}
	s.numbers, s.count, s.counts, s.inputs, s.params, s.values, s.recent = s.kept, 0, 0, 0, 0, 0, [4]uint64{}
	s.numAgreed, s.Numbers = 0, s.Numbers[:0]
}

// Digest returns a digest of elements of size bytes each. It is 0 for zeros, which say nothing: a rank without rows may have none.
func Digest(b []byte, size int) uint64 {
	if bytes.Equal(b[size:], b[:len(b)-size]) { // all elements are equal: their number may depend on the rows
		b = b[:size]
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return 0
	}
	return kernel.Key(crc64.Checksum(b, table))
}

var table = crc64.MakeTable(crc64.ECMA)
