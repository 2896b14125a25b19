package ckpt

import (
	"fmt"
	"log/slog"
)

// warn says what a checkpoint of st lacks, so that a program that resumes would go on otherwise than one that had not stopped; but nothing
// that was said before.
func (st *State) warn(said map[string]bool) {
	for _, text := range st.lacks() {
		if !said[text] {
			slog.Warn("ckpt: a checkpoint lacks " + text)
			said[text] = true
		}
	}
}

func (st *State) lacks() (texts []string) {
	o := st.Optimizer
	if o == nil { // nobody goes on from it
		return nil
	}
	if o.Accumulates() {
		texts = append(texts, "the gradients of microbatches that wait for a step: save behind the optimizer's Step")
	}
	other, drew := "", ""
	for _, p := range st.Params {
		if p.LossScale() != 0 && !p.Frozen() && o.RuleOf(p) == "" {
			other = p.Name()
		}
		if p.DrawsBeside(st.Tape) {
			drew = p.Name()
		}
	}
	if other != "" {
		texts = append(texts, fmt.Sprintf("moments and step counts of %s, which has another optimizer than State.Optimizer: save it in a State "+
			"of its own, with a Saver for another folder", other))
	}
	if drew != "" {
		texts = append(texts, fmt.Sprintf("the random numbers of dropout or the like: the tape that used %s is not State.Tape, and would begin "+
			"with those of its first step again; use one tape, or save the other in a State of its own", drew))
	}
	return texts
}
