package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/live"
)

// Number is a float64 whose NaN and infinities go into JSON as strings.
type Number = live.Number

// Writer takes the values of a training: see train.Loop.To.
type Writer interface {
	// Write takes the values of one step, which became known at a time.
	Write(step int, at time.Time, values map[string]float64) error
	Close() error
}

// File is a file of values. It is a Writer.
type File struct {
	f    *os.File
	csv  bool
	head string // format of how a line begins: step and time
}

// Ext says whether a file of this name can be written: it ends in .jsonl or .csv.
func Ext(name string) bool { return filepath.Ext(name) == ".jsonl" || filepath.Ext(name) == ".csv" }

// maxFile is how long a file may be to which a training adds.
const maxFile = 1 << 40

// Open begins a file, CSV where its name ends in .csv. With last > 0 it goes on behind the values of steps up to last; those of
// later steps go, and a line that a crash cut short.
func Open(name string, last int) (*File, error) {
	w, text := &File{head: `{"step":%d,"time":%.3f,`}, []byte(nil)
	if filepath.Ext(name) == ".csv" {
		w.csv, w.head, text = true, "%d,%.3f,", []byte("step,time,name,value\n")
	}
	if last > 0 {
		before, err := bounded.ReadFile(name, maxFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for line := range strings.Lines(string(before)) {
			var step int
			var at float64
			if n, _ := fmt.Sscanf(line, w.head, &step, &at); n > 0 && step <= last && strings.HasSuffix(line, "\n") {
				text = append(text, line...)
			}
		}
	}
	var err error
	if w.f, err = os.Create(name); err != nil {
		return nil, err
	}
	if _, err := w.f.Write(text); err != nil {
		return nil, errors.Join(err, w.f.Close())
	}
	return w, nil
}

// Write adds the values of a step. None may be named step or time.
func (w *File) Write(step int, at time.Time, values map[string]float64) error {
	for _, name := range []string{"step", "time"} {
		if _, ok := values[name]; ok {
			return fmt.Errorf("metrics: a value of step %d is named %q, as what every line begins with", step, name)
		}
	}
	head := fmt.Sprintf(w.head, step, float64(at.UnixMilli())/1000)
	var text []byte
	if w.csv {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			text = fmt.Appendf(text, "%s%s,%v\n", head, name, values[name])
		}
	} else {
		row := map[string]Number{}
		for name, v := range values {
			row[name] = Number(v)
		}
		object, err := json.Marshal(row)
		if err != nil {
			return err
		}
		text = fmt.Appendf(nil, "%s%s\n", head, object[1:])
	}
	_, err := w.f.Write(text)
	return err
}

// Close closes the file.
func (w *File) Close() error { return w.f.Close() }
