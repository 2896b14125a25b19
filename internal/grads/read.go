package grads

import (
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
	heads  []head
	lines  [][]line
	params []Norm  // without the norm
	at     [][]int // of each file's shares: the parameter; -1: another rank counts it
}

// Read returns the steps that all ranks have done.
func Read(dir string) ([]Step, error) {
	j := new(job)
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
	steps := j.steps()
	lines, err := readLines(filepath.Join(dir, losses), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return steps, nil
	}
	for _, l := range lines {
		for i := range steps {
			if steps[i].Step == l.Step {
				x := math.Float64frombits(l.Bits[0])
				steps[i].Loss = &x
			}
		}
	}
	return steps, err
}

// read reads the file of an optimizer.
func (j *job) read(name string) error {
	var h head
	lines, err := readLines(name, &h)
	for _, l := range lines {
		if len(l.Bits) != len(h.Shares) {
			return fmt.Errorf("step %d has %d sums for %d parameters", l.Step, len(l.Bits), len(h.Shares))
		}
	}
	j.heads, j.lines = append(j.heads, h), append(j.lines, lines)
	return err
}

// readLines reads a file, which may begin with a head. The end of a program may have cut the last line.
func readLines(name string, h *head) (lines []line, err error) {
	f, _, err := bounded.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := json.NewDecoder(f)
	if h != nil {
		err = d.Decode(h)
	}
	for err == nil {
		var l line
		if err = d.Decode(&l); err == nil {
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
			return fmt.Errorf("the ranks hold %d elements of %s, which has %d", sizes[i], p.Name, n)
		}
	}
	return nil
}

// steps adds up. A step that a rank has not done is none.
func (j *job) steps() (all []Step) {
	sums, sizes := map[int][]float64{}, map[int][]int{}
	for f, lines := range j.lines {
		for _, l := range lines {
			if sums[l.Step] == nil {
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
		s := Step{Step: n}
		for i, p := range j.params {
			switch sizes[n][i] {
			case 0: // that optimizer has done fewer steps
			case layout.WholeBox(p.Shape).Len():
				p.Norm = math.Sqrt(sums[n][i])
				s.Grads = append(s.Grads, p)
			default:
				return all
			}
		}
		all = append(all, s)
	}
	return all
}
