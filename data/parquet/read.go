package parquet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	pq "github.com/parquet-go/parquet-go"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/columns"
)

// Config says which columns make a sample.
type Config struct {
	Columns []string // of x, in this order; nil: all but Target and pandas' index
	Target  string   // the column of y; "": the last one that is no index
	Labels  bool     // Target names classes, as text or integers: y is the number of a class
	Classes []string // Labels has these numbers, such as Table.Classes of the training set; nil: the classes in the file

	Categories []string // columns of x that have names, such as of towns: see data.Table.Categories, and package data/transform
	Missing    bool     // x may have nulls and NaN: they are NaN, and of Categories the name ""; package data/transform fills them in
	Skip       bool     // rows that cannot be read are left out, and counted in data.Table.Skipped; else they are an error
}

// Read reads columns of a file, or of all files in a folder, into memory, like data.CSV: booleans (0 and 1), integers, halves, floats,
// doubles, and lists of as many of these in each row, which are several features. Nulls, NaN, infinities, whole numbers that float32 would
// round and others too large for it are errors with row and column: see Missing and Skip. Columns of other types, such as dates, and other
// nested columns are errors, too. The first row is 0, as for samples; in a folder, the rows of a file are counted from its first one.
//
// The files of a folder end in .parquet, and are read in the order of their names. They have the same columns. Names that begin with a dot
// or an underscore are ignored, and those of files that Windows makes, such as Thumbs.db.
func Read(file string, cfg Config) (*data.Table, error) {
	files, err := filesOf(file)
	if err != nil {
		return nil, fmt.Errorf("data/parquet: %w", err)
	}
	t := newTable(cfg, len(files))
	for _, name := range files {
		if err := t.addFile(name); err != nil {
			return nil, fmt.Errorf("data/parquet: %w", err)
		}
	}
	whole, err := t.whole()
	if err != nil {
		return nil, fmt.Errorf("data/parquet: %s: %w", file, err)
	}
	return whole, nil
}

// reader reads a file.
type reader struct {
	*table
	from io.ReaderAt
	size int64
	f    *pq.File
	n    int // rows of the row groups that were read
}

// add adds the rows of a file.
func (t *table) add(from io.ReaderAt, size int64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the Parquet library panicked, the file is broken: %v", r)
		}
	}()
	t.budget.Grow(size)
	r := &reader{table: t, from: from, size: size}
	if err := checkFooter(from, size, r.budget); err != nil {
		return err
	}
	if r.f, err = pq.OpenFile(from, size, pq.SkipPageIndex(true), pq.SkipBloomFilters(true)); err != nil {
		return err
	}
	if err := r.columns(); err != nil {
		return err
	}
	if err := r.makeRows(); err != nil {
		return err
	}
	for i := range r.f.RowGroups() {
		if err := r.group(i); err != nil {
			return err
		}
	}
	if int64(r.n) != r.f.NumRows() {
		return fmt.Errorf("%d rows, the footer says %d", r.n, r.f.NumRows())
	}
	t.n += r.n
	return nil
}

// columns selects the columns, or compares them with those of the first file.
func (r *reader) columns() error {
	var names []string
	for _, c := range r.f.Root().Columns() {
		names = append(names, c.Name())
	}
	if r.names != nil && !slices.Equal(names, r.names) {
		return fmt.Errorf("its columns are %s, and those of the first file %s: a folder has files of one table",
			columns.Quoted(names), columns.Quoted(r.names))
	}
	xs, y, err := columns.Select(names, r.cfg.Columns, r.cfg.Target, r.index())
	if err != nil {
		return err
	}
	r.names = names
	if r.f.NumRows() == 0 {
		return nil
	}
	var places []place
	width := 0
	for _, c := range xs {
		p := place{c, width, r.widthOf(c)}
		if err := r.budget.Take(int64(nameBytes * p.width)); err != nil {
			return fmt.Errorf("column %q: lists of %d: %w", names[c], p.width, err)
		}
		places, width = append(places, p), width+p.width
	}
	if r.places != nil && (!slices.Equal(places, r.places) || y != r.y) {
		return fmt.Errorf("its lists have other lengths than those of the first file, or pandas' index is another column")
	}
	if r.places == nil {
		r.labels, err = columns.Categories(names, xs, r.cfg.Categories, r.cfg.Missing, r.budget)
	}
	if r.places == nil && r.labeled() && err == nil {
		r.labels[y], err = columns.NewLabels(r.cfg.Classes, r.budget)
	}
	r.places, r.width, r.y = places, width, y
	return err
}

