package grads

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// The environment variables that ask for the files.
const (
	Dir   = "RINGO_GRADS"       // the folder, which is there
	Steps = "RINGO_GRADS_STEPS" // if set, how many steps each optimizer does: the next one is an error
)

// Share is what a rank holds of a parameter: elements Lo to Hi-1 of what Of names.
type Share struct {
	Name   string
	Shape  []int // of the model's tensor
	Of     string
	Lo, Hi int
}

// head is the first line of a file.
type head struct {
	Optimizer int // of its rank, from 0 on
	Shares    []Share
}

// line is one step.
type line struct {
	Step int      // from 1 on
	Bits []uint64 // of float64s, which may be NaN
}

// File is the file of one optimizer.
type File struct {
	name        string
	step, limit int
}

var files struct {
	sync.Mutex
	number     int         // of files of this process
	optimizers map[any]int // of each rank
}

// Wanted reports whether anything asks for the file.
func (f *File) Wanted() bool { return f.name != "" }

// Create begins the file of an optimizer that has done some steps, if it is wanted. A rank is any value that its optimizers have in common.
func Create(rank any, done int, shares func() []Share) (*File, error) {
	dir, f := os.Getenv(Dir), &File{step: done}
	if dir == "" {
		return f, nil
	}
	if text := os.Getenv(Steps); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s=%s: want a number of steps", Steps, text)
		}
		f.limit = done + n
	}
	files.Lock()
	defer files.Unlock()
	if files.optimizers == nil {
		files.optimizers = map[any]int{}
	}
	f.name = filepath.Join(dir, fmt.Sprintf("%08d-%06d.grads", os.Getpid(), files.number))
	if err := f.append(head{files.optimizers[rank], shares()}); err != nil {
		return nil, err
	}
	files.number++
	files.optimizers[rank]++
	return f, nil
}

// Step adds a step: the sums of squares, in the order of the shares.
func (f *File) Step(squares []float64) error {
	if f.limit > 0 && f.step == f.limit {
		return fmt.Errorf("%s=%s: this optimizer has done its steps", Steps, os.Getenv(Steps))
	}
	f.step++
	return f.add(f.step, squares...)
}

const losses = "losses"

// Losses writes the losses of a training, if they are wanted: a metrics.Writer.
type Losses struct{}

// Write writes the loss among the values of a step.
func (Losses) Write(step int, _ time.Time, values map[string]float64) error {
	dir := os.Getenv(Dir)
	if x, ok := values["loss"]; ok && dir != "" {
		return (&File{name: filepath.Join(dir, losses)}).add(step, x)
	}
	return nil
}

// Close does nothing.
func (Losses) Close() error { return nil }

func (f *File) add(step int, x ...float64) error {
	l := line{Step: step}
	for _, x := range x {
		l.Bits = append(l.Bits, math.Float64bits(x))
	}
	return f.append(l)
}

func (f *File) append(x any) error {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(x); err != nil {
		return err
	}
	file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return fmt.Errorf("%s: %w", Dir, err)
	}
	_, err = file.Write(text.Bytes())
	return errors.Join(err, file.Close())
}
