package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/tensor"
)

// Config says what Fit makes of columns.
type Config struct {
	Fill  Fill     // what takes the place of missing numbers, such as Mean; nil: they are an error
	Index []string // columns of categories that stay one number, from 0, for an nn.Embedding; the others become one-hot
	// A category that the training part does not have is zeros, and in Index the number after the last one; false: it is an error.
	IgnoreUnknown bool
}

// Fill returns what takes the place of missing values of a column with this mean.
type Fill func(mean float64) float64

// Mean fills in the mean of the training part, as scikit-learn's SimpleImputer does.
func Mean(mean float64) float64 { return mean }

// Constant fills in a number.
func Constant(v float64) Fill { return func(float64) float64 { return v } }

// Column is what was learned of a column. Of numbers, x becomes (x - Mean) / Std.
type Column struct {
	Name       string   `json:"name"`
	Mean       float64  `json:"mean"`
	Std        float64  `json:"std"`            // 1 if all numbers are equal
	Fill       *float64 `json:"fill,omitempty"` // of missing numbers; nil: they are an error
	Categories []string `json:"categories,omitempty"`
	Index      bool     `json:"index,omitempty"` // categories stay one number
}

// Transform makes features of tables that have the columns of the one that it was fitted to. The zero Transform can be loaded from a
// checkpoint.
type Transform struct {
	Columns       []Column `json:"columns"`
	Target        string   `json:"target,omitempty"`
	Classes       []string `json:"classes,omitempty"` // of the target: what the numbers that a model predicts are
	IgnoreUnknown bool     `json:"ignore_unknown,omitempty"`
}

// Fit learns from a training set: a data.Table, or a data.Subset of one. Mean and deviation are those of the numbers that are there, as
// of scikit-learn's StandardScaler. Categories are those that occur.
func Fit(train data.Dataset, cfg Config) (*Transform, error) {
	r, err := read(train)
	if err != nil {
		return nil, err
	}
	t := &Transform{Target: r.table.Target, Classes: r.table.Classes, IgnoreUnknown: cfg.IgnoreUnknown}
	for k, name := range r.table.Columns {
		c := Column{Name: name, Std: 1, Index: slices.Contains(cfg.Index, name)}
		if names, ok := r.table.Categories[name]; ok {
			c.Categories = r.occurring(k, names)
		} else if err = c.fit(r, k, cfg.Fill); err != nil {
			return nil, fmt.Errorf("data/transform: column %q: %w", name, err)
		}
		t.Columns = append(t.Columns, c)
	}
	for _, name := range cfg.Index {
		if _, ok := r.table.Categories[name]; !ok {
			return nil, fmt.Errorf("data/transform: Config.Index has %q, which is no column of categories: there are %q", name, r.table.Columns)
		}
	}
	return t, nil
}

// fit learns from column k, of numbers.
func (c *Column) fit(r *rows, k int, fill Fill) error {
	n, sum, squares := 0.0, 0.0, 0.0
	for row := range r.n {
		if v := r.at(row, k); v == v {
			n, sum = n+1, sum+v
		} else if fill == nil {
			return fmt.Errorf("row %d has no value: Config.Fill says what takes its place", row)
		}
	}
	if n == 0 {
		return errors.New("no row has a value: leave the column out, or, if it has names, say so in Categories of data.CSVConfig")
	}
	c.Mean = sum / n
	for row := range r.n {
		if v := r.at(row, k); v == v {
			d := v - c.Mean
			squares += float64(d * d) // rounded on every processor
		}
	}
	if std := math.Sqrt(squares / n); std > 0 {
		c.Std = std
	}
	if fill != nil {
		v := fill(c.Mean)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("Config.Fill returns %v: want a finite number", v)
		}
		c.Fill = &v
	}
	return nil
}

// Apply returns the features of a table, or of a data.Subset of one, in memory. The table may be of another file, with other categories.
// The classes of the target must have the same numbers: give Transform.Classes to what reads the table, as CSVConfig.Classes.
func (t *Transform) Apply(ds data.Dataset) (*data.Table, error) {
	r, err := read(ds)
	if err != nil {
		return nil, err
	}
	if names := t.names(); !slices.Equal(names, r.table.Columns) {
		return nil, fmt.Errorf("data/transform: the table has columns %q, and the Transform was fitted to %q", r.table.Columns, names)
	}
	if err := t.checkClasses(r.table); err != nil {
		return nil, err
	}
	out := &data.Table{Target: r.table.Target, Classes: r.table.Classes}
	for _, c := range t.Columns {
		out.Columns = append(out.Columns, c.features()...)
	}
	width, first := len(out.Columns), 0
	xs := make([]float32, r.n*width)
	for k, c := range t.Columns {
		put := func(row, i int, v float32) { xs[row*width+first+i] = v }
		if names, text := r.table.Categories[c.Name]; text != (c.Categories != nil) {
			err = errors.New("it has numbers in the one table, and categories in the other")
		} else if text {
			err = t.categories(&c, r, k, names, put)
		} else {
			err = c.numbers(r, k, put)
		}
		if err != nil {
			return nil, fmt.Errorf("data/transform: column %q: %w", c.Name, err)
		}
		first += len(c.features())
	}
	out.Tensors, err = data.NewTensors(tensor.FromSlice(xs, r.n, width), r.y)
	return out, err
}

