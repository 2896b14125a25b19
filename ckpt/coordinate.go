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
func (s *Saver) coordinate(c summary, mine *rankPlan, st *State) error {
	c.Planned = mine != nil && mine == s.planned
	all, err := gather(s.g, c)
	if err != nil {
		return err
	}
	usable := !slices.ContainsFunc(all, func(c summary) bool { return !c.Planned }) // all ranks can use the last plan
	usable, err = dist.OnRank0(s.g, func() (bool, error) {
		err := compare(all)
		if err == nil && usable {
			err = s.planned.global.setState(all, st.Files)
		}
		return usable, err
	})
	if err != nil || usable {
		return err
	}
	return s.planAnew(mine, all, st)
}

// planAnew makes a new plan: rank 0 gathers the local plans of all ranks. Only rank 0 has the summaries.
func (s *Saver) planAnew(mine *rankPlan, summaries []summary, st *State) error {
	s.planned = nil
	locals, err := gather(s.g, mine.local(st))
	if err != nil {
		return err
	}
	var todo []work // of rank 0
	_, err = dist.OnRank0(s.g, func() (_ bool, err error) {
		if mine.global, todo, err = newPlan(locals, st.TP, s.fileBytes); err == nil {
			err = mine.global.setState(summaries, st.Files)
		}
		return true, err
	})
	if err != nil {
		return err
	}
	own, err := scatter(s.g, todo)
	if err == nil {
		err = mine.assign(own)
	}
	if err != nil {
		s.g.Abort(err) // the other ranks still wait
		return err
	}
	s.planned = mine
	return nil
}
