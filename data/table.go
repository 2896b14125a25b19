package data

import (
	"errors"
	"fmt"
	"math"
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
	Target  string   // of y
	Classes []string // the name of each class; nil without labels
}

// textRows are those of a table in a text.
type textRows struct {
	names   []string
	x       []int // columns
	y       int
	xs, ys  []float32
	labeled bool // y is a class
	labels  *columns.Labels
}

func newTextRows(labeled bool, classes []string, budget *bounded.Budget) (r textRows, err error) {
	r.labeled = labeled || classes != nil
	r.labels, err = columns.NewLabels(classes, budget)
	return r, err
}

// add adds a sample. An error is about a field of a column.
func (r *textRows) add(fields []string) (column int, err error) {
	for _, i := range r.x {
		v, err := number(fields[i])
		if err != nil {
			return i, err
		}
		r.xs = append(r.xs, v)
	}
	if r.labeled {
		label := strings.TrimSpace(fields[r.y])
		if err := checkText(label); err != nil {
			return r.y, fmt.Errorf("the label %s %w", bounded.Quote(label), err)
		}
		return r.y, r.labels.Add(label)
	}
	v, err := number(fields[r.y])
	r.ys = append(r.ys, v)
	return r.y, err
}

// wayOut adds to an error of add what to do with words.
func (r *textRows) wayOut(column int, err error) error {
	switch {
	case !errors.Is(err, errNoNumber):
		return err
	case column == r.y:
		return fmt.Errorf("%w; Labels is for names of classes", err)
	}
	return fmt.Errorf("%w; Columns can leave the column out", err)
}

var errNoNumber = errors.New("is not a number")

// separators are in numbers that people read.
var separators = strings.NewReplacer(",", "", "'", "", "_", "", " ", "", "\u00a0", "", "\u202f", "")

// number parses a finite float32. A whole number must be one.
func number(field string) (float32, error) {
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
	n := max(len(r.ys), len(r.labels.Y))
	if n == 0 {
		return nil, errors.New("no rows")
	}
	t := &Table{Target: r.names[r.y]}
	for _, i := range r.x {
		t.Columns = append(t.Columns, r.names[i])
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
