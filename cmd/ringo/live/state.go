package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/ringo-ml/ringo/internal/live"
	"github.com/ringo-ml/ringo/tensor/memory"
)

const (
	maxSeries = live.MaxNames
	tailLines = 200 // lines that are kept of each rank
	lineBytes = 400
)

// state is the known state of the job. It is a launch.Watcher.
type state struct {
	program string
	began   time.Time

	mu      sync.Mutex
	version int // grows with each change
	job     jobView
	rates   [3]series // of steps, samples, tokens, as rank 0 reports them
	done    [3]int    // of the same, in all generations
	seconds float64   // that these took
	values  []*series
	slow    *slowest
	ranks   []rankState
	tails   map[int][]string
}

// rankState is the last report of a rank in this generation.
type rankState struct {
	status string // "", "running", "ended" or "failed: status 1"
	memory map[string]memory.Bytes
	comm   []live.Op
}

// jobView is the state of the job.
type jobView struct {
	Program string  `json:"program"`
	State   string  `json:"state"` // "starting", "running", "ended" or "failed"
	Text    string  `json:"text"`  // why it failed
	Gen     int     `json:"generation"`
	Ranks   int     `json:"ranks"`
	Local   int     `json:"local"` // number of ranks on this host; they are the first ones
	Seconds float64 `json:"seconds"`
	Step    int     `json:"step"`
	Total   int     `json:"total"` // 0: unknown
	// Failures are those of generations, in order; behind the last one there is a restart only if Gen is larger.
	Failures []failure `json:"failures"`
}

// failure is how a generation failed.
type failure struct {
	Gen  int    `json:"generation"`
	Step int    `json:"step"` // that rank 0 had done
	Text string `json:"text"` // the first cause
}

const maxFailures = 100

func newState(program string) *state {
	s := &state{program: program, began: time.Now(), tails: map[int][]string{}, slow: &slowest{}}
	s.job = jobView{Program: program, State: "starting", Failures: []failure{}}
	s.rates = [3]series{{Name: "steps/s"}, {Name: "samples/s"}, {Name: "tokens/s"}}
	return s
}

// Started begins a generation. Values and lines stay; everything else begins again.
func (s *state) Started(gen, ranks, local int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.job.State, s.job.Gen, s.job.Ranks, s.job.Local = "running", gen, ranks, local
	s.slow, s.ranks = &slowest{ranks: ranks}, make([]rankState, ranks)
	for r := range s.ranks {
		s.ranks[r].status = "running"
	}
	if gen > 1 {
		for r := range local {
			s.addLine(r, fmt.Sprintf("— generation %d —", gen))
		}
	}
}

// Printed keeps the last lines of a rank.
func (s *state) Printed(_, rank int, lines []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	// If there are many lines, only the last ones are used.
	lines = bytes.TrimSuffix(lines, []byte("\n"))
	for from, n := len(lines), 0; ; n++ {
		if from = bytes.LastIndexByte(lines[:from], '\n'); from < 0 || n == tailLines {
			lines = lines[from+1:]
			break
		}
	}
	for line := range bytes.SplitSeq(lines, []byte("\n")) {
		s.addLine(rank, printable(line))
	}
}

// printable returns what a terminal would show at the end of a line, at most lineBytes.
func printable(line []byte) string {
	line = bytes.TrimRight(line, "\r")
	line = line[bytes.LastIndexByte(line, '\r')+1:]
	if len(line) > lineBytes {
		line = append(slices.Clone(line[:lineBytes]), " …"...)
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(line), "�"))
}

func (s *state) addLine(rank int, line string) {
	t := append(s.tails[rank], line)
	if len(t) > 2*tailLines {
		t = append([]string(nil), t[len(t)-tailLines:]...)
	}
	s.tails[rank] = t
}

// tail returns the last lines of a rank.
func (s *state) tail(rank int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tails[rank]
	return append([]string{}, t[max(0, len(t)-tailLines):]...)
}

// Shown is called with the report of a rank.
func (s *state) Shown(gen, rank int, report []byte) {
	r, err := live.Decode(report)
	if err != nil {
		return // the report is of another version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gen != s.job.Gen || rank < 0 || rank >= len(s.ranks) {
		return
	}
	s.version++
	s.ranks[rank].memory, s.ranks[rank].comm = r.Memory, r.Comm
	s.slow.add(rank, r.Step, r.Took, r.Own)
	if rank != 0 {
		return
	}
	s.job.Step, s.job.Total = r.Step, r.Total
	seconds := float64(r.Elapsed) / 1e6
	s.seconds += seconds
	for i, n := range []int{r.Steps, r.Samples, r.Tokens} {
		if s.done[i] += n; n > 0 && seconds > 0 {
			s.rates[i].add(r.Step, float64(n)/seconds)
		}
	}
	for _, v := range r.Values {
		to := s.series(v.Name)
		for i := range v.Steps {
			if to != nil {
				to.add(v.Steps[i], float64(v.Values[i]))
			}
		}
	}
}

