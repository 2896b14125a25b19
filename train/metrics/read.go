package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// Read reads what a File wrote. The names of a line of JSON come in alphabetical order.
func Read(name string) ([]Series, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []Series
	at := map[string]int{}
	add := func(step int, name string, value float64) {
		i, known := at[name]
		if !known {
			i = len(all)
			at[name] = i
			all = append(all, Series{Name: name})
		}
		all[i].Steps, all[i].Values = append(all[i].Steps, step), append(all[i].Values, value)
	}
	if filepath.Ext(name) == ".csv" {
		err = readCSV(f, add)
	} else {
		err = readJSON(f, add)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

func readJSON(r io.Reader, add func(step int, name string, value float64)) error {
	for d := json.NewDecoder(r); ; {
		var row map[string]Number
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		step, ok := row["step"]
		if !ok {
			return errors.New("a line has no step: it is not a file of -metrics")
		}
		delete(row, "step")
		delete(row, "time")
		for _, name := range slices.Sorted(maps.Keys(row)) {
			add(int(step), name, float64(row[name]))
		}
	}
}

// readCSV reads step,time,name,value: a name may have commas.
func readCSV(r io.Reader, add func(step int, name string, value float64)) error {
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
		add(step, rest[:comma], value)
	}
	return nil
}
