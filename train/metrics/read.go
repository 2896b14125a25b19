package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

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

// Memory in bytes, also while lists grow.
const (
	memOfSeries = 700
	memOfValue  = 112
)

// Read reads what a File wrote.
func Read(name string) ([]Series, error) {
	f, size, err := bounded.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := &reader{at: map[string]int{}, budget: bounded.New(size)}
	if filepath.Ext(name) == ".csv" {
		err = r.readCSV(f)
	} else {
		err = r.readJSON(f)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r.all, nil
}

// reader is a file that is being read.
type reader struct {
	all    []Series
	at     map[string]int // by name, as the file spells it
	budget *bounded.Budget
}

func (r *reader) add(step int, name []byte, value float64) error {
	i, known := r.at[string(name)]
	if !known {
		if err := r.budget.Take(memOfSeries); err != nil {
			return err
		}
		i = len(r.all)
		r.all = append(r.all, Series{Name: string(name)})
		r.at[r.all[i].Name] = i
	}
	r.all[i].Steps, r.all[i].Values = append(r.all[i].Steps, step), append(r.all[i].Values, value)
	return r.budget.Take(memOfValue)
}

func (r *reader) readJSON(f io.Reader) error {
	var row json.RawMessage
	for d := json.NewDecoder(f); ; {
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if err := r.readRow(row); err != nil {
			return err
		}
	}
	for i := range r.all {
		if err := json.Unmarshal([]byte(r.all[i].Name), &r.all[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// readRow reads a row of valid JSON. A map of it, and a json.Decoder's tokens, would take more memory than short names justify.
func (r *reader) readRow(row []byte) error {
	step := math.NaN()
	if row[0] != '{' {
		return errFile
	}
	for row = bytes.TrimSpace(row[1 : len(row)-1]); len(row) > 0; {
		end := 1
		for ; row[end] != '"'; end++ {
			if row[end] == '\\' {
				end++
			}
		}
		name := row[:end+1]
		text, rest, _ := bytes.Cut(row[end+1:], []byte{','})
		text, row = bytes.TrimSpace(bytes.TrimLeft(text, " \t\r\n:")), bytes.TrimSpace(rest)
		var value Number
		if err := value.UnmarshalJSON(text); err != nil {
			return err
		}
		if bytes.Count(text, []byte{'"'})%2 > 0 {
			return fmt.Errorf("%s is a word, no number", bounded.Plain(string(name))) // with a comma
		}
		switch {
		case string(name) == `"step"`:
			step = float64(value)
		case math.IsNaN(step):
			return errFile
		case string(name) != `"time"`:
			if err := r.add(int(step), name, float64(value)); err != nil {
				return err
			}
		}
	}
	if math.IsNaN(step) {
		return errFile
	}
	return nil
}

var errFile = errors.New("a line does not begin with its step: it is not a file of -metrics")

// readCSV reads step,time,name,value: a name may have commas.
func (r *reader) readCSV(f io.Reader) error {
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	n := 0
	for line := range bytes.Lines(text) {
		if n++; n == 1 && string(line) == "step,time,name,value\n" {
			continue
		}
		first, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte{'\n'}), []byte{','})
		_, rest, _ = bytes.Cut(rest, []byte{','})
		step, err := strconv.Atoi(string(first))
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		comma := bytes.LastIndexByte(rest, ',')
		value, err := strconv.ParseFloat(string(rest[comma+1:]), 64)
		if err != nil || comma < 0 {
			return fmt.Errorf("line %d: want step,time,name,value", n)
		}
		if err := r.add(step, rest[:comma], value); err != nil {
			return err
		}
	}
	return nil
}
