package timeline

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/internal/trace"
)

// Read reads a file of Write.
func Read(r io.Reader) ([]Rank, error) {
	var f file
	if err := json.NewDecoder(r).Decode(&f); err != nil {
		return nil, err
	}
	start, err := strconv.ParseInt(f.Other.Start, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("it has no otherData.start: it is not a timeline of Ringo")
	}
	at := map[int]*reading{}
	for i := range f.Events {
		e := &f.Events[i]
		to := at[e.Pid]
		if to == nil {
			to = &reading{Rank: Rank{Rank: e.Pid}, lanes: map[string]int32{}}
			at[e.Pid] = to
		}
		if err := to.take(e, start); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
	}
	var out []Rank
	for _, to := range at {
		out = append(out, to.Rank)
	}
	slices.SortFunc(out, func(a, b Rank) int { return a.Rank - b.Rank })
	return out, nil
}

// reading is a rank that is being read.
type reading struct {
	Rank
	lanes map[string]int32
}

func (to *reading) take(e *event, start int64) error {
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
	s := trace.Span{Name: e.Name, Track: trace.Track(track), Seq: e.Args.Seq, Start: start + ns(e.TS)}
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
