package checkpoint

import (
	"context"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/ringo-ml/ringo/ckpt"
	"github.com/ringo-ml/ringo/data"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/train/internal/values"
	"github.com/ringo-ml/ringo/train/metrics"
)

// Config says what is saved and loaded.
type Config struct {
	Dir    string // "": nothing
	Resume bool   // load the newest checkpoint, if there is one
	Step   int    // load that of this step; 0: the newest
	Keep   int    // newest checkpoints that stay; 0: all
	Best   Best   // the one that stays, too
	LR     bool   // the program's learning rate holds, not that of the checkpoint
	// Settings are the program's, by name.
	Settings map[string]string
}

// Dir is a directory of checkpoints of one training. Without a name it saves nothing.
type Dir struct {
	From    int          // steps in the checkpoint that the training goes on from; 0: it begins
	Loaders []data.State // where loaders stood then, in the order in which the program first used them
	Notes   []string     // what the program has set otherwise, and which holds

	c      Config
	r      *dist.Rank
	state  ckpt.State
	values *values.Table
	saver  *ckpt.Saver // nil without a name
	saved  int         // steps in the newest checkpoint
}

// loop is what a checkpoint holds of the loop itself.
type loop struct {
	Loaders  []data.State      `json:"loaders"`
	Loader   *data.State       `json:"loader,omitempty"` // of older checkpoints: there was one
	Values   []*metrics.Series `json:"values"`
	Settings map[string]string `json:"settings,omitempty"`
}

// Open begins to save st and t in a directory. With c.Resume it loads a checkpoint there, if there is one; without, there must be none. It
// is collective: g, which is not for training, agrees on what rank 0 sees.
func Open(ctx context.Context, r *dist.Rank, g *dist.Group, c Config, st ckpt.State, t *values.Table) (*Dir, error) {
	d := New(r, c, st, t)
	if c.Dir == "" {
		return d, nil
	}
	path, err := dist.OnRank0(g, func() (string, error) { return c.find() })
	if err == nil && path != "" {
		err = d.load(ctx, g, path)
	}
	if err == nil && c.Step != 0 {
		d.Notes, err = dist.OnRank0(g, func() ([]string, error) { return c.putAside(d.Notes) })
	}
	if err != nil {
		return nil, err
	}
	d.open()
	return d, nil
}

func (d *Dir) open() {
	d.saver = ckpt.NewSaver(d.r.World, d.c.Dir, ckpt.Config{Keep: d.c.Keep, Spare: d.spare})
}

// spare returns the step whose checkpoint is the best.
func (d *Dir) spare(steps []int) []int {
	at, values := d.values.Of(d.c.Best.Name)
	best, found := 0, 0.0
	for _, step := range steps {
		n, _ := slices.BinarySearch(at, step+1)
		if n > 0 && (best == 0 || d.c.Best.better(values[n-1], found)) {
			best, found = step, values[n-1]
		}
	}
	return []int{best}
}

// New returns a Dir that saves nothing yet.
func New(r *dist.Rank, c Config, st ckpt.State, t *values.Table) *Dir {
	return &Dir{r: r, c: c, state: st, values: t}
}

// Continue makes d, which saves nothing yet, go on after so many steps, of which some may be saved. It is collective.
func (d *Dir) Continue(g *dist.Group, steps int, loaders []data.State) (err error) {
	d.From, d.Loaders = steps, loaders
	if d.c.Dir == "" {
		return nil
	}
	d.saved, err = dist.OnRank0(g, func() (saved int, err error) { // perhaps more than those know who failed while saving
		paths, err := ckpt.Steps(d.c.Dir)
		if err == nil && len(paths) > 0 {
			_, err = fmt.Sscanf(filepath.Base(paths[len(paths)-1]), "step-%d", &saved)
		}
		return saved, err
	})
	if err == nil {
		d.open()
	}
	return err
}

// load makes the state and the values those of a checkpoint.
func (d *Dir) load(ctx context.Context, g *dist.Group, path string) error {
	c, err := ckpt.LoadConfig{}, error(nil)
	if c.Strategy, err = strategy(g, d.state.Params); err != nil {
		return err
	}
	var l loop
	st, lr := d.with(&l), 0.0
	if st.Optimizer != nil {
		lr = st.Optimizer.State().LR
	}
	report, err := ckpt.Load(ctx, g, path, &st, c)
	if err != nil {
		return err
	}
	d.Notes = d.c.differences(l.Settings)
	for _, what := range report.Replaced {
		if d.c.LR {
			d.Notes = append(d.Notes, fmt.Sprintf("the learning rate is %v, not %v as in the checkpoint", lr, st.Optimizer.State().LR))
			st.Optimizer.SetLR(lr)
		} else {
			d.Notes = append(d.Notes, "the checkpoint replaces "+what+" (-override lr: not)")
		}
	}
	if l.Loader != nil && l.Loader.Samples > 0 {
		l.Loaders = []data.State{*l.Loader}
	}
	d.From, d.saved, d.Loaders = st.Step, st.Step, l.Loaders
	d.values.Resume(st.Step, l.Values)
	return nil
}

// strategy is Owned where ranks have other parameters, as stages of a pipeline, and Broadcast where every rank has everything: one rank
// reads then.
func strategy(g *dist.Group, params nn.Params) (ckpt.Strategy, error) {
	type has struct {
		Names uint32
		Parts bool
	}
	var mine has
	for _, p := range params {
		mine.Names = crc32.Update(mine.Names, crc32.IEEETable, []byte(p.Name()+"\n"))
		mine.Parts = mine.Parts || p.Local.Len() != p.GlobalLen()
	}
	all, err := dist.AllGatherObject(g, mine)
	s := ckpt.Broadcast
	for _, x := range all {
		switch {
		case x.Names != mine.Names:
			return ckpt.Owned, err
		case x.Parts:
			s = ckpt.Sharded
		}
	}
	return s, err
}

// extra is where a checkpoint has the loop.
const extra = "train"

// CheckExtra returns an error if a training that resumes could not read what the program has in ckpt.State.Extra: it would go on with other
// values.
func CheckExtra(of map[string]any) error {
	for key, v := range of {
		if key == extra {
			return fmt.Errorf("train: Extra[%q] is what the loop saves of itself: give yours another name", key)
		}
		if at := reflect.ValueOf(v); at.Kind() != reflect.Pointer || at.IsNil() {
			return fmt.Errorf("train: Extra[%q] is a %T: give &x, a pointer to a variable, which a training that resumes sets", key, v)
		}
	}
	return nil
}

// with returns the state, and l in it.
func (d *Dir) with(l *loop) ckpt.State {
	st := d.state
	st.Step, st.Extra = d.values.Done, map[string]any{extra: l}
	maps.Copy(st.Extra, d.state.Extra)
	return st
}

// Save saves, with where loaders stand, unless the newest checkpoint has as many steps. It is collective.
func (d *Dir) Save(ctx context.Context, loaders []data.State) error {
	if d.saver == nil || d.values.Done == d.saved {
		return nil
	}
	d.r.Trace.Phase("checkpoint")
	defer d.r.Trace.Phase("")
	l := loop{Loaders: loaders, Values: d.values.Series, Settings: d.c.Settings}
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
