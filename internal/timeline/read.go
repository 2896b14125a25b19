package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
	"github.com/ringo-ml/ringo/internal/trace"
)

// memOfEvent is the memory of an event, in bytes, also while lists grow.
const memOfEvent = 800

// Read reads a file of Write. Memory is for what the file has, not more.
func Read(r io.Reader) ([]Rank, error) {
	d, budget := json.NewDecoder(r), bounded.New(0)
	at := map[int]*reading{}
	n, read := 0, int64(0)
	event := func() error {
		var e event
		if err := d.Decode(&e); err != nil {
			return err
		}
		budget.Grow(d.InputOffset() - read)
		read = d.InputOffset()
		if err := budget.Take(memOfEvent); err != nil {
			return err
		}
		to := at[e.Pid]
		if to == nil {
			to = &reading{Rank: Rank{Rank: e.Pid}}
			at[e.Pid] = to
		}
		if err := to.take(&e); err != nil {
			return fmt.Errorf("event %d: %w", n, err)
		}
		n++
		return nil
	}
	var other struct {
		Start string `json:"start"`
	}
	err := inside(d, '{', func() error {
		key, err := d.Token()
		switch {
		case err != nil:
			return err
		case key == "traceEvents":
			return inside(d, '[', event)
		case key == "otherData":
			return d.Decode(&other)
		}
		var skipped json.RawMessage
		return d.Decode(&skipped)
	})
	if err != nil {
		return nil, err
	}
	start, err := strconv.ParseInt(other.Start, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("it has no otherData.start: it is not a timeline of Ringo")
	}
	var out []Rank
	for _, to := range at {
		for i := range to.Spans {
			to.Spans[i].Start += start
			to.Spans[i].End += start
		}
		out = append(out, to.Rank)
	}
	slices.SortFunc(out, func(a, b Rank) int { return a.Rank - b.Rank })
	return out, nil
}

// inside calls fn for each value of a list, or each key of an object, which begins here.
func inside(d *json.Decoder, open json.Delim, fn func() error) error {
	t, err := d.Token()
	if err == nil && t != open {
		err = fmt.Errorf("%v where %v must be: it is not a timeline of Ringo", t, open)
	}
	for err == nil && d.More() {
		err = fn()
	}
	if err == nil {
		_, err = d.Token()
	}
	if t == open && err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// reading is a rank that is being read. Its spans count from the file's start.
type reading struct {
	Rank
	lanes map[string]int32
}

func (to *reading) take(e *event) error {
	if e.Ph == "M" {
		if e.Name == "process_labels" {
			to.Host, to.Dropped = e.Args.Host, e.Args.Dropped
		}
		return nil
	}
	track := slices.Index(categories[:], e.Cat)
	if e.Ph != "X" || track < 0 || e.Dur == nil {
		return fmt.Errorf("%q of category %q and phase %q is nothing that Ringo writes", e.Name, e.Cat, e.Ph)
	}
	ns := func(us float64) int64 { return int64(math.Round(us * 1e3)) }
	s := trace.Span{Name: e.Name, Track: trace.Track(track), Seq: e.Args.Seq, Start: ns(e.TS)}
	s.End = s.Start + ns(*e.Dur)
	for _, n := range []*int64{e.Args.Step, e.Args.Elements, e.Args.Bytes} {
		if n != nil {
			s.Arg = *n
		}
	}
	if e.Args.Root != nil {
		s.Root = *e.Args.Root
	}
	if e.Args.Step != nil {
		s.Name = trace.StepName
	}
	if e.Args.Lane != "" {
		var err error
		if s.Lane, err = to.lane(&e.Args); err != nil {
			return err
		}
	}
	to.Spans = append(to.Spans, s)
	return nil
}

// lane returns the number of an event's lane.
func (to *reading) lane(a *args) (int32, error) {
	if n := to.lanes[a.Lane]; n > 0 {
		return n, nil
	}
	id, err := strconv.ParseUint(a.Lane, 16, 64)
	if err != nil {
		return 0, err
	}
	l := trace.Lane{Group: a.Group, ID: id}
	for _, text := range strings.Split(a.Ranks, ",") {
		rank, err := strconv.Atoi(text)
		if err != nil {
			return 0, err
		}
		l.Ranks = append(l.Ranks, rank)
	}
	if to.lanes == nil {
		to.lanes = map[string]int32{}
	}
	to.Lanes = append(to.Lanes, l)
	to.lanes[a.Lane] = int32(len(to.Lanes))
	return to.lanes[a.Lane], nil
}

// Join joins the ranks of several files.
func Join(files ...[]Rank) ([]Rank, error) {
	all := slices.Concat(files...)
	slices.SortStableFunc(all, func(a, b Rank) int { return a.Rank - b.Rank })
	for i := range all {
		if i > 0 && all[i-1].Rank == all[i].Rank {
			return nil, fmt.Errorf("rank %d is there twice", all[i].Rank)
		}
	}
	return all, nil
}
