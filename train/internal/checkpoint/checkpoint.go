package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train/internal/values"
	"github.com/ringo-ml/ringo/train/internal/zero"
	"github.com/ringo-ml/ringo/train/metrics"
)

// keep is how many checkpoints stay.
const keep = 3

// Dir is a directory of checkpoints of one training. Without a name it saves nothing.
type Dir struct {
	From     int        // steps in the checkpoint that the training goes on from; 0: it begins
	Loader   data.State // where the loader stood then
	Replaced []string   // what the program had set otherwise, as in ckpt.Report

	r      *dist.Rank
	state  ckpt.State
	values *values.Table
	saver  *ckpt.Saver // nil without a name
	saved  int         // steps in the newest checkpoint
}

// loop is what a checkpoint holds of the loop itself.
type loop struct {
	Loader data.State        `json:"loader"`
	Values []*metrics.Series `json:"values"`
}

// Open begins to save st and t in a directory. With resume it loads the newest checkpoint there, if there is one; without, there must be
// none. It is collective: g, which is not for training, agrees on what rank 0 sees.
func Open(ctx context.Context, r *dist.Rank, g *dist.Group, dir string, resume bool, st ckpt.State, t *values.Table) (*Dir, error) {
	d := New(r, st, t)
	if dir == "" {
		return d, nil
	}
	path, err := zero.Do(g, func() (string, error) { return newest(dir, resume) })
	if err == nil && path != "" {
		err = d.load(ctx, g, path)
	}
	if err != nil {
		return nil, err
	}
	d.open(dir)
	return d, nil
}

func (d *Dir) open(dir string) { d.saver = ckpt.NewSaver(d.r.World, dir, ckpt.Config{Keep: keep}) }

// New returns a Dir of no name.
func New(r *dist.Rank, st ckpt.State, t *values.Table) *Dir { return &Dir{r: r, state: st, values: t} }

// Continue makes d, which has no name yet, go on after so many steps, of which some may be saved in dir. It is collective.
func (d *Dir) Continue(g *dist.Group, dir string, steps int, loader data.State) (err error) {
	d.From, d.Loader = steps, loader
	if dir == "" {
		return nil
	}
	d.saved, err = zero.Do(g, func() (saved int, err error) { // perhaps more than those know who failed while saving
		paths, err := ckpt.Steps(dir)
		if err == nil && len(paths) > 0 {
			_, err = fmt.Sscanf(filepath.Base(paths[len(paths)-1]), "step-%d", &saved)
		}
		return saved, err
	})
	if err == nil {
		d.open(dir)
	}
	return err
}

// newest returns the path of the newest checkpoint in dir, "" if there is none. It makes the directory, and finds out whether files can be
// made there.
func newest(dir string, resume bool) (path string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("-save: %w", err)
	}
	f, err := os.CreateTemp(dir, ".writable")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		return "", fmt.Errorf("-save: %w", err)
	}
	path, err = ckpt.Latest(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err == nil && !resume:
		return "", fmt.Errorf("-save: %s holds checkpoints; -resume goes on from them", dir)
	}
	return path, err
}

// load makes the state and the values those of a checkpoint.
func (d *Dir) load(ctx context.Context, g *dist.Group, path string) error {
	c, err := ckpt.LoadConfig{}, error(nil)
	if c.Strategy, err = strategy(g, d.state.Params); err != nil {
		return err
	}
	var l loop
	st := d.with(&l)
	report, err := ckpt.Load(ctx, g, path, &st, c)
	if err != nil {
		return err
	}
	d.Replaced = report.Replaced
	d.From, d.saved, d.Loader = st.Step, st.Step, l.Loader
	d.values.Done, d.values.Series = st.Step, l.Values
	return nil
}

// strategy is Broadcast where every rank has everything: one rank reads then.
func strategy(g *dist.Group, params nn.Params) (ckpt.Strategy, error) {
	parts := []float64{0}
	for _, p := range params {
		if p.Local.Len() != p.GlobalLen() {
			parts[0]++
		}
	}
	if err := g.SumFloats(parts); err != nil || parts[0] > 0 {
		return ckpt.Sharded, err
	}
	return ckpt.Broadcast, nil
}

// with returns the state, and l in it.
func (d *Dir) with(l *loop) ckpt.State {
	st := d.state
	st.Step, st.Extra = d.values.Done, map[string]any{"train": l}
	maps.Copy(st.Extra, d.state.Extra)
	return st
}

// Save saves, unless the newest checkpoint has as many steps. What is saved of source, unless it is nil, is where it stands. It is
// collective.
func (d *Dir) Save(ctx context.Context, source *data.Loader) error {
	if d.saver == nil || d.values.Done == d.saved {
		return nil
	}
	d.r.Trace.Phase("checkpoint")
	defer d.r.Trace.Phase("")
	l := loop{d.Loader, d.values.Series}
	if source != nil {
		l.Loader = source.State()
	}
	st := d.with(&l)
	if err := d.saver.Save(ctx, st); err != nil {
		return err
	}
	d.saved = st.Step
	d.r.Progress(st.Step - 1)
	return nil
}

// Close ends what goes on in the background. It is collective.
func (d *Dir) Close() error {
	if d.saver == nil {
		return nil
	}
	return d.saver.Close()
}
