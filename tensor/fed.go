package tensor

import (
	"bytes"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
)

// Fed is a rectangle of the global batch that a tape got as input: N rows and, if Rows.Seq is set, Positions of each.
type Fed struct {
	Rows
	N, Positions int
	Counts       [4]int   // different global numbers of elements by which losses divided; the last is −1 if there are more
	Values       uint64   // a digest of the inputs with these rows, in steps that are compared; 0: not known, or all rows are equal
	Sums         [16]byte // what each of the first inputs with these rows adds up to, in these steps: '0', '1', their number 'n', or else '?'
}

// inputs holds the different rectangles since the last Backward. If there is no room for all, the rest is forgotten.
type inputs struct {
	n       int
	list    [8]batch
	values  [8]uint64   // see Fed
	sums    [8][16]byte // see Fed
	counts  [4]int      // see Fed
	factors []Factor    // see Param.Factors
	asked   bool        // GlobalCount was called
}

func (f *inputs) reset() {
	*f = inputs{factors: f.factors[:0]}
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

// tell notes the values of h, an input with rows: ranks with other rows that have the same read the same data. sum is a digest.
func (f *inputs) tell(h *header, sum uint64) {
	b := batchOfInput(h)
	if b.N < 2 {
		return
	}
	for i := range f.list[:min(f.n, len(f.list))] {
		if c := &f.list[i]; c.First != b.First || c.Stride != b.Stride || c.Total != b.Total || c.N != b.N {
			continue
		}
		if h.n > b.N && !uniform(h, 0) { // rows of several numbers each
			f.values[i] = kernel.Key(f.values[i], sum)
		}
		if next := bytes.IndexByte(f.sums[i][:], 0); next >= 0 {
			f.sums[i][next] = sumOf(h, &b)
		}
	}
}

// sumOf returns what h adds up to: 0, 1 or the number of its rows, as data do that a rank normalized by its own rows alone; else '?', as
// for whole numbers, values that are equal, and rows that each add up to 0.
func sumOf(h *header, b *batch) byte {
	eps := map[DType]float64{Float32: 1e-5, Float64: 1e-10}[h.dtype]
	if eps == 0 || b.N == b.Total || b.Group > 1 || uniform(h, -1) || h.ld != 0 {
		return '?'
	}
	sum, size, width := 0.0, 0.0, h.n/b.N
	whole, each := true, true // all values are whole numbers; each row adds up to 0
	for i := range b.N {
		row, of := 0.0, 0.0
		for j := range width {
			v := loadFloat(h.ptr(), h.dtype, i*width+j)
			row, of, whole = row+v, of+math.Abs(v), whole && v == math.Trunc(v)
		}
		sum, size, each = sum+row, size+of, each && math.Abs(row) <= eps*of
	}
	weights := width == 1 && sum == size
	switch n := float64(b.N); {
	case whole || each:
	case math.Abs(sum) <= eps*size:
		return '0'
	case weights && math.Abs(sum-1) <= eps:
		return '1'
	case weights && math.Abs(sum-n) <= eps*n:
		return 'n'
	}
	return '?'
}

// Fed returns the parts of the global batch that the tape which used p last got since its last Backward. all is false if they were too many
// to remember. An owner of gradients asks for them in GradReady.
func (p *Param) Fed() (list []Fed, all bool) {
	if p.last == nil {
		return nil, true
	}
	f := &p.last.t.fed
	for i, b := range f.list[:min(f.n, len(f.list))] {
		list = append(list, Fed{b.Rows, b.N, b.Positions, f.counts, f.values[i], f.sums[i]})
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
