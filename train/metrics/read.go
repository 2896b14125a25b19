package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// Series are the values of a name, in the order of their steps or of a file. As JSON they are name, steps and values.
type Series struct {
	Name   string
	Steps  []int
	Values []float64
}

// seriesJSON is a Series whose values may be NaN.
type seriesJSON struct {
	Name   string   `json:"name"`
	Steps  []int    `json:"steps"`
	Values []Number `json:"values"`
}

// MarshalJSON writes values as a Number does.
func (s Series) MarshalJSON() ([]byte, error) {
	to := seriesJSON{s.Name, s.Steps, make([]Number, len(s.Values))}
	for i, v := range s.Values {
		to.Values[i] = Number(v)
	}
	return json.Marshal(to)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Series) UnmarshalJSON(text []byte) error {
	var from seriesJSON
	if err := json.Unmarshal(text, &from); err != nil {
		return err
	}
	*s = Series{from.Name, from.Steps, make([]float64, len(from.Values))}
	for i, v := range from.Values {
		s.Values[i] = float64(v)
	}
	return nil
}

// Memory in bytes, also while lists grow: of a name, in a row and of a series, and of a value.
const (
	memOfName   = 256
	memOfSeries = 512
	memOfValue  = 80
)

// Read reads what a File wrote. The names of a line of JSON come in alphabetical order.
func Read(name string) ([]Series, error) {
	f, size, err := bounded.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Series
	at, budget := map[string]int{}, bounded.New(size)
	add := func(step int, name string, value float64) error {
		i, known := at[name]
		if !known {
			i = len(all)
			at[name] = i
			all = append(all, Series{Name: name})
			if err := budget.Take(memOfSeries); err != nil {
				return err
			}
		}
		all[i].Steps, all[i].Values = append(all[i].Steps, step), append(all[i].Values, value)
		return budget.Take(memOfValue)
	}
	if filepath.Ext(name) == ".csv" {
		err = readCSV(f, add)
	} else {
		err = readJSON(f, budget, add)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

func readJSON(r io.Reader, budget *bounded.Budget, add func(step int, name string, value float64) error) error {
	var text json.RawMessage
	row, names, most := map[string]Number{}, []string(nil), 0
	for d := json.NewDecoder(r); ; {
		if err := d.Decode(&text); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte{','}); n > most {
			if err := budget.Take(int64(n-most) * memOfName); err != nil {
				return err
			}
			most = n
		}
		clear(row)
		if err := json.Unmarshal(text, &row); err != nil {
			return err
		}
		step, ok := row["step"]
		if !ok {
			return errors.New("a line has no step: it is not a file of -metrics")
		}
		delete(row, "step")
		delete(row, "time")
		names = slices.AppendSeq(names[:0], maps.Keys(row))
		slices.Sort(names)
		for _, name := range names {
			if err := add(int(step), name, float64(row[name])); err != nil {
				return err
			}
		}
	}
}

// readCSV reads step,time,name,value: a name may have commas.
func readCSV(r io.Reader, add func(step int, name string, value float64) error) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; n == 1 && line == "step,time,name,value\n" {
			continue
		}
		first, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ",")
		_, rest, _ = strings.Cut(rest, ",")
		step, err := strconv.Atoi(first)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		comma := strings.LastIndexByte(rest, ',')
		value, err := strconv.ParseFloat(rest[comma+1:], 64)
		if err != nil || comma < 0 {
			return fmt.Errorf("line %d: want step,time,name,value", n)
		}
		if err := add(step, rest[:comma], value); err != nil {
			return err
		}
	}
	return nil
}
