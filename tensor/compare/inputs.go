package compare

import (
	"bytes"
	"maps"
	"math"
	"slices"

	"github.com/ringo-ml/ringo/internal/kernel"
	"github.com/ringo-ml/ringo/layout"
)

// Fed is a rectangle of the global batch that a tape got as input: N rows and, if Rows.Seq is set, Positions of each.
type Fed struct {
	layout.Rows
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

// Inputs holds the different rectangles that a tape got. If there is no room for all, the rest is forgotten.
type Inputs struct {
	n      int
	list   [8]layout.Batch
	values [8]uint64   // see Fed
	sums   [8][16]byte // see Fed
	counts [4]int      // see Fed
	sumsOf []rowSums
	labels [8][8]Label // see Fed
	alike  bool        // see Alike
}

// Alike is the Number of rectangles of any batch but the first one of a data.Loader. They take the place of those of each batch where there
// is no room for these: most programs divide all of them alike.
const Alike = -1

// Values are the elements of an input, row after row.
type Values struct {
	Batch           layout.Batch // which rows they are
	Len             int
	Digest          uint64
	Equal, SameRows bool                // all elements, or rows, are equal
	At              func(i int) float64 // element i; nil: what they add up to is not looked at
	Rounding        float64             // how far sums of floats may be from what they should be, relative to the elements
}

// rowSums is what each row of an input adds up to.
type rowSums struct {
	batch int  // in list
	whole bool // all elements are whole numbers
	sums  []float64
}

// Reset forgets all.
func (f *Inputs) Reset() { *f = Inputs{} }

// DividedBy notes what a loss divided by.
func (f *Inputs) DividedBy(count int) {
	for i, c := range f.counts {
		if c == 0 || c == count {
			f.counts[i] = count
			return
		}
	}
	f.counts[len(f.counts)-1] = -1
}

// Add notes a rectangle.
func (f *Inputs) Add(b layout.Batch) {
	if f.n == len(f.list) && !f.alike && !slices.Contains(f.list[:], b) {
		f.takeAlike()
	}
	switch b = f.numbered(b); {
	case f.n > len(f.list) || slices.Contains(f.list[:f.n], b):
	case f.n == len(f.list):
		f.n++
	default:
		f.list[f.n] = b
		f.n++
	}
}

// numbered returns b as the list has it.
func (f *Inputs) numbered(b layout.Batch) layout.Batch {
	if f.alike && b.Number > 1 {
		b.Number = Alike
	}
	return b
}

// takeAlike makes room: see Alike.
func (f *Inputs) takeAlike() {
	all := *f
	*f = Inputs{alike: true, counts: all.counts}
	for i, b := range all.list {
		b = f.numbered(b)
		at := slices.Index(f.list[:f.n], b)
		if at < 0 {
			at = f.n
			f.list[at], f.values[at], f.sums[at], f.labels[at] = b, all.values[i], all.sums[i], all.labels[i]
			f.n++
		} else if all.values[i] != 0 {
			f.values[at] = kernel.Key(f.values[at], all.values[i])
		}
	}
}

// Tell notes the values of an input with rows: ranks with other rows that have the same read the same data.
func (f *Inputs) Tell(x *Values) {
	b := f.numbered(x.Batch)
	if b.N < 2 {
		return
	}
	for i := range f.list[:min(f.n, len(f.list))] {
		if c := &f.list[i]; c.First != b.First || c.Stride != b.Stride || c.Total != b.Total || c.N != b.N || c.Number != b.Number {
			continue
		}
		if x.Len > b.N && !x.SameRows { // rows of several numbers each
			f.values[i] = kernel.Key(f.values[i], x.Digest)
		}
		if next := bytes.IndexByte(f.sums[i][:], 0); next >= 0 {
			var r rowSums
			f.sums[i][next], r = x.sumOf()
			f.compare(i, r)
		}
	}
}

// sumOf returns what an input adds up to: 0, 1 or the number of its rows, as data do that a rank normalized by its own rows alone; else
// '?', as for whole numbers, values that are equal, and rows that each add up to 0. And it returns what each row adds up to, if rows may
// differ.
func (x *Values) sumOf() (of byte, r rowSums) {
	b, eps := &x.Batch, x.Rounding
	if x.At == nil || b.N == b.Total || b.Group > 1 || x.Equal {
		return '?', r
	}
	sum, size, width := 0.0, 0.0, x.Len/b.N
	each := true // row adds up to 0
	r.whole, r.sums = true, make([]float64, b.N)
	for i := range b.N {
		row, of := 0.0, 0.0
		for j := range width {
			v := x.At(i*width + j)
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
func (f *Inputs) compare(i int, r rowSums) {
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

// Batches returns the rectangles, which Reset forgets. all is false if they were too many to remember.
func (f *Inputs) Batches() (list []layout.Batch, all bool) {
	return f.list[:min(f.n, len(f.list))], f.n <= len(f.list)
}

// Fed returns the rectangles with what is known of their inputs. all is false if they were too many to remember.
func (f *Inputs) Fed() (list []Fed, all bool) {
	batches, all := f.Batches()
	for i, b := range batches {
		list = append(list, Fed{b.Rows, b.N, b.Positions, f.counts, f.values[i], f.sums[i], f.labels[i]})
	}
	return list, all
}
