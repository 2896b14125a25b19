package data

import "cmp"

// State is the position of a Loader, for a checkpoint. It does not depend on the number of ranks.
type State struct {
	Epoch   int    `json:"epoch"` // of the next batch
	Step    int    `json:"step"`  // of the next batch in the epoch
	Seed    uint64 `json:"seed"`
	Shuffle bool   `json:"shuffle"`
	Batch   int    `json:"batch"`             // rows of the global batch
	Samples int    `json:"samples"`           // of the dataset
	Weights uint32 `json:"weights,omitempty"` // a checksum of Config.Weights
	Group   int    `json:"group,omitempty"`   // of Config; 0 in older checkpoints: not known
}

// State returns the Loader's position. In a loop's body, the current batch counts as done; after the last batch, the next one is the first
// of the next epoch.
func (l *Loader) State() State {
	return State{l.epoch, l.step, l.cfg.Seed, l.cfg.Shuffle, l.cfg.Batch, l.n, l.weights, l.cfg.Group}
}

// SetState makes the next Epoch, which must be Epoch(s.Epoch), continue from the position of s, with its seed. It is an error if the
// dataset, the global batch, Group or Shuffle differ from those of s, and during a loop. The number of ranks may differ.
func (l *Loader) SetState(s State) error {
	if !l.busy.CompareAndSwap(false, true) {
		return errorf("SetState within a loop over the Loader")
	}
	defer l.busy.Store(false)
	have := State{s.Epoch, s.Step, s.Seed, l.cfg.Shuffle, l.cfg.Batch, l.n, l.weights, l.cfg.Group}
	s.Group = cmp.Or(s.Group, have.Group)
	if s.Weights != have.Weights {
		return errorf("the state is of a Loader with other Weights, or has none")
	}
	if s != have {
		return errorf("the state is of %d samples, batch %d, group %d, shuffle %v; the Loader has %d, %d, %d, %v",
			s.Samples, s.Batch, s.Group, s.Shuffle, l.n, l.cfg.Batch, l.cfg.Group, l.cfg.Shuffle)
	}
	if s.Epoch < 0 || s.Step < 0 || s.Step >= l.steps {
		return errorf("the state is at epoch %d, step %d; an epoch has %d steps", s.Epoch, s.Step, l.steps)
	}
	l.cfg.Seed, l.epoch, l.step, l.resume = s.Seed, s.Epoch, s.Step, true
	return nil
}