// checkClasses returns an error if a number of the target is another class than in the training part.
func (t *Transform) checkClasses(table *data.Table) error {
	for i := range min(len(t.Classes), len(table.Classes)) {
		if table.Target == t.Target && table.Classes[i] != t.Classes[i] {
			return fmt.Errorf("data/transform: %d is class %q of %q in the table, and %q in the training part: read the table with Classes: "+
				"prep.Classes, which are %q", i, table.Classes[i], t.Target, t.Classes[i], t.Classes)
		}
	}
	return nil
}

func (t *Transform) names() (names []string) {
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return names
}

// features are the names of what a column becomes.
func (c *Column) features() []string {
	if c.Categories == nil || c.Index {
		return []string{c.Name}
	}
	var names []string
	for _, category := range c.Categories {
		names = append(names, c.Name+"="+category)
	}
	return names
}

func (c *Column) numbers(r *rows, k int, put func(row, i int, v float32)) error {
	for row := range r.n {
		v := r.at(row, k)
		switch {
		case v == v:
		case c.Fill == nil:
			return fmt.Errorf("row %d has no value: Config.Fill of Fit says what takes its place", row)
		default:
			v = *c.Fill
		}
		put(row, 0, float32((v-c.Mean)/c.Std))
	}
	return nil
}

// categories writes a column whose numbers stand for names.
func (t *Transform) categories(c *Column, r *rows, k int, names []string, put func(row, i int, v float32)) error {
	places := make([]int, len(names))
	for i, name := range names {
		places[i] = slices.Index(c.Categories, name)
	}
	for row := range r.n {
		number := int(r.at(row, k))
		place := places[number]
		switch {
		case place < 0 && !t.IgnoreUnknown:
			return fmt.Errorf("row %d has %.99q, which the training part does not have: Config.IgnoreUnknown allows it", row, names[number])
		case c.Index && place < 0:
			put(row, 0, float32(len(c.Categories)))
		case c.Index:
			put(row, 0, float32(place))
		case place >= 0:
			put(row, place, 1)
		}
	}
	return nil
}

// UnmarshalJSON loads a Transform. One that was fitted, and perhaps applied, does not become another one.
func (t *Transform) UnmarshalJSON(text []byte) error {
	type plain Transform
	var saved plain
	if err := json.Unmarshal(text, &saved); err != nil {
		return err
	}
	for _, c := range saved.Columns {
		if !(c.Std > 0) {
			return fmt.Errorf("data/transform: the deviation of column %q is %v", c.Name, c.Std)
		}
	}
	if saved.Target == "" { // of an older checkpoint, or there was none
		saved.Target, saved.Classes = t.Target, t.Classes
	}
	if t.Columns != nil && !reflect.DeepEqual(*t, Transform(saved)) {
		return errors.New("data/transform: the saved Transform was fitted to other data: load it into an empty one, and apply that")
	}
	*t = Transform(saved)
	return nil
}

// rows are those of a table, or of a part of it.
type rows struct {
	table *data.Table
	n     int
	x     []float32
	y     tensor.Tensor
}

func (r *rows) at(row, column int) float64 { return float64(r.x[row*len(r.table.Columns)+column]) }

func read(ds data.Dataset) (*rows, error) {
	r, inner := &rows{n: ds.Len()}, ds
	for r.table == nil {
		switch d := inner.(type) {
		case *data.Table:
			r.table = d
		case *data.Subset:
			inner = d.Dataset
		default:
			return nil, fmt.Errorf("data/transform: a %T has no columns: want a data.Table, or a data.Subset of one", inner)
		}
	}
	sx, sy := ds.Shapes()
	r.x = make([]float32, r.n*sx.Dims[0])
	r.y = tensor.FromSlice(make([]float32, r.n), r.n, 1)
	if sy.DType == tensor.Int64 {
		r.y = tensor.FromSlice(make([]int64, r.n), r.n)
	}
	idx := make([]int, r.n)
	for i := range idx {
		idx[i] = i
	}
	return r, ds.Batch(idx, tensor.FromSlice(r.x, r.n, sx.Dims[0]), r.y)
}

// occurring returns the names of the numbers of a column.
func (r *rows) occurring(column int, names []string) []string {
	seen, list := make([]bool, len(names)), []string{}
	for row := range r.n {
		seen[int(r.at(row, column))] = true
	}
	for i, name := range names {
		if seen[i] {
			list = append(list, name)
		}
	}
	return list
}