// leaf returns the column of values, of a column or of its lists.
func leaf(c *pq.Column) (*pq.Column, bool) {
	if list := c.Columns(); !c.Leaf() && !c.Repeated() && len(list) == 1 && list[0].Repeated() && len(list[0].Columns()) == 1 {
		c = list[0].Columns()[0]
	}
	return c, c.Leaf() && !c.Repeated()
}

// widthOf returns the mean length of the lists of a column, or 1. Lists of other lengths are found when they are read.
func (r *reader) widthOf(c int) int {
	column, ok := leaf(r.f.Root().Columns()[c])
	if !ok || column.MaxRepetitionLevel() == 0 {
		return 1
	}
	values := r.f.NumRows() / 2 // rounded: with Skip, rows may have other lengths
	for _, g := range r.f.Metadata().RowGroups {
		values += max(g.Columns[column.Index()].MetaData.NumValues, 0)
	}
	return int(min(max(values/max(r.f.NumRows(), 1), 1), maxWidth))
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

const (
	jsonBytes  = 128     // the memory of a value in the metadata of pandas
	labelBytes = 32      // of a label: its number, also while the list grows
	nameBytes  = 64      // of the name of a feature
	maxWidth   = 1 << 24 // of a list
)

// makeRows makes memory for the values of all rows. A few bytes of a file can be billions of equal values.
func (r *reader) makeRows() error {
	rows, one := r.f.NumRows(), 4*int64(r.width)+labelBytes*int64(len(r.labels))
	if !r.labeled() {
		one += 4
	}
	if r.cfg.Skip {
		one++
	}
	if r.several { // while the rows of all files grow
		one *= 3
	}
	if rows < 0 || rows > math.MaxInt64/max(one, 1) {
		return fmt.Errorf("%d rows", rows)
	}
	if err := r.budget.Take(rows * one); err != nil {
		return fmt.Errorf("%d rows of %d columns: %w; write less of it, or without compression and dictionaries (of pyarrow: "+
			`write_table(t, file, compression="none", use_dictionary=False))`, rows, r.width+1, err)
	}
	r.xs = append(r.xs, make([]float32, int(rows)*r.width)...)
	if !r.labeled() {
		r.ys = append(r.ys, make([]float32, rows)...)
	}
	if r.cfg.Skip {
		r.bad = append(r.bad, make([]bool, rows)...)
	}
	return nil
}

// group reads a row group, column after column.
func (r *reader) group(i int) error {
	want := r.f.RowGroups()[i].NumRows()
	if left := r.f.NumRows() - int64(r.n); want < 0 || want > left {
		return fmt.Errorf("row group %d has %d rows, and the footer has %d more", i, want, left)
	}
	first := r.table.n + r.n
	for _, p := range append(r.places[:len(r.places):len(r.places)], place{r.y, 0, 1}) {
		to, step := r.ys, 1
		if p.column != r.y {
			to, step = r.xs[p.first:], r.width
		}
		taker := func(c *pq.Column) (takeFunc, error) {
			if labels := r.labels[p.column]; labels != nil {
				return r.label(c, labels)
			}
			return r.number(c, p.column != r.y && r.cfg.Missing, func(row, element int, v float32) { to[(first+row)*step+element] = v })
		}
		rows, err := r.column(i, p, int(want), taker)
		if err != nil {
			return err
		}
		if rows != int(want) {
			return fmt.Errorf("row group %d: column %q has %d rows, the footer says %d", i, r.names[p.column], rows, want)
		}
	}
	r.n += int(want)
	return nil
}

// takeFunc takes a value: an element of the list in a row.
type takeFunc func(row, element int, v pq.Value) error

// column reads a column of a row group of at most so many rows, and returns their number.
func (r *reader) column(group int, p place, most int, taker func(*pq.Column) (takeFunc, error)) (rows int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("column %q: %w", r.names[p.column], err)
		}
	}()
	column, ok := leaf(r.f.Root().Columns()[p.column])
	if !ok || (p.column == r.y || r.labels[p.column] != nil) && column.MaxRepetitionLevel() > 0 {
		return 0, errors.New("holds lists or groups: want one value a row, or lists of numbers in x")
	}
	take, err := taker(column)
	if err != nil {
		return 0, err
	}
	pages, memory, err := r.pages(group, column)
	if err != nil {
		return 0, fmt.Errorf("row group %d: %w", group, err)
	}
	defer r.budget.Give(memory)
	defer pages.Close()
	at := cursor{reader: r, column: p.column, row: -1, element: p.width - 1, width: p.width, most: most, take: take}
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return at.row + 1, at.ended()
		}
		if err != nil {
			return 0, fmt.Errorf("row group %d: %w", group, err)
		}
		err = at.page(page)
		pq.Release(page)
		if err != nil {
			return 0, err
		}
	}
}

