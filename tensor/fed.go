package tensor

import (
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// Fed is a rectangle of the global batch that a tape got as input: N rows and, if Rows.Seq is set, Positions of each.
type Fed struct {
	Rows
	N, Positions int
	Counts       [4]int // different global numbers of elements by which losses divided; the last is −1 if there are more
	Values       uint64 // a digest of the inputs with these rows, in steps that are compared; 0: not known, or all rows are equal
}

// inputs holds the different rectangles since the last Backward. If there is no room for all, the rest is forgotten.
type inputs struct {
	n       int
	list    [8]batch
	values  [8]uint64 // see Fed
	counts  [4]int    // see Fed
	factors []Factor  // see Param.Factors
	asked   bool      // GlobalCount was called
}

func (f *inputs) reset() {
	f.n, f.values, f.counts, f.factors, f.asked = 0, [8]uint64{}, [4]int{}, f.factors[:0], false
}

// dividedBy notes what a loss divided by.
func (f *inputs) dividedBy(count int) {
	for i, c := range f.counts {
		if c == 0 || c == count {
			f.counts[i] = count
			return
		}
	}
	f.counts[len(f.counts)-1] = -1
}

func (f *inputs) add(b batch) {
	if b.Number > 1 { // all batches are divided alike, but for the first one of a data.Loader
		b.Number = 0
	}
	switch {
	case f.n > len(f.list) || slices.Contains(f.list[:f.n], b):
	case f.n == len(f.list):
		f.n++
	default:
		f.list[f.n] = b
		f.n++
	}
}

// tell notes the values of h, an input with rows of several numbers each: ranks with other rows that have the same read the same data.
func (f *inputs) tell(h *header, sum uint64) {
	b := batchOfInput(h)
	if h.n <= b.N || b.N < 2 || uniform(h, 0) {
		return
	}
	for i := range f.list[:min(f.n, len(f.list))] {
		if c := &f.list[i]; c.First == b.First && c.Stride == b.Stride && c.Total == b.Total && c.N == b.N {
			f.values[i] = kernel.Key(f.values[i], sum)
		}
	}
}

// Fed returns the parts of the global batch that the tape which used p last got since its last Backward. all is false if they were too many
// to remember. An owner of gradients asks for them in GradReady.
func (p *Param) Fed() (list []Fed, all bool) {
	if p.last == nil {
		return nil, true
	}
	f := &p.last.t.fed
	for i, b := range f.list[:min(f.n, len(f.list))] {
		list = append(list, Fed{b.Rows, b.N, b.Positions, f.counts, f.values[i]})
	}
	return list, f.n <= len(f.list)
}

// Factors returns the different factors of the tape that used p last, since its last Backward: valid until the next one. If there were too
// many to remember, the last is of ManyFactors.
func (p *Param) Factors() []Factor {
	if p.last == nil {
		return nil
	}
	list := p.last.t.fed.factors
	for i := range list {
		if f := &list[i]; f.from != 0 {
			f.At, f.from = p.last.t.lineOf(f.from), 0
		}
	}
	return list
}

// Tape returns the tape whose Backward runs, if it was the last one to use p; otherwise nil. An owner of gradients asks in BackwardBegin.
func (p *Param) Tape() *Tape {
	if p.last == nil || !p.last.t.inBackward {
		return nil
	}
	return p.last.t
}
