package values

import (
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// window is how many values of a name stay on the device at most.
const window = 512

// gatherEvery is about how often Step says that it is time to gather.
const gatherEvery = 500 * time.Millisecond

// Table has the values of one rank.
type Table struct {
	Series []*metrics.Series // what all ranks know, in the order of first use
	Done   int               // steps that are over
	Known  int               // those of the last Gather
	Each   bool              // gather after each step: a rank that is lost takes no more with it
	Bad    Bad               // the first step whose loss is not finite
	Best   string            // the value by which a checkpoint is the best

	g       *dist.Group
	dev     tensor.Device
	columns []*column                  // by name
	rows    map[int]map[string]float64 // values by step and name that the writers have not got
	writers []metrics.Writer
	at      int             // the step that values belong to: the one that runs, or the last one
	added   []logged        // by Add since the last Gather
	warned  map[string]bool // names of which ranks had other values
	before  map[string]int  // the step of the last value that a checkpoint has of a name, unless it is measured again

	since    int // steps since the last Gather
	every    int // steps from one Gather to the next
	gathered time.Time
}

// Loss is the name of the value that must be finite.
const Loss = "loss"

// Bad is a step, from 1, whose loss is not finite, and the first rank whose part is not. The zero Bad is none.
type Bad struct{ Step, Rank int }

// column is what Sum got of a name since the last Gather.
type column struct {
	name  string
	parts tensor.Tensor   // on the device
	part  []tensor.Tensor // views of it
	zero  tensor.Tensor   // a view, too
	steps []int           // of each
}

// New returns a Table whose values are summed over g, and stay on dev until then.
func New(g *dist.Group, dev tensor.Device) *Table {
	return &Table{g: g, dev: dev, rows: map[int]map[string]float64{}, warned: map[string]bool{}, every: 1, gathered: time.Now()}
}

// Full reports whether Sum has no place for a name: Gather makes it.
func (t *Table) Full(name string) bool { return len(t.column(name).steps) == window }

// Sum adds a rank's part, one number, to the step's value. What ranks have whole counts on the first of them. Sum copies part,
// and waits for nothing.
func (t *Table) Sum(name string, part tensor.Tensor) {
	c := t.column(name)
	if c.part == nil {
		c.parts = tensor.New(t.dev, part.DType(), window+1)
		c.zero = c.parts.Range(window, window+1)
		for k := range window {
			c.part = append(c.part, c.parts.Range(k, k+1))
		}
	}
	if !t.g.First(part.Whole()) {
		part = c.zero
	}
	tensor.Copy(c.part[len(c.steps)], part)
	c.steps = append(c.steps, t.at)
}

func (t *Table) column(name string) *column {
	i, found := slices.BinarySearchFunc(t.columns, name, func(c *column, name string) int { return strings.Compare(c.name, name) })
	if !found {
		t.columns = slices.Insert(t.columns, i, &column{name: name})
		t.series(name) // in the order of calls: the first one is shown while steps run
	}
	return t.columns[i]
}

// Add adds to the step's value what all ranks know.
func (t *Table) Add(name string, value float64) {
	t.add(name, t.at, value)
	t.added = append(t.added, logged{Name: name, Step: t.at})
}

func (t *Table) add(name string, step int, value float64) {
	if t.rows[step] == nil {
		t.rows[step] = map[string]float64{}
	}
	s := t.series(name)
	i, found := slices.BinarySearch(s.Steps, step) // sums of ranks come later than what all of them know
	if !found {
		s.Steps, s.Values = slices.Insert(s.Steps, i, step), slices.Insert(s.Values, i, 0)
	}
	if was, ok := t.before[name]; ok && was == step {
		s.Values[i] = 0
		delete(t.before, name)
	}
	s.Values[i] += value
	t.rows[step][name] = s.Values[i]
}

func (t *Table) series(name string) *metrics.Series {
	i := slices.IndexFunc(t.Series, func(s *metrics.Series) bool { return s.Name == name })
	if i < 0 {
		i = len(t.Series)
		t.Series = append(t.Series, &metrics.Series{Name: name})
	}
	return t.Series[i]
}

// Of returns the steps and the values of a name.
func (t *Table) Of(name string) (steps []int, values []float64) {
	for _, s := range t.Series {
		if s.Name == name {
			return slices.Clone(s.Steps), slices.Clone(s.Values)
		}
	}
	return nil, nil
}

// Until returns the values of so many steps.
func (t *Table) Until(steps int) (list []*metrics.Series) {
	for _, s := range t.Series {
		n, _ := slices.BinarySearch(s.Steps, steps+1)
		list = append(list, &metrics.Series{Name: s.Name, Steps: s.Steps[:n], Values: s.Values[:n]})
	}
	return list
}

// Part returns what this rank has added to a step's value of a name since the last Gather. It waits for the device.
func (t *Table) Part(name string, step int) (sum float64, ok bool) {
	for _, c := range t.columns {
		for i, s := range c.steps {
			if c.name == name && s == step {
				sum, ok = sum+tensor.Floats(c.part[i])[0], true
			}
		}
	}
	return sum, ok
}

// Resume begins behind so many steps, with the values of a checkpoint. What is measured of the last step again takes their place.
func (t *Table) Resume(done int, series []*metrics.Series) {
	t.Done, t.at, t.Series, t.before = done, done, series, map[string]int{}
	for _, s := range series {
		if n := len(s.Steps); n > 0 {
			t.before[s.Name] = s.Steps[n-1]
		}
	}
}

// Begin begins a step.
func (t *Table) Begin() { t.at = t.Done + 1 }

// Step ends a step, and reports whether it is time to gather.
func (t *Table) Step() bool {
	t.Done++
	t.since++
	return t.since >= t.every
}

// Gather waits for the device, and sums the parts of all ranks. With them each rank sends a note and a flag; Gather returns the notes of
// all ranks, and whether one has the flag. It is collective.
func (t *Table) Gather(note float64, flag bool) (notes []float64, flagged bool, err error) {
	var mine []float64
	var calls []byte
	for _, c := range t.columns {
		if len(c.steps) > 0 {
			mine = append(mine, tensor.Floats(c.parts.Range(0, len(c.steps)))...)
			calls = fmt.Appendf(calls, "%q%v", c.name, c.steps)
		}
	}
	added := t.logged()
	mark := 0.0
	if flag {
		mark = 1
	}
	head, err := t.gather([]float64{note, mark, float64(t.pace()), float64(crc32.ChecksumIEEE(calls)),
		float64(crc32.ChecksumIEEE(fmt.Append(nil, added)))})
	if err != nil {
		return nil, false, err
	}
	alike := true
	for k := 0; k < len(head); k += 5 {
		if notes, flagged, alike = append(notes, head[k]), flagged || head[k+1] != 0, alike && head[k+4] == head[4]; head[k+3] != head[3] {
			return nil, false, t.differ()
		}
	}
	if !alike {
		if err := t.takeFirst(added); err != nil {
			return nil, false, err
		}
	}
	all, err := t.gather(mine)
	if err != nil {
		return nil, false, err
	}
	t.Known, t.added = t.Done, t.added[:0]
	t.every, t.since, t.gathered = int(head[2]), 0, time.Now() // as rank 0 says
	at, n := 0, len(mine)
	for _, c := range t.columns {
		for i, step := range c.steps {
			sum := 0.0
			for k := at + i; k < len(all); k += n { // in the order of ranks: the same bits again
				if sum += all[k]; c.name == Loss && t.Bad.Step == 0 && sum-sum != 0 {
					t.Bad = Bad{step, k / n}
				}
			}
			t.add(c.name, step, sum)
		}
		at += len(c.steps)
		c.steps = c.steps[:0]
	}
	return notes, flagged, nil
}

// gather returns what all ranks have, in their order.
func (t *Table) gather(mine []float64) (all []float64, err error) {
	all = make([]float64, len(mine)*t.g.Size())
	return all, t.g.AllGather(tensor.FromSlice(all, len(all)), tensor.FromSlice(mine, len(mine))).Wait()
}

// pace is how many steps to make until the next Gather.
func (t *Table) pace() int {
	if t.Each {
		return 1
	}
	if t.since == 0 {
		return t.every
	}
	each := max(1, time.Since(t.gathered)/time.Duration(t.since))
	return min(max(1, int(gatherEvery/each)), window)
}

// To has Write give values to w as well, from now on, and Close close it.
func (t *Table) To(w metrics.Writer) { t.writers = append(t.writers, w) }

// Write gives the values of steps that are over to the writers.
func (t *Table) Write() (err error) {
	for _, step := range slices.Sorted(maps.Keys(t.rows)) {
		if step > t.Done {
			break
		}
		for _, w := range t.writers {
			err = errors.Join(err, w.Write(step, time.Now(), t.rows[step]))
		}
		delete(t.rows, step)
	}
	return err
}

// Close closes the writers.
func (t *Table) Close() (err error) {
	for _, w := range t.writers {
		err = errors.Join(err, w.Close())
	}
	t.writers = nil
	return err
}
