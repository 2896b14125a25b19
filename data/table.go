package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/columns"
	"github.com/ringo-ml/ringo/tensor"
)

// Table is a Dataset of the rows of a table in memory. x is the float32 numbers of its columns. y is one float32 number, [1], or, with
// labels, the number of a class, int64.
type Table struct {
	*Tensors
	Columns []string // of x
	Target  string   // of y; "": there is none, and y is 0
	Classes []string // the name of each class; nil without labels

	Categories map[string][]string // of the columns of x that have names: x is the place of the name in this list; "" is a missing one
	Skipped    Skipped             // rows that were left out
}

// textRows are those of a table in a text.
type textRows struct {
	names   []string
	x       []int // columns
	y       int
	columns []int     // that are read: x, then y
	to      []int     // of each column, where its number is in a row of x; len(x): it is y; -1: it is another text, or not read
	zeros   []float32 // a row
	xs, ys  []float32
	labeled bool // y is a class
	labels  *columns.Labels
	missing bool // values may be
	none    bool // there is no target: y is 0
	skipped Skipped

	categories map[int]*columns.Labels // of columns
}

func newTextRows(none, labeled bool, classes []string, missing bool, budget *bounded.Budget) (r textRows, err error) {
	r.none, r.labeled, r.missing = none, (labeled || classes != nil) && !none, missing
	r.labels, err = columns.NewLabels(classes, budget)
	return r, err
}

// choose selects the columns of x, the target, and the columns of x that have names.
func (r *textRows) choose(x []string, target string, categories []string, budget *bounded.Budget) error {
	there := target != "" && slices.Contains(r.names, target)
	xs, y, err := columns.Select(r.names, x, target, nil)
	switch {
	case r.none && !there:
		xs, err = columns.Inputs(r.names, x)
	case err != nil && target != "" && !there:
		err = fmt.Errorf("%w; NoTarget is for rows without one", err)
	}
	if err != nil {
		return err
	}
	if r.none {
		y = -1
	}
	r.x, r.y, r.columns, r.zeros = xs, y, xs, make([]float32, len(xs))
	r.categories, err = columns.Categories(r.names, xs, categories, r.missing, budget)
	r.to = slices.Repeat([]int{-1}, len(r.names))
	if !r.none {
		r.columns = append(slices.Clip(xs), y)
		if !r.labeled {
			r.to[y] = len(xs)
		}
	}
	for k, i := range xs {
		if r.categories[i] == nil {
			r.to[i] = k
		}
	}
	return err
}

// reserve makes room for so many times as many rows, and some more, so that they are not copied as they grow.
func (r *textRows) reserve(times float64) {
	more := int(1.05 * (times - 1) * float64(r.len()))
	r.xs = slices.Grow(r.xs, max(0, more*len(r.x)))
	if !r.labeled {
		r.ys = slices.Grow(r.ys, max(0, more))
	}
}

// skip leaves out what an unfinished row has added, and counts it.
func (r *textRows) skip(err error) {
	r.skipped.add(err)
	r.cut(r.len())
}

// cut leaves so many rows.
func (r *textRows) cut(n int) {
	r.xs, r.ys, r.labels.Y = r.xs[:n*len(r.x)], r.ys[:min(len(r.ys), n)], r.labels.Y[:min(len(r.labels.Y), n)]
	for _, c := range r.categories {
		c.Y = c.Y[:n]
	}
}

// add adds a sample. An error is about a field of a column.
func (r *textRows) add(fields []string) (column int, err error) {
	at := len(r.xs)
	r.xs = append(r.xs, r.zeros...)
	for _, i := range r.columns {
		if err := r.read(at, i, fields[i]); err != nil {
			return i, err
		}
	}
	if r.none {
		r.ys = append(r.ys, 0)
	}
	return 0, nil
}

// read adds a field of the row of x that begins at. Names have their numbers at the end.
func (r *textRows) read(at, column int, field string) error {
	text, what, list := strings.TrimSpace(field), "", r.categories[column]
	switch to := r.to[column]; {
	case to >= 0 && to < len(r.x) && r.missing && columns.IsMissing(text):
		r.xs[at+to] = float32(math.NaN())
		return nil
	case to >= 0:
		v, err := number(text)
		if err == nil {
			r.put(at, to, v)
		}
		return err
	case column == r.y:
		what, list = "the label ", r.labels
	case list == nil:
		return nil
	}
	if err := checkText(text); err != nil {
		return fmt.Errorf("%s%s %w", what, bounded.Quote(text), err)
	}
	return list.Add(text)
}

// put sets a number of the row of x that begins at, or of y.
func (r *textRows) put(at, to int, v float32) {
	if to < len(r.x) {
		r.xs[at+to] = v
	} else {
		r.ys = append(r.ys, v)
	}
}

// len returns the number of whole rows.
func (r *textRows) len() int { return max(len(r.ys), len(r.labels.Y)) }

// wayOut adds to an error of add what to do with words.
func (r *textRows) wayOut(column int, err error) error {
	switch {
	case !errors.Is(err, errNoNumber):
		return err
	case column == r.y:
		return fmt.Errorf("%w; Labels is for names of classes", err)
	}
	return fmt.Errorf("%w; Columns can leave the column out, and Categories is for names", err)
}

