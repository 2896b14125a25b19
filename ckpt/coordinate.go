package ckpt

import (
	"errors"
	"slices"

	"github.com/ringo-ml/ringo/dist"
)

// Ranks plan a save as in PyTorch's DCP. Each rank makes a local plan: what it holds. From these, rank 0 (the
// coordinator) makes the global plan, and sends each rank its work. All ranks keep their plans. As long as no rank
// holds anything else, later saves exchange only summaries.

// work is what one rank does in a save.
type work struct {
	Err    string   // why planning failed
	Files  []string // names of all files
	Pieces []pieceWork
}

// pieceWork is a piece that a rank writes, or whose checksum it compares with other ranks.
type pieceWork struct {
	Index        int // among the pieces of all tensors
	Item, At, N  int // N elements of this item of the local plan, from element At
	File, Offset int // the file, and where the tensor begins in it, in bytes
	Mine         bool
	Shared       bool // held by several ranks
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

// coordinate plans a save of what this rank holds, and stores the plan in s.planned. All ranks return the same error.
func (s *Saver) coordinate(c summary, mine *planned, st *State) error {
	type answer struct {
		Err     string
		Planned bool // all ranks can use the last plan
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

// heard waits until all ranks have rank 0's verdict, and returns it as an error; "" means success. A rank that returns
// early may end the job, and then the others would only report that.
func (s *Saver) heard(verdict string) error {
	_ = s.g.Barrier().Wait() // an error here does not change the verdict
	return asError(verdict)
}

// planAnew makes a new plan: rank 0 gathers the local plans of all ranks. all has the summaries of all ranks (rank 0
// only).
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
		s.g.Abort(in.err) // the other ranks still wait
		return in.err
	}
	if todo.Err != "" {
		return s.heard(todo.Err)
	}
	s.planned = mine
	return nil
}

// coordinator makes the global plan and the message with its work for each rank.
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
