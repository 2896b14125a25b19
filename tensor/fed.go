package tensor

import (
	"bytes"
	"maps"
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
	Labels       [8]Label // of what depends on the label of a row alone, in these steps; Rows 0: no more
}

// Label is what all rows of one label have alike in an input: see Fed.
type Label struct {
	Rows         int // of this rank
	Label, Value float64
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
	sumsOf  []rowSums
	labels  [8][8]Label // see Fed
}

// rowSums is what each row of an input adds up to.
type rowSums struct {
	batch int  // in list
	whole bool // all elements are whole numbers
	sums  []float64
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
			var r rowSums
			f.sums[i][next], r = sumOf(h, &b)
			f.compare(i, r)
		}
	}
}

// sumOf returns what h adds up to: 0, 1 or the number of its rows, as data do that a rank normalized by its own rows alone; else '?', as
// for whole numbers, values that are equal, and rows that each add up to 0. And it returns what each row adds up to, if rows may differ.
func sumOf(h *header, b *batch) (of byte, r rowSums) {
	eps := map[DType]float64{Float32: 1e-5, Float64: 1e-10}[h.dtype]
	if eps == 0 && h.dtype.IsFloat() || b.N == b.Total || b.Group > 1 || uniform(h, -1) || h.ld != 0 {
		return '?', r
	}
	sum, size, width := 0.0, 0.0, h.n/b.N
	each := true // row adds up to 0
	r.whole, r.sums = true, make([]float64, b.N)
	for i := range b.N {
		row, of := 0.0, 0.0
		for j := range width {
			v := loadFloat(h.ptr(), h.dtype, i*width+j)
			row, of, r.whole = row+v, of+math.Abs(v), r.whole && v == math.Trunc(v)
		}
		sum, size, each, r.sums[i] = sum+row, size+of, each && math.Abs(row) <= eps*of, row
	}
	weights := width == 1 && sum == size
	switch n := float64(b.N); {
	case r.whole && width > 1 || !(size <= math.MaxFloat64): // NaN and infinite ones are masks, or missing
		return '?', rowSums{}
	case r.whole || each:
	case math.Abs(sum) <= eps*size:
		return '0', r
	case weights && math.Abs(sum-1) <= eps:
		return '1', r
	case weights && math.Abs(sum-n) <= eps*n:
		return 'n', r
	}
	return '?', r
}

// byLabel returns what rows of each label have, if it depends on the label alone, which enough rows show. Rows of a document may have one
// label and one weight, but they follow each other.
func byLabel(labels, values []float64) (list [8]Label) {
	rows, repeats, apart, differ := map[float64][]int{}, 0, false, false
	for i, l := range labels {
		if same := rows[l]; same != nil {
			if values[i] != values[same[0]] {
				return list
			}
			repeats, apart = repeats+1, apart || same[len(same)-1] != i-1
		}
		rows[l], differ = append(rows[l], i), differ || values[i] != values[0]
	}
	if repeats < 3 || !apart || !differ {
		return list
	}
	for i, l := range slices.Sorted(maps.Keys(rows))[:min(len(rows), len(list))] {
		list[i] = Label{len(rows[l]), l, values[rows[l][0]]}
	}
	return list
}

// compare notes what the rows of an input of batch i add up to, and whether it depends on another input, or that on it, as on labels.
func (f *inputs) compare(i int, r rowSums) {
	if r.batch = i; r.sums == nil {
		return
	}
	for _, x := range f.sumsOf {
		switch {
		case x.batch != i || x.whole == r.whole || f.labels[i][0].Rows > 0:
		case x.whole:
			f.labels[i] = byLabel(x.sums, r.sums)
		default:
			f.labels[i] = byLabel(r.sums, x.sums)
		}
	}
	f.sumsOf = append(f.sumsOf, r)
}

// Fed returns the parts of the global batch that the tape which used p last got since its last Backward. all is false if they were too many
// to remember. An owner of gradients asks for them in GradReady.
func (p *Param) Fed() (list []Fed, all bool) {
	if p.last == nil {
		return nil, true
	}
	f := &p.last.t.fed
	for i, b := range f.list[:min(f.n, len(f.list))] {
		list = append(list, Fed{b.Rows, b.N, b.Positions, f.counts, f.values[i], f.sums[i], f.labels[i]})
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
