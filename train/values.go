package train

import (
	"errors"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Writer takes values on rank 0: see Loop.To.
type Writer interface {
	// Write takes values of one step, which became known at a time.
	Write(step int, at time.Time, values map[string]float64) error
	Close() error
}

// window is how many values of a name stay on the device at most.
const window = 512

// lookEvery is about how often the loop reads values and hears of signals.
const lookEvery = 500 * time.Millisecond

// column is what Sum got of a name since the last Flush.
type column struct {
	name  string
	parts tensor.Tensor   // on the device
	part  []tensor.Tensor // views of it
	steps []int           // of each
}

// series are the values of a name that all ranks know, in the order of steps.
type series struct {
	Name   string           `json:"name"`
	Steps  []int            `json:"steps"`
	Values []metrics.Number `json:"values"`
}

// Sum adds part, one number, to the step's value of a name. The parts of all ranks add up to it, as those of a loss do under
// ddp and fsdp; several parts in one step, those of microbatches, as well. It copies part and waits for nothing.
func (l *Loop) Sum(name string, part tensor.Tensor) {
	i := slices.IndexFunc(l.columns, func(c *column) bool { return c.name == name })
	if i < 0 {
		i = len(l.columns)
		c := &column{name: name, parts: tensor.New(l.r.Device, part.DType(), window)}
		for k := range window {
			c.part = append(c.part, c.parts.Range(k, k+1))
		}
		l.columns = append(l.columns, c)
		l.series(name) // in the order of calls: the first one is shown while steps run
	}
	c := l.columns[i]
	if len(c.steps) == window && l.err == nil {
		l.err = l.Flush()
	}
	if l.err == nil {
		tensor.Copy(c.part[len(c.steps)], part)
		c.steps = append(c.steps, l.steps+1)
	}
}

// Log notes a value of the step that all ranks know, such as an accuracy.
func (l *Loop) Log(name string, value float64) { l.add(name, l.steps+1, value) }

// Values returns the steps, from 1 on, and the values of a name, those of before a resume included. What Sum got since the
// last Flush is not among them.
func (l *Loop) Values(name string) (steps []int, values []float64) {
	for _, s := range l.kept.Values {
		if s.Name == name {
			for _, v := range s.Values {
				values = append(values, float64(v))
			}
			return slices.Clone(s.Steps), values
		}
	}
	return nil, nil
}

// add notes a value; values of one step add up.
func (l *Loop) add(name string, step int, value float64) {
	s := l.series(name)
	if l.rows[step] == nil {
		l.rows[step] = map[string]float64{}
	}
	l.rows[step][name] += value
	if n := len(s.Steps); n > 0 && s.Steps[n-1] == step {
		s.Values[n-1] += metrics.Number(value)
		return
	}
	s.Steps, s.Values = append(s.Steps, step), append(s.Values, metrics.Number(value))
}

// series returns the values of a name.
func (l *Loop) series(name string) *series {
	i := slices.IndexFunc(l.kept.Values, func(s *series) bool { return s.Name == name })
	if i < 0 {
		i = len(l.kept.Values)
		l.kept.Values = append(l.kept.Values, &series{Name: name})
	}
	return l.kept.Values[i]
}

// Flush waits for the device and makes the values of all steps so far those of all ranks. The loop calls it about twice a
// second; call it on all ranks before Values.
func (l *Loop) Flush() error {
	l.r.Trace.Phase("values")
	defer l.r.Trace.Phase("")
	mine := []float64{float64(l.hear.Load()), float64(l.pace())}
	for _, c := range l.columns {
		mine = append(mine, tensor.Floats(c.parts.Range(0, len(c.steps)))...)
	}
	n := len(mine)
	all := make([]float64, n*l.g.Size())
	if err := l.g.AllGather(tensor.FromSlice(all, len(all)), tensor.FromSlice(mine, n)).Wait(); err != nil {
		return err
	}
	l.next = int(all[1]) // rank 0's
	for k := 0; k < len(all); k += n {
		if l.signal == 0 {
			l.signal = syscall.Signal(all[k])
		}
	}
	at := 2
	for _, c := range l.columns {
		for i, step := range c.steps {
			sum := 0.0
			for k := at + i; k < len(all); k += n { // in the order of ranks: the same bits again
				sum += all[k]
			}
			l.add(c.name, step, sum)
		}
		at += len(c.steps)
		c.steps = c.steps[:0]
	}
	l.since, l.flushed = 0, time.Now()
	l.show.update(l)
	return l.write()
}

// pace is how many steps to make until the next Flush.
func (l *Loop) pace() int {
	if l.since == 0 {
		return l.next
	}
	return min(max(1, int(lookEvery/max(1, time.Since(l.flushed)/time.Duration(l.since)))), window)
}

// To has the loop give values to w as well, from now on, and close it. Call it on rank 0.
func (l *Loop) To(w Writer) { l.writers = append(l.writers, w) }

// write gives the values of steps that are done to the writers.
func (l *Loop) write() (err error) {
	for _, step := range slices.Sorted(maps.Keys(l.rows)) {
		if step > l.steps {
			break
		}
		for _, w := range l.writers {
			err = errors.Join(err, w.Write(step, time.Now(), l.rows[step]))
		}
		delete(l.rows, step)
	}
	return err
}

func (l *Loop) closeWriters() (err error) {
	for _, w := range l.writers {
		err = errors.Join(err, w.Close())
	}
	l.writers = nil
	return err
}
