package parquet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/columns"
	"github.com/ringo-ml/ringo/tensor"
)

// filesOf returns the files of a folder, or the file.
func filesOf(path string) (files []string, err error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, nil // opening it says what is wrong
	}
	entries, err := os.ReadDir(path) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		switch {
		case bounded.Hidden(e.Name()) || e.Name()[0] == '_':
		case e.IsDir():
			return nil, fmt.Errorf("%s is a folder: want files alone, as pandas' to_parquet writes them without partition_cols", name)
		case !strings.HasSuffix(e.Name(), ".parquet"):
			return nil, fmt.Errorf("%s does not end in .parquet: remove it, or rename it", name)
		default:
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no files that end in .parquet", path)
	}
	return files, nil
}

// table is what the files have so far.
type table struct {
	cfg     Config
	several bool // files
	names   []string
	places  []place // of x
	y       int
	width   int // features
	budget  *bounded.Budget
	rows
	skips
}

type rows struct {
	n      int
	xs, ys []float32
	labels map[int]*columns.Labels // of the columns that have names, y too
}

// skips are the rows that are left out.
type skips struct {
	bad     []bool // of all rows; nil without Skip
	skipped data.Skipped
	first   int    // row of skipped.First
	file    string // for skipped.First, if there are several
}

// place is that of a column among the features.
type place struct{ column, first, width int }

func newTable(cfg Config, files int) *table {
	return &table{cfg: cfg, budget: bounded.New(0), several: files > 1}
}

func (t *table) addFile(name string) error {
	f, size, err := bounded.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if t.several {
		t.file = name + ": "
	}
	if err := t.add(f, size); err != nil {
		head := make([]byte, min(size, 512))
		_, _ = f.ReadAt(head, 0) // only for the error's text
		return fmt.Errorf("%s: %w", name, bounded.Explain(err, head))
	}
	return nil
}

// wrong returns what is wrong with a row, or, with Skip, leaves the row out. Rows come column after column.
func (r *reader) wrong(column, row int, err error) error {
	err = fmt.Errorf("row %d: %w", row, err)
	if !r.cfg.Skip || bounded.IsTooMuch(err) {
		return err
	}
	at := r.table.n + row
	if r.skipped.First == nil || at < r.first {
		r.skipped.First, r.first = fmt.Errorf("%scolumn %q: %w", r.file, r.names[column], err), at
	}
	if !r.bad[at] {
		r.skipped.Count++
	}
	r.bad[at] = true
	return nil
}

// kept moves the rows that are not bad to the front.
func kept[T any](all []T, width int, bad []bool) []T {
	n := 0
	for row := range len(all) / width {
		if !bad[row] {
			n += copy(all[n:], all[row*width:(row+1)*width])
		}
	}
	return all[:n]
}

// whole returns the rows of all files.
func (t *table) whole() (*data.Table, error) {
	if t.skipped.Count > 0 {
		t.xs, t.ys, t.n = kept(t.xs, t.width, t.bad), kept(t.ys, 1, t.bad), t.n-t.skipped.Count
		for _, l := range t.labels {
			l.Y = kept(l.Y, 1, t.bad)
		}
	}
	if t.n == 0 && t.skipped.Count > 0 {
		return nil, fmt.Errorf("no rows: %v", t.skipped)
	}
	if t.n == 0 {
		return nil, errors.New("no rows")
	}
	out := &data.Table{Target: t.names[t.y], Skipped: t.skipped}
	for _, p := range t.places {
		for i := range p.width {
			name := t.names[p.column]
			if p.width > 1 {
				name = fmt.Sprintf("%s[%d]", name, i)
			}
			out.Columns = append(out.Columns, name)
		}
		if c := t.labels[p.column]; c != nil {
			if out.Categories == nil {
				out.Categories = map[string][]string{}
			}
			out.Categories[t.names[p.column]] = c.Fill(t.xs, t.width, p.first)
		}
	}
	var y tensor.Tensor
	if labels := t.labels[t.y]; labels != nil {
		out.Classes = labels.Done()
		y = tensor.FromSlice(labels.Y, t.n)
	} else {
		y = tensor.FromSlice(t.ys, t.n, 1)
	}
	var err error
	out.Tensors, err = data.NewTensors(tensor.FromSlice(t.xs, t.n, t.width), y)
	return out, err
}

func (t *table) labeled() bool { return t.cfg.Labels || t.cfg.Classes != nil }
