package ckpt

import (
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

// planAnew makes a new plan: rank 0 gathers the local plans of all ranks. Only rank 0 has the summaries.
func (s *Saver) planAnew(mine *planned, summaries []summary, st *State) error {
	s.planned = nil
	locals, err := gatherObjects(s.g, mine.local(st))
	if err != nil {
		return err
	}
	var all []work
	if s.g.Rank() == 0 {
		mine.global, all = coordinator(locals, summaries, st, s.fileBytes)
	}
	todo, err := scatter(s.g, all)
	if err == nil && todo.Err == "" {
		if err = mine.assign(todo); err != nil {
			s.g.Abort(err) // the other ranks still wait
		}
	}
	if err != nil {
		return err
	}
	if todo.Err != "" {
		return s.heard(todo.Err)
	}
	s.planned = mine
	return nil
}

// coordinator makes the global plan and the work of each rank.
func coordinator(locals []localPlan, summaries []summary, st *State, fileBytes int64) (*plan, []work) {
	p, todo, err := newPlan(locals, st.TP, fileBytes)
	if err == nil {
		err = p.setState(summaries, st.Files)
	}
	if err != nil {
		todo = slices.Repeat([]work{{Err: err.Error()}}, len(locals))
	}
	return p, todo
}
