package live

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Recorder keeps what a rank's training loop does until the next report. The methods of a nil *Recorder do nothing; a rank that nobody
// watches has nil. It is a metrics.Writer.
type Recorder struct {
	waited func() time.Duration // how long the rank has waited for other ranks so far

	mu      sync.Mutex
	step    int
	total   int
	samples int // since the last report, as tokens
	tokens  int
	last    time.Time     // end of the last step
	from    time.Time     // the same at the last report
	before  time.Duration // result of waited at that time
	took    [MaxSteps]int // µs; step s has index s modulo MaxSteps
	own     [MaxSteps]int
	fresh   int // steps since the last report
	names   []string
	points  []point // ring of MaxPoints
	put     int     // number of points that were put into it since the last report
}

type point struct {
	name, step int
	value      float64
}

// NewRecorder returns a Recorder. waited returns how long the rank has waited for others since it began.
func NewRecorder(waited func() time.Duration) *Recorder {
	return &Recorder{waited: waited, points: make([]point, MaxPoints)}
}

// Begin sets how many steps were done before now, and how many there will be.
func (r *Recorder) Begin(done, total int) {
	if r == nil {
		return
	}
	before := r.waited()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.total, r.last, r.before = done, total, time.Now(), before
	r.from, r.fresh, r.samples, r.tokens = r.last, 0, 0, 0
}

// Step is called after each step, which used so many samples, and tokens, on all ranks together. It allocates nothing.
func (r *Recorder) Step(samples, tokens int) {
	if r == nil {
		return
	}
	waited, now := r.waited(), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	took := now.Sub(r.last)
	i := r.step % MaxSteps
	r.took[i], r.own[i] = int(took.Microseconds()), int(max(0, took-(waited-r.before)).Microseconds())
	r.step++
	r.fresh++
	r.samples, r.tokens = r.samples+samples, r.tokens+tokens
	r.last, r.before = now, waited
}

// Write keeps values of a step that are the same on all ranks.
func (r *Recorder) Write(step int, _ time.Time, values map[string]float64) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		name, value := name[:min(len(name), MaxName)], values[name]
		i := slices.Index(r.names, name)
		if i < 0 {
			if len(r.names) == MaxNames {
				continue
			}
			i = len(r.names)
			r.names = append(r.names, name)
		}
		r.points[r.put%MaxPoints] = point{i, step, value}
		r.put++
	}
	return nil
}

// Close does nothing: the rank sends the last report, not the training loop.
func (r *Recorder) Close() error { return nil }

// Take moves everything since the last call into a report.
func (r *Recorder) Take(into *Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	into.Step, into.Total, into.Steps, into.Samples, into.Tokens = r.step, r.total, r.fresh, r.samples, r.tokens
	into.Elapsed = r.last.Sub(r.from).Microseconds()
	for s := r.step - min(r.fresh, MaxSteps); s < r.step; s++ {
		into.Took = append(into.Took, r.took[s%MaxSteps])
		into.Own = append(into.Own, r.own[s%MaxSteps])
	}
	all := make([]Values, len(r.names))
	for i := max(0, r.put-MaxPoints); i < r.put; i++ {
		p := r.points[i%MaxPoints]
		v := &all[p.name]
		v.Name, v.Steps, v.Values = r.names[p.name], append(v.Steps, p.step), append(v.Values, Number(p.value))
	}
	into.Values = slices.DeleteFunc(all, func(v Values) bool { return v.Name == "" })
	r.from, r.fresh, r.samples, r.tokens, r.put = r.last, 0, 0, 0, 0
}
