package parquet

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/columns"
	"github.com/ringo-ml/ringo/tensor"
)

// Config says which columns make a sample.
type Config struct {
	Columns []string // of x, in this order; nil: all but Target
	Target  string   // the column of y; "": the last one
	Labels  bool     // Target names classes, as text or integers: y is the number of a class
	Classes []string // Labels has these numbers, such as Table.Classes of the training set; nil: the classes in the file
}

// Read reads columns of a file into memory, like data.CSV: booleans (0 and 1), integers, float and double. Nulls, NaN, infinities and
// numbers too large for a float32 are errors with row and column. Columns of other types, such as dates, and nested columns are errors,
// too. The first row is 0, as for samples.
func Read(file string, cfg Config) (*data.Table, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("data/parquet: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("data/parquet: %s is not a regular file", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("data/parquet: %w", err)
	}
	defer f.Close()
	t, err := read(f, info.Size(), cfg)
	if err != nil {
		return nil, fmt.Errorf("data/parquet: %s: %w", file, err)
	}
	return t, nil
}

type reader struct {
	cfg    Config
	from   io.ReaderAt
	size   int64
	f      *pq.File
	names  []string
	x      []int // columns
	y      int
	n      int // rows read
	xs, ys []float32
	labels *columns.Labels
}

func read(from io.ReaderAt, size int64, cfg Config) (t *data.Table, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Parquet library panicked, the file is broken: %v", r)
		}
	}()
	r := &reader{cfg: cfg, from: from, size: size}
	if r.labels, err = columns.NewLabels(cfg.Classes); err != nil {
		return nil, err
	}
	if err := checkFooter(from, size); err != nil {
		return nil, err
	}
	if r.f, err = pq.OpenFile(from, size, pq.SkipPageIndex(true), pq.SkipBloomFilters(true)); err != nil {
		return nil, err
	}
	for _, c := range r.f.Root().Columns() {
		r.names = append(r.names, c.Name())
	}
	if r.x, r.y, err = columns.Select(r.names, cfg.Columns, cfg.Target); err != nil {
		return nil, err
	}
	for i := range r.f.RowGroups() {
		if err := r.group(i); err != nil {
			return nil, err
		}
	}
	if int64(r.n) != r.f.NumRows() {
		return nil, fmt.Errorf("%d rows, the footer says %d", r.n, r.f.NumRows())
	}
	return r.table()
}

func (r *reader) labeled() bool { return r.cfg.Labels || r.cfg.Classes != nil }

// group reads a row group, column after column.
func (r *reader) group(i int) error {
	n := -1
	var xs [][]float32
	for _, c := range append(r.x[:len(r.x):len(r.x)], r.y) {
		var got []float32
		var rows int
		var err error
		if c == r.y && r.labeled() {
			rows, err = r.column(i, c, r.label)
		} else {
			rows, err = r.column(i, c, func(c *pq.Column) (func(pq.Value) error, error) { return number(c, &got) })
		}
		if err != nil {
			return err
		}
		if n >= 0 && rows != n {
			return fmt.Errorf("row group %d: column %q has %d rows, %q has %d", i, r.names[c], rows, r.names[r.x[0]], n)
		}
		n, xs = rows, append(xs, got)
	}
	if want := r.f.RowGroups()[i].NumRows(); int64(n) != want {
		return fmt.Errorf("row group %d has %d rows, the footer says %d", i, n, want)
	}
	for row := range n {
		for c := range r.x {
			r.xs = append(r.xs, xs[c][row])
		}
	}
	r.ys = append(r.ys, xs[len(r.x)]...)
	r.n += n
	return nil
}

// column reads a column of a row group, and returns the number of its rows.
func (r *reader) column(group, c int, taker func(*pq.Column) (func(pq.Value) error, error)) (rows int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("column %q: %w", r.names[c], err)
		}
	}()
	column := r.f.Root().Columns()[c]
	if !column.Leaf() || column.Repeated() {
		return 0, errors.New("holds lists or groups: want one value a row")
	}
	take, err := taker(column)
	if err != nil {
		return 0, err
	}
	if err := r.checkPages(&r.f.Metadata().RowGroups[group].Columns[column.Index()].MetaData); err != nil {
		return 0, fmt.Errorf("row group %d: %w", group, err)
	}
	pages := r.f.RowGroups()[group].ColumnChunks()[column.Index()].Pages()
	defer pages.Close()
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return 0, fmt.Errorf("row group %d: %w", group, err)
		}
		n, err := r.page(page, rows, take)
		pq.Release(page)
		if err != nil {
			return 0, err
		}
		rows += n
	}
}

