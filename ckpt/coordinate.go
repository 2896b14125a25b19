package ckpt

import (
	"errors"
	"slices"

	"github.com/ringo-ml/ringo/dist"
)

// Ranks plan a save as in PyTorch's DCP. Each one has a local plan: what it holds. Rank 0, the coordinator, makes the global plan of
// them, and tells each rank its work. They keep all of it: while every rank holds the same as before, a save exchanges summaries alone.

// work is what a rank does in a save.
type work struct {
	Err    string   // of planning
	Files  []string // names
	Pieces []pieceWork
}

// pieceWork is a piece that a rank writes, or that it compares with other ranks.
type pieceWork struct {
	Index        int // its place among all pieces
	Item, At, N  int // N elements from At on of this item of the local plan
	File, Offset int // where the tensor begins
	Mine         bool
	Shared       bool // several ranks hold it
}

func (o *work) wire(w *wire) {
	w.text(&o.Err)
	wireList(w, &o.Files, w.text)
	wireList(w, &o.Pieces, func(x *pieceWork) {
		for _, n := range []*int{&x.Index, &x.Item, &x.At, &x.N, &x.File, &x.Offset} {
			w.int(n)
		}
		w.bool(&x.Mine)
		w.bool(&x.Shared)
	})
}

// coordinate plans a save of what this rank holds, and leaves the plan in s.planned. All ranks return the same error.
func (s *Saver) coordinate(c summary, mine *planned, st *State) error {
	type answer struct {
		Err     string
		Planned bool // by the last save
	}
	c.Planned = mine != nil && mine == s.planned
	all, err := gatherObjects(s.g, c)
	if err != nil {
		return err
	}
	var a answer
	if s.g.Rank() == 0 {
		err := compare(all)
		if a.Planned = !slices.ContainsFunc(all, func(c summary) bool { return !c.Planned }); a.Planned && err == nil {
			err = s.planned.global.setState(all, st.Files)
		}
		if err != nil {
			a.Err = err.Error()
		}
	}
	if a, err = dist.BroadcastObject(s.g, a, 0); err != nil {
		return err
	}
	switch {
	case a.Err != "":
		return s.heard(a.Err)
	case a.Planned:
		return nil
	}
	return s.planAnew(mine, all, st)
}

// heard returns rank 0's verdict, "" for none wrong, when all ranks have it: a rank that returns may end the job, and others would hear
// of that alone.
func (s *Saver) heard(verdict string) error {
	_ = s.g.Barrier().Wait() // the verdict stays, whatever happens now
	return asError(verdict)
}

// planAnew has rank 0 plan with the local plans of all ranks; all has their summaries there.
func (s *Saver) planAnew(mine *planned, all []summary, st *State) error {
	s.planned = nil
	out, local := &wire{}, mine.local(st)
	local.wire(out)
	texts, err := gather(s.g, out.b)
	if err != nil {
		return err
	}
	var tell [][]byte
	if s.g.Rank() == 0 {
		mine.global, tell = coordinator(texts, all, st, s.fileBytes)
	}
	told, err := scatter(s.g, tell)
	if err != nil {
		return err
	}
	var todo work
	in := &wire{b: told, reads: true}
	if todo.wire(in); in.err == nil && todo.Err == "" {
		in.err = mine.assign(todo)
	}
	if in.err != nil {
		s.g.Abort(in.err) // the others go on
		return in.err
	}
	if todo.Err != "" {
		return s.heard(todo.Err)
	}
	s.planned = mine
	return nil
}

// coordinator makes the global plan, and what each rank is told.
func coordinator(texts [][]byte, all []summary, st *State, fileBytes int64) (*plan, [][]byte) {
	locals := make([]localPlan, len(texts))
	var errs []error
	for r, text := range texts {
		in := &wire{b: text, reads: true}
		locals[r].wire(in)
		errs = append(errs, in.err)
	}
	var p *plan
	var todo []work
	err := errors.Join(errs...)
	if err == nil {
		p, todo, err = newPlan(locals, st.TP, fileBytes)
	}
	if err == nil {
		err = p.setState(all, st.Files)
	}
	if err != nil {
		todo = slices.Repeat([]work{{Err: err.Error()}}, len(texts))
	}
	tell := make([][]byte, len(todo))
	for r := range todo {
		out := &wire{}
		todo[r].wire(out)
		tell[r] = out.b
	}
	return p, tell
}
