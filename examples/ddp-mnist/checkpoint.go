package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
)

// history is what the curves are drawn from; it goes into checkpoints.
type history struct {
	Losses []float64 `json:"losses"` // of the global batch, by step
	Epochs []epoch   `json:"epochs"`
}

// epoch is what is known at the end of one.
type epoch struct {
	Steps    int     `json:"steps"` // since the start
	Accuracy float64 `json:"accuracy"`
}

// state is what a checkpoint holds; loader points to the loader's state.
func (t *trainer) state(loader *data.State) ckpt.State {
	return ckpt.State{Step: t.steps, Params: t.params, Optimizer: t.opt, Tape: t.tape,
		Extra: map[string]any{"loader": loader, "history": &t.history}}
}

// saveIfDue saves after every -save-every steps, once.
func (t *trainer) saveIfDue(ctx context.Context) error {
	step := t.steps
	if t.o.save == "" || step%t.o.saveEvery != 0 || step == t.saved {
		return nil
	}
	if err := t.sumLosses(); err != nil {
		return err
	}
	loader := t.train.State()
	if err := t.saver.Save(ctx, t.state(&loader)); err != nil {
		return err
	}
	t.saved = step
	t.r.Progress(step - 1)
	return nil
}

// resume goes on from the latest checkpoint, if there is one.
func (t *trainer) resume(ctx context.Context) error {
	var found struct{ Path, Err string }
	if t.r.World.Rank() == 0 {
		path, err := ckpt.Latest(t.o.save)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			found.Err = err.Error()
		}
		found.Path = path
	}
	found, err := dist.BroadcastObject(t.stats, found, 0)
	if err != nil || found.Err != "" {
		return errors.Join(err, asError(found.Err))
	}
	if found.Path == "" {
		return nil
	}
	var loader data.State
	st := t.state(&loader)
	if _, err := ckpt.Load(ctx, t.stats, found.Path, &st, ckpt.LoadConfig{Strategy: ckpt.Broadcast}); err != nil {
		return err
	}
	t.saved, t.resumed, t.steps = st.Step, st.Step, st.Step
	return t.train.SetState(loader)
}

func asError(s string) error {
	if s == "" {
		return nil
	}
	return errors.New(s)
}
