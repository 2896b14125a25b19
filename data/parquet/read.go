package parquet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/columns"
	"github.com/ringo-ml/ringo/tensor"
)

// Config says which columns make a sample.
type Config struct {
	Columns []string // of x, in this order; nil: all but Target and pandas' index
	Target  string   // the column of y; "": the last one that is no index
	Labels  bool     // Target names classes, as text or integers: y is the number of a class
	Classes []string // Labels has these numbers, such as Table.Classes of the training set; nil: the classes in the file
}

// Read reads columns of a file into memory, like data.CSV: booleans (0 and 1), integers, float and double. Nulls, NaN, infinities and
// numbers too large for a float32 are errors with row and column. Columns of other types, such as dates, and nested columns are errors,
// too. The first row is 0, as for samples.
func Read(file string, cfg Config) (*data.Table, error) {
	f, size, err := bounded.Open(file)
	if err != nil {
		return nil, fmt.Errorf("data/parquet: %w", err)
	}
	defer f.Close()
	t, err := read(f, size, cfg)
	if err != nil {
		head := make([]byte, min(size, 512))
		_, _ = f.ReadAt(head, 0) // only for the error's text
		return nil, fmt.Errorf("data/parquet: %s: %w", file, bounded.Explain(err, head))
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
	n      int // rows of the row groups that were read
	xs, ys []float32
	labels *columns.Labels
	budget *bounded.Budget
}

func read(from io.ReaderAt, size int64, cfg Config) (t *data.Table, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Parquet library panicked, the file is broken: %v", r)
		}
	}()
	r := &reader{cfg: cfg, from: from, size: size, budget: bounded.New(size)}
	if r.labels, err = columns.NewLabels(cfg.Classes, r.budget); err != nil {
		return nil, err
	}
	if err := checkFooter(from, size, r.budget); err != nil {
		return nil, err
	}
	if r.f, err = pq.OpenFile(from, size, pq.SkipPageIndex(true), pq.SkipBloomFilters(true)); err != nil {
		return nil, err
	}
	for _, c := range r.f.Root().Columns() {
		r.names = append(r.names, c.Name())
	}
	if r.x, r.y, err = columns.Select(r.names, cfg.Columns, cfg.Target, r.index()); err != nil {
		return nil, err
	}
	if err := r.makeRows(); err != nil {
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

// index returns the columns that are an index of pandas, which says so in the footer.
func (r *reader) index() (names []string) {
	text, _ := r.f.Lookup("pandas")
	var meta struct {
		Columns []json.RawMessage `json:"index_columns"`
	}
	if bounded.JSON([]byte(text), jsonBytes) != nil || json.Unmarshal([]byte(text), &meta) != nil {
		return nil // a name that looks like an index is an error
	}
	for _, column := range meta.Columns {
		var name string
		if json.Unmarshal(column, &name) == nil { // else it describes a range, which is no column
			names = append(names, name)
		}
	}
	return names
}

func (r *reader) labeled() bool { return r.cfg.Labels || r.cfg.Classes != nil }

// jsonBytes is the memory of a value in the metadata of pandas.
const jsonBytes = 128

// labelBytes is the memory of a label: its number, also while the list grows.
const labelBytes = 32

// makeRows makes memory for the values of all rows. A few bytes of a file can be billions of equal values.
func (r *reader) makeRows() error {
	rows, one := r.f.NumRows(), 4*int64(len(r.x)+1)
	if r.labeled() {
		one = 4*int64(len(r.x)) + labelBytes
	}
	if rows < 0 || rows > math.MaxInt64/one {
		return fmt.Errorf("%d rows", rows)
	}
	if err := r.budget.Take(rows * one); err != nil {
		return fmt.Errorf("%d rows of %d columns: %w; write less of it, or without compression and dictionaries (of pyarrow: "+
			`write_table(t, file, compression="none", use_dictionary=False))`, rows, len(r.x)+1, err)
	}
	r.xs = make([]float32, int(rows)*len(r.x))
	if !r.labeled() {
		r.ys = make([]float32, rows)
	}
	return nil
}

// group reads a row group, column after column.
func (r *reader) group(i int) error {
	want := r.f.RowGroups()[i].NumRows()
	if left := r.f.NumRows() - int64(r.n); want < 0 || want > left {
		return fmt.Errorf("row group %d has %d rows, and the footer has %d more", i, want, left)
	}
	for k, c := range append(r.x[:len(r.x):len(r.x)], r.y) {
		to, step := r.ys, 1
		if k < len(r.x) {
			to, step = r.xs[k:], len(r.x)
		}
		taker := func(c *pq.Column) (func(int, pq.Value) error, error) {
			return number(c, func(row int, v float32) { to[(r.n+row)*step] = v })
		}
		if k == len(r.x) && r.labeled() {
			taker = r.label
		}
		rows, err := r.column(i, c, int(want), taker)
		if err != nil {
			return err
		}
		if rows != int(want) {
			return fmt.Errorf("row group %d: column %q has %d rows, the footer says %d", i, r.names[c], rows, want)
		}
	}
	r.n += int(want)
	return nil
}

// column reads a column of a row group of at most so many rows, and returns their number.
func (r *reader) column(group, c, most int, taker func(*pq.Column) (func(int, pq.Value) error, error)) (rows int, err error) {
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
	memory, err := r.checkPages(&r.f.Metadata().RowGroups[group].Columns[column.Index()].MetaData, column.Optional())
	if err != nil {
		return 0, fmt.Errorf("row group %d: %w", group, err)
	}
	defer r.budget.Give(memory)
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
		n, err := r.page(page, rows, most, take)
		pq.Release(page)
		if err != nil {
			return 0, err
		}
		rows += n
	}
}

// page reads the values of a page; first is its first row in the group, which has at most so many.
func (r *reader) page(page pq.Page, first, most int, take func(row int, v pq.Value) error) (rows int, err error) {
	values := page.Values()
	var some [256]pq.Value
	for {
		n, err := values.ReadValues(some[:])
		for _, v := range some[:n] {
			problem := errors.New("no value")
			switch {
			case first+rows == most:
				problem = fmt.Errorf("the footer says that there are %d in the row group", most)
			case !v.IsNull():
				problem = take(first+rows, v)
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

// number returns a function that stores a column's values.
func number(c *pq.Column, store func(row int, v float32)) (func(int, pq.Value) error, error) {
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
	return func(row int, v pq.Value) error {
		x := value(v)
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
			return fmt.Errorf("%v is not a finite number", x)
		case math.IsInf(float64(float32(x)), 0):
			return fmt.Errorf("%v is out of the range of float32", x)
		}
		store(row, float32(x))
		return nil
	}, nil
}

// label returns a function that adds a column's values to the labels.
func (r *reader) label(c *pq.Column) (func(int, pq.Value) error, error) {
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
	return func(_ int, v pq.Value) error { return r.labels.Add(text(v)) }, nil
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