// series returns the values of a name; nil if there are too many names.
func (s *state) series(name string) *series {
	name = strings.ToValidUTF8(name, "�") // it may be cut in the middle of a letter
	i := slices.IndexFunc(s.values, func(x *series) bool { return x.Name == name })
	if i < 0 {
		if i = len(s.values); i == maxSeries {
			return nil
		}
		s.values = append(s.values, &series{Name: name})
	}
	return s.values[i]
}

// Ended is called when a rank has ended.
func (s *state) Ended(gen, rank, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gen != s.job.Gen || rank < 0 || rank >= len(s.ranks) {
		return
	}
	s.version++
	s.ranks[rank].status = "ended"
	if status != 0 {
		s.ranks[rank].status = fmt.Sprintf("failed: status %d", status)
	}
}

// Failed is called when a generation is over that failed. It marks the ranks that are the first cause.
func (s *state) Failed(gen, first, last int, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gen != s.job.Gen {
		return
	}
	s.version++
	for r := max(first, 0); r <= last && r < len(s.ranks); r++ {
		s.ranks[r].status = "failed first" + strings.TrimPrefix(strings.TrimPrefix(s.ranks[r].status, "running"), "failed")
	}
	s.job.Failures = append(s.job.Failures, failure{gen, s.job.Step, text})
	s.job.Failures = s.job.Failures[max(0, len(s.job.Failures)-maxFailures):]
}

// finish is called when the job has ended.
func (s *state) finish(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.job.State, s.job.Seconds = "ended", time.Since(s.began).Seconds()
	if err != nil {
		s.job.State, s.job.Text = "failed", err.Error()
	}
}

// view is everything that the page shows, except the lines of ranks.
type view struct {
	Job    jobView   `json:"job"`
	Rates  []*series `json:"rates"`
	Values []*series `json:"values"`
	Kinds  []string  `json:"kinds"`  // kinds of memory
	Peaks  []int     `json:"peaks"`  // bytes of each kind, on the rank that had most
	Memory [][]int   `json:"memory"` // by rank: bytes of each kind now, and the peak of all kinds together
	Comm   []live.Op `json:"comm"`   // sums over ranks
	Slow   slowView  `json:"slow"`
	Status []string  `json:"status"` // by rank
}

// encode returns the view as JSON, and its version.
func (s *state) encode() ([]byte, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.view())
	return text, s.version, err
}

// view returns the view, which is valid while s.mu is held.
func (s *state) view() view {
	v := view{Job: s.job, Rates: []*series{&s.rates[0]}, Values: s.values, Kinds: []string{}, Memory: make([][]int, len(s.ranks)),
		Slow: s.slow.view(), Status: make([]string, len(s.ranks)), Comm: []live.Op{}}
	for i := range s.rates[1:] {
		if rate := &s.rates[1+i]; len(rate.Steps) > 0 {
			v.Rates = append(v.Rates, rate)
		}
	}
	if v.Job.State == "starting" || v.Job.State == "running" {
		v.Job.Seconds = time.Since(s.began).Seconds()
	}
	for k := memory.Parameters; k <= memory.Other; k++ {
		v.Kinds = append(v.Kinds, k.String())
	}
	v.Peaks = make([]int, len(v.Kinds))
	for r, rank := range s.ranks {
		v.Status[r] = rank.status
		for k, kind := range v.Kinds {
			v.Memory[r] = append(v.Memory[r], rank.memory[kind].Live)
			v.Peaks[k] = max(v.Peaks[k], rank.memory[kind].Peak)
		}
		v.Memory[r] = append(v.Memory[r], rank.memory["total"].Peak)
		v.Comm = addOps(v.Comm, rank.comm)
	}
	return v
}

// addOps adds the operations of a rank to sums.
func addOps(sums, ops []live.Op) []live.Op {
	for _, o := range ops {
		i := slices.IndexFunc(sums, func(s live.Op) bool { return s.Name == o.Name })
		if i < 0 {
			sums = append(sums, o)
			continue
		}
		t := &sums[i]
		t.Calls, t.Payload, t.Wire, t.Flight, t.Waited = t.Calls+o.Calls, t.Payload+o.Payload, t.Wire+o.Wire, t.Flight+o.Flight, t.Waited+o.Waited
	}
	return sums
}
