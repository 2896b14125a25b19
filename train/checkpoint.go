package train

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
)

// tryFiles finds out, before training, whether what is to be written can be. What it makes stays, empty.
func (l *Loop) tryFiles() error {
	if l.o.Save != "" {
		if err := os.MkdirAll(l.o.Save, 0o777); err != nil {
			return fmt.Errorf("-save: %w", err)
		}
		f, err := os.CreateTemp(l.o.Save, ".writable")
		if err != nil {
			return fmt.Errorf("-save: %w", err)
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return fmt.Errorf("-save: %w", err)
		}
	}
	timeline, _ := l.o.traceFile(0)
	for flag, name := range map[string]string{"-metrics": l.o.Metrics, "-plot": l.o.Plot, "-trace": timeline} {
		if name == "" {
			continue
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

// keep is how many checkpoints stay.
const keep = 3

// kept is what a checkpoint holds of the loop.
type kept struct {
	Loader data.State `json:"loader"`
	Values []*series  `json:"values"`
}

// current is what a checkpoint holds.
func (l *Loop) current() ckpt.State {
	st := l.state
	st.Step, st.Extra = l.steps, map[string]any{"train": &l.kept}
	for name, x := range l.state.Extra {
		st.Extra[name] = x
	}
	return st
}

func (l *Loop) save() error {
	l.r.Trace.Phase("checkpoint")
	defer l.r.Trace.Phase("")
	if l.source != nil {
		l.kept.Loader = l.source.State()
	}
	if err := l.saver.Save(l.ctx, l.current()); err != nil {
		return err
	}
	l.saved = l.steps
	l.r.Progress(l.steps - 1)
	return nil
}

// resume loads the newest checkpoint that rank 0 sees, if that was asked for and there is one.
func (l *Loop) resume() error {
	var path string
	if err := l.onZero(func() (err error) {
		path, err = ckpt.Latest(l.o.Save)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil && !l.o.Resume:
			return fmt.Errorf("-save: %s holds checkpoints; -resume goes on from them", l.o.Save)
		}
		return err
	}); err != nil {
		return err
	}
	path, err := dist.BroadcastObject(l.g, path, 0)
	if err != nil || path == "" {
		return err
	}
	strategy, err := l.strategy()
	if err != nil {
		return err
	}
	st := l.current()
	if _, err := ckpt.Load(l.ctx, l.g, path, &st, ckpt.LoadConfig{Strategy: strategy}); err != nil {
		return err
	}
	l.steps, l.resumed, l.saved = st.Step, st.Step, st.Step
	l.Logf("resumed at step %d", st.Step)
	return nil
}

// strategy is Broadcast where every rank has everything: one rank reads then.
func (l *Loop) strategy() (ckpt.Strategy, error) {
	parts := []float64{0}
	for _, p := range l.state.Params {
		if p.Local.Len() != p.GlobalLen() {
			parts[0]++
		}
	}
	if err := l.g.SumFloats(parts); err != nil || parts[0] > 0 {
		return ckpt.Sharded, err
	}
	return ckpt.Broadcast, nil
}
