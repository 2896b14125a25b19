package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	pq "github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/columns"
	"github.com/ringo-ml/ringo/tensor"
)

// typeOf names the type of a column: its logical type or, if it has none, its physical type, with a U for unsigned integers.
func (r *reader) typeOf(c *pq.Column) string {
	if r.half(c) {
		return "FLOAT16"
	}
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

// half tells whether a column is of 16-bit floats, which the library does not say.
func (r *reader) half(c *pq.Column) bool {
	leaves := 0
	for _, e := range r.f.Metadata().Schema {
		if e.Type.Valid {
			if leaves == c.Index() {
				_, is := e.LogicalType.Value.(*format.Float16Type)
				return is && e.TypeLength.V == 2
			}
			leaves++
		}
	}
	return false
}

var errNoValue = errors.New("no value: fill it in, or remove the row")

// number returns a function that stores a column's values, of which some may be missing.
func (r *reader) number(c *pq.Column, missing bool, store func(row, element int, v float32)) (takeFunc, error) {
	kind := r.typeOf(c)
	value, known := map[string]func(pq.Value) (float64, error){
		"BOOLEAN": func(v pq.Value) (float64, error) {
			if v.Boolean() {
				return 1, nil
			}
			return 0, nil
		},
		"INT32":  func(v pq.Value) (float64, error) { return whole(int64(v.Int32())) },
		"INT64":  func(v pq.Value) (float64, error) { return whole(v.Int64()) },
		"UINT32": func(v pq.Value) (float64, error) { return whole(v.Uint32()) },
		"UINT64": func(v pq.Value) (float64, error) { return whole(v.Uint64()) },
		"FLOAT16": func(v pq.Value) (float64, error) {
			return float64(tensor.F16(binary.LittleEndian.Uint16(v.ByteArray())).Float32()), nil
		},
		"FLOAT":  func(v pq.Value) (float64, error) { return float64(v.Float()), nil },
		"DOUBLE": func(v pq.Value) (float64, error) { return v.Double(), nil },
	}[kind]
	if !known {
		return nil, fmt.Errorf("holds %s: want numbers%s", kind, inPandas(kind, c.Path()[0]))
	}
	return func(row, element int, v pq.Value) error {
		x, err := math.NaN(), errNoValue
		if !v.IsNull() {
			x, err = value(v)
		}
		switch {
		case missing && math.IsNaN(x):
		case err != nil:
			return err
		case math.IsNaN(x) || math.IsInf(x, 0):
			return fmt.Errorf("%v is not a finite number: replace it, or remove the row", x)
		case math.IsInf(float64(float32(x)), 0):
			return fmt.Errorf("%v is out of the range of float32: divide the column", x)
		}
		store(row, element, float32(x))
		return nil
	}, nil
}

// inPandas returns the line that makes numbers of a column.
func inPandas(kind, name string) string {
	name = bounded.Quote(name)
	switch {
	case kind == "DATE" || kind == "INT96" || strings.HasPrefix(kind, "TIMESTAMP"):
		return fmt.Sprintf(`; days since 1970 are, of pandas, df[%s] = (pd.to_datetime(df[%s], utc=True) - pd.Timestamp(0, tz="UTC")) / `+
			`pd.Timedelta(days=1)`, name, name)
	case kind == "STRING":
		return ", or Labels, if it is the target and has names of classes; Categories is for names in x"
	case strings.HasPrefix(kind, "DECIMAL"):
		return fmt.Sprintf(`; of pandas, df[%s] = df[%s].astype(float)`, name, name)
	}
	return ""
}

// whole returns a whole number, or an error if float32 has no such number: it has 24 bits before zeros.
func whole[T int64 | uint32 | uint64](v T) (float64, error) {
	size := uint64(v)
	if v < 0 {
		size = -size
	}
	if bits.Len64(size)-bits.TrailingZeros64(size) > 24 {
		return 0, columns.Rounded(fmt.Sprint(v), float32(v))
	}
	return float64(v), nil
}

// label returns a function that adds a column's values to labels, each row one, so that wrong ones can be skipped.
func (r *reader) label(c *pq.Column, labels *columns.Labels) (takeFunc, error) {
	text, known := map[string]func(pq.Value) string{
		"BOOLEAN":    pq.Value.String,
		"INT32":      pq.Value.String,
		"INT64":      pq.Value.String,
		"UINT32":     func(v pq.Value) string { return strconv.FormatUint(uint64(v.Uint32()), 10) },
		"UINT64":     func(v pq.Value) string { return strconv.FormatUint(v.Uint64(), 10) },
		"STRING":     pq.Value.String,
		"ENUM":       pq.Value.String,
		"BYTE_ARRAY": pq.Value.String,
	}[r.typeOf(c)]
	if !known {
		return nil, fmt.Errorf("holds %s: want text or whole numbers", r.typeOf(c))
	}
	return func(_, _ int, v pq.Value) error {
		name := "" // of a null
		if !v.IsNull() {
			name = text(v)
		}
		err := labels.Add(name)
		if err != nil {
			labels.Y = append(labels.Y, 0)
		}
		return err
	}, nil
}