// page reads the values of a page; first is its first row in the group.
func (r *reader) page(page pq.Page, first int, take func(pq.Value) error) (rows int, err error) {
	values := page.Values()
	var some [256]pq.Value
	for {
		n, err := values.ReadValues(some[:])
		for _, v := range some[:n] {
			problem := errors.New("no value")
			if !v.IsNull() {
				problem = take(v)
			}
			if problem != nil {
				return 0, fmt.Errorf("row %d: %w", r.n+first+rows, problem)
			}
			rows++
		}
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return 0, fmt.Errorf("row %d: %w", r.n+first+rows, err)
		}
		if n == 0 {
			return 0, fmt.Errorf("row %d: %w", r.n+first+rows, io.ErrNoProgress)
		}
	}
}

// typeOf names the type of a column: its logical type or, if it has none, its physical type, with a U for unsigned integers.
func typeOf(c *pq.Column) string {
	kind := c.Type().Kind().String()
	if l := c.Type().LogicalType(); l != nil && l.Value != nil {
		whole, ok := l.Value.(*format.IntType)
		switch {
		case !ok:
			return l.String()
		case !whole.IsSigned:
			return "U" + kind
		}
		return kind
	}
	if old := c.Type().ConvertedType(); old != nil {
		return fmt.Sprintf("%s as %v", kind, *old)
	}
	return kind
}

// number returns a function that appends a column's values to a list.
func number(c *pq.Column, list *[]float32) (func(pq.Value) error, error) {
	value, known := map[string]func(pq.Value) float64{
		"BOOLEAN": func(v pq.Value) float64 {
			if v.Boolean() {
				return 1
			}
			return 0
		},
		"INT32":  func(v pq.Value) float64 { return float64(v.Int32()) },
		"INT64":  func(v pq.Value) float64 { return float64(v.Int64()) },
		"UINT32": func(v pq.Value) float64 { return float64(v.Uint32()) },
		"UINT64": func(v pq.Value) float64 { return float64(v.Uint64()) },
		"FLOAT":  func(v pq.Value) float64 { return float64(v.Float()) },
		"DOUBLE": pq.Value.Double,
	}[typeOf(c)]
	if !known {
		return nil, fmt.Errorf("holds %s: want numbers", typeOf(c))
	}
	return func(v pq.Value) error {
		x := value(v)
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return fmt.Errorf("%v is not a finite number", x)
		case math.IsInf(float64(float32(x)), 0):
			return fmt.Errorf("%v is out of the range of float32", x)
		}
		*list = append(*list, float32(x))
		return nil
	}, nil
}

// label returns a function that adds a column's values to the labels.
func (r *reader) label(c *pq.Column) (func(pq.Value) error, error) {
	text, known := map[string]func(pq.Value) string{
		"BOOLEAN":    pq.Value.String,
		"INT32":      pq.Value.String,
		"INT64":      pq.Value.String,
		"UINT32":     func(v pq.Value) string { return strconv.FormatUint(uint64(v.Uint32()), 10) },
		"UINT64":     func(v pq.Value) string { return strconv.FormatUint(v.Uint64(), 10) },
		"STRING":     pq.Value.String,
		"ENUM":       pq.Value.String,
		"BYTE_ARRAY": pq.Value.String,
	}[typeOf(c)]
	if !known {
		return nil, fmt.Errorf("holds %s: want text or whole numbers", typeOf(c))
	}
	return func(v pq.Value) error { return r.labels.Add(text(v)) }, nil
}

func (r *reader) table() (*data.Table, error) {
	if r.n == 0 {
		return nil, errors.New("no rows")
	}
	t := &data.Table{Target: r.names[r.y]}
	for _, i := range r.x {
		t.Columns = append(t.Columns, r.names[i])
	}
	y := tensor.FromSlice(r.ys, len(r.ys), 1)
	if r.labeled() {
		t.Classes = r.labels.Done()
		y = tensor.FromSlice(r.labels.Y, r.n)
	}
	var err error
	t.Tensors, err = data.NewTensors(tensor.FromSlice(r.xs, r.n, len(r.x)), y)
	return t, err
}
