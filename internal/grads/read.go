package grads

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/layout"
)

// Step has the gradients of one step of the optimizers, over the whole job.
type Step struct {
	Step  int
	Loss  *float64 // where train.Start knows it
	Grads []Norm   // in the order of the model
}

// Norm is the 2-norm of a parameter's gradient before clipping.
type Norm struct {
	Name  string
	Shape []int // of the model's tensor
	Norm  float64
}

// job is what all files have.
type job struct {
	budget *bounded.Budget
	heads  []head
	lines  [][]line
	params []Norm  // without the norm
	sizes  []int   // of the parameters
	at     [][]int // of each file's shares: the parameter; -1: another rank counts it
}

// Memory in bytes, also while lists grow: of a number, of an object (a line, a share), and of a parameter in a step.
const (
	memOfNumber = 48
	memOfObject = 600
	memOfNorm   = 128
)

// Read returns the steps that all ranks have done.
func Read(dir string) ([]Step, error) {
	j := &job{budget: bounded.New(0)}
	names, err := filepath.Glob(filepath.Join(dir, "*.grads"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := j.read(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := j.share(); err != nil {
		return nil, err
	}
	steps, err := j.steps()
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, losses)
	lines, err := j.readLines(name, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return steps, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	loss := map[int]*float64{}
	for _, l := range lines {
		if len(l.Bits) != 1 {
			return nil, fmt.Errorf("%s: step %d has %d losses", name, l.Step, len(l.Bits))
		}
		x := math.Float64frombits(l.Bits[0])
		loss[l.Step] = &x
	}
	for i := range steps {
		steps[i].Loss = loss[steps[i].Step]
	}
	return steps, nil
}

// read reads the file of an optimizer.
func (j *job) read(name string) error {
	var h head
	lines, err := j.readLines(name, &h)
	for _, l := range lines {
		if len(l.Bits) != len(h.Shares) {
			return fmt.Errorf("step %d has %d sums for %d parameters", l.Step, len(l.Bits), len(h.Shares))
		}
	}
	j.heads, j.lines = append(j.heads, h), append(j.lines, lines)
	return err
}

// readLines reads a file, which may begin with a head. The end of a program may have cut the last line.
func (j *job) readLines(name string, h *head) (lines []line, err error) {
	f, size, err := bounded.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	j.budget.Grow(size)
	d, text := json.NewDecoder(f), json.RawMessage(nil)
	decode := func(to any) error {
		if err := d.Decode(&text); err != nil {
			return err
		}
		count := func(what string) int64 { return int64(bytes.Count(text, []byte(what))) }
		if err := j.budget.Take(count(",")*memOfNumber + (count("{")+count("null"))*memOfObject); err != nil {
			return err
		}
		return json.Unmarshal(text, to)
	}
	if h != nil {
		err = decode(h)
	}
	for err == nil {
		var l line
		if err = decode(&l); err == nil {
			lines = append(lines, l)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return lines, err
}

// share finds the parameters, and which rank counts which part (layout.Counted). The ranks must hold each element.
func (j *job) share() error {
	var held []layout.Held[string]
	for _, h := range j.heads {
		for _, s := range h.Shares {
			held = append(held, layout.Held[string]{Of: fmt.Sprint(h.Optimizer, s.Name, s.Of), Lo: s.Lo, Hi: s.Hi})
		}
	}
	counted, at, sizes := layout.Counted(held), map[string]int{}, []int(nil)
	for _, h := range j.heads {
		var of []int
		for k, s := range h.Shares {
			name := s.Name
			if h.Optimizer > 0 {
				name = fmt.Sprintf("%s of optimizer %d", s.Name, h.Optimizer+1)
			}
			i, known := at[name]
			if !known {
				i = len(j.params)
				at[name] = i
				j.params, sizes = append(j.params, Norm{Name: name, Shape: s.Shape}), append(sizes, 0)
			}
			if counted[k] {
				sizes[i] += s.Hi - s.Lo
			} else {
				i = -1
			}
			of = append(of, i)
		}
		j.at, counted = append(j.at, of), counted[len(h.Shares):]
	}
	for i, p := range j.params {
		if n := layout.WholeBox(p.Shape).Len(); sizes[i] != n {
			return fmt.Errorf("the ranks hold %d elements of %s, which has %d", sizes[i], bounded.Plain(p.Name), n)
		}
	}
	j.sizes = sizes
	return nil
}

// steps adds up. A step that a rank has not done is none.
func (j *job) steps() (all []Step, err error) {
	sums, sizes := map[int][]float64{}, map[int][]int{}
	for f, lines := range j.lines {
		for _, l := range lines {
			if sums[l.Step] == nil {
				if err := j.budget.Take(memOfNorm * int64(1+len(j.params))); err != nil {
					return nil, err
				}
				sums[l.Step], sizes[l.Step] = make([]float64, len(j.params)), make([]int, len(j.params))
			}
			for k, i := range j.at[f] {
				if i >= 0 {
					sums[l.Step][i] += math.Float64frombits(l.Bits[k])
					sizes[l.Step][i] += j.heads[f].Shares[k].Hi - j.heads[f].Shares[k].Lo
				}
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(sums)) {
		s := Step{Step: n, Grads: make([]Norm, 0, len(j.params))}
		for i, p := range j.params {
			switch sizes[n][i] {
			case 0: // that optimizer has done fewer steps
			case j.sizes[i]:
				p.Norm = math.Sqrt(sums[n][i])
				s.Grads = append(s.Grads, p)
			default:
				return all, nil
			}
		}
		all = append(all, s)
	}
	return all, nil
}