// cursor is the place of a value in a column of a row group.
type cursor struct {
	*reader
	column       int
	row, element int
	width        int // elements of each row
	most         int // rows
	take         takeFunc
}

// page reads the values of a page.
func (at *cursor) page(page pq.Page) error {
	values := page.Values()
	var some [256]pq.Value
	for {
		n, err := values.ReadValues(some[:])
		for _, v := range some[:n] {
			if err := at.value(v); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && n == 0 {
			err = io.ErrNoProgress
		}
		if err != nil {
			return fmt.Errorf("row %d: %w", at.n+at.row+1, err)
		}
	}
}

func (at *cursor) value(v pq.Value) error {
	at.element++
	if v.RepetitionLevel() == 0 { // a row begins
		at.element--
		if err := at.ended(); err != nil {
			return err
		}
		at.row, at.element = at.row+1, 0
	}
	switch {
	case at.row == at.most:
		return fmt.Errorf("row %d: the footer says that there are %d in the row group", at.n+at.row, at.most)
	case at.element < at.width:
		if err := at.take(at.row, at.element, v); err != nil {
			return at.wrong(at.column, at.n+at.row, err)
		}
	case at.element == at.width:
		return at.otherLength("more than")
	}
	return nil
}

// ended returns an error unless the row has all its elements.
func (at *cursor) ended() error {
	if at.element+1 < at.width {
		return at.otherLength("less than")
	}
	return nil
}

func (at *cursor) otherLength(than string) error {
	err := fmt.Errorf("its list has %s %d elements, which is the mean: want lists of one length", than, at.width)
	return at.wrong(at.column, at.n+at.row, err)
}

// pages checks the pages of a column before it opens them. It takes their memory from the budget.
func (r *reader) pages(group int, column *pq.Column) (pages pq.Pages, memory int64, err error) {
	meta := &r.f.Metadata().RowGroups[group].Columns[column.Index()].MetaData
	chunk := r.f.RowGroups()[group].ColumnChunks()[column.Index()].(*pq.FileColumnChunk)
	again, memory, err := r.checkPages(meta, column)
	if err != nil {
		return nil, 0, err
	}
	if again == nil {
		return chunk.Pages(), memory, nil
	}
	meta.TotalCompressedSize = int64(len(again))
	return chunk.PagesFrom(&shifted{again, firstPage(meta)}), memory, nil
}

// shifted has the bytes of a file from a place on.
type shifted struct {
	b    []byte
	from int64
}

func (s *shifted) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(s.b).ReadAt(p, at-s.from)
}