var errNoNumber = errors.New("is not a number")

// separators are in numbers that people read.
var separators = strings.NewReplacer(",", "", "'", "", "_", "", " ", "", "\u00a0", "", "\u202f", "")

// powers of 10 that a float64 has exactly.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}

// decimal parses the number that a text begins with, of n bytes: digits with a point, and maybe a minus sign, as most files have them. n is
// 0 for others, which are left to number, as are those whose float32 it does not know: a whole number of 8 digits, and what a float64,
// which is off by less than 2 of its last places, has near the middle between two float32 numbers.
func decimal(text string) (v float32, n int) {
	digits, point, from := uint64(0), -1, 0
	if text != "" && text[0] == '-' {
		from = 1
	}
	for n = from; n < len(text); n++ {
		if c := text[n] - '0'; c <= 9 {
			digits = 10*digits + uint64(c)
			continue
		} else if text[n] != '.' || point >= 0 {
			break
		}
		for point = n; n+8 < len(text); n += 8 {
			eight, ok := eightDigits(text[n+1:])
			if !ok {
				break
			}
			digits = 1e8*digits + eight
		}
	}
	size, places := n-from, n-1-point
	switch {
	case size > 20 || size == 0 || point < 0 && size > 7 || point >= 0 && size == 1: // 20, with the point, so that digits cannot overflow
		return 0, 0
	case point < 0:
		places = 0
	}
	x := float64(digits) / powers[places]
	const middle = 1 << 28 // of the 29 bits that a float32 has not
	if off := int64(math.Float64bits(x)&(2*middle-1)) - middle; -2 <= off && off <= 2 {
		return 0, 0
	}
	if from > 0 {
		x = -x
	}
	return float32(x), n
}

// eightDigits returns the number of the first 8 bytes of a text, if they are digits: two of them at a time, then four, then eight.
func eightDigits(text string) (v uint64, ok bool) {
	_ = text[7]
	v = uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 | uint64(text[4])<<32 | uint64(text[5])<<40 |
		uint64(text[6])<<48 | uint64(text[7])<<56 // one load
	v -= 0x3030303030303030
	if (v|(v+0x7676767676767676))&0x8080808080808080 != 0 {
		return 0, false
	}
	v = 10*v + v>>8
	const pairs = 0x000000ff000000ff
	return (v&pairs*(100+1e6<<32) + v>>16&pairs*(1+1e4<<32)) >> 32 & (1<<32 - 1), true
}

// number parses a finite float32. A whole number must be one.
func number(field string) (float32, error) {
	if v, n := decimal(field); n > 0 && n == len(field) {
		return v, nil
	}
	field = strings.TrimSpace(field)
	v, err := strconv.ParseFloat(field, 32)
	if strings.ContainsAny(field, "_xX") { // Go's own notations
		err = strconv.ErrSyntax
	}
	switch {
	case field == "":
		return 0, errors.New("no value: fill it in, or remove the row")
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is out of the range of float32: divide the column", bounded.Quote(field))
	case err != nil:
		if err := checkText(field); err != nil {
			return 0, fmt.Errorf("%s %w", bounded.Quote(field), err)
		}
		plain := separators.Replace(field)
		if _, err := strconv.ParseFloat(plain, 32); err == nil && plain != field {
			return 0, fmt.Errorf("%s is not a number: write a decimal point, and no separators of thousands", bounded.Quote(field))
		}
		return 0, fmt.Errorf("%s %w", bounded.Quote(field), errNoNumber)
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, fmt.Errorf("%s is not a finite number: replace it, or remove the row", bounded.Quote(field))
	}
	digits := strings.TrimLeft(field, "+-0")
	if len(digits) < 8 || strings.Trim(digits, "0123456789") != "" { // whole numbers of 7 digits fit
		return float32(v), nil
	}
	if strconv.FormatFloat(math.Abs(v), 'f', 0, 64) != digits {
		return 0, columns.Rounded(bounded.Plain(field), float32(v))
	}
	return float32(v), nil
}

// table returns all rows.
func (r *textRows) table() (*Table, error) {
	n := r.len()
	if n == 0 && r.skipped.Count > 0 {
		return nil, fmt.Errorf("no rows: %v", r.skipped)
	}
	if n == 0 {
		return nil, errors.New("no rows")
	}
	t := &Table{Skipped: r.skipped}
	if !r.none {
		t.Target = r.names[r.y]
	}
	for k, i := range r.x {
		t.Columns = append(t.Columns, r.names[i])
		if c := r.categories[i]; c != nil {
			if t.Categories == nil {
				t.Categories = map[string][]string{}
			}
			t.Categories[r.names[i]] = c.Fill(r.xs, len(r.x), k)
		}
	}
	x, y := tensor.FromSlice(r.xs, n, len(r.x)), tensor.Tensor{}
	if r.labeled {
		t.Classes = r.labels.Done()
		y = tensor.FromSlice(r.labels.Y, n)
	} else {
		y = tensor.FromSlice(r.ys, n, 1)
	}
	var err error
	t.Tensors, err = NewTensors(x, y)
	return t, err
}
