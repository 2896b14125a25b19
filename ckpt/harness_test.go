package ckpt

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// spec is a parameter of the test model.
type spec struct {
	name       string
	dtype      tensor.DType
	dims       []int
	tp         *Rule
	transposed bool // in the file
}

// specs have odd shapes, parameters smaller than the number of ranks, an empty one, a scalar, a fused projection, types with
// and without a master copy, and one that files hold transposed.
var specs = []spec{
	{"tok.weight", tensor.Float32, []int{17, 16}, &Rule{Dim: 0}, false},
	{"blocks.0.qkv.weight", tensor.Float32, []int{30, 7}, &Rule{Dim: 0, Parts: []int{14, 8, 8}}, false},
	{"blocks.0.out.weight", tensor.BFloat16, []int{7, 15}, &Rule{Dim: 1}, false},
	{"blocks.0.norm.bias", tensor.Float64, []int{3}, nil, false},
	{"scale", tensor.Float32, []int{}, nil, false},
	{"none.weight", tensor.Float32, []int{0, 4}, nil, false},
	{"head.weight", tensor.Float32, []int{5, 3, 4}, &Rule{Dim: 2}, false},
	{"mlp.weight", tensor.BFloat16, []int{5, 9}, &Rule{Dim: 1}, true},
}

// division says how a test's ranks hold the model.
type division struct {
	name      string
	ranks, tp int  // tp divides ranks; ranks of one tp index share its shard in flat ranges
	flat      bool // else replicas
}

var layouts = map[string]division{
	"ddp1": {"ddp1", 1, 1, false}, "ddp2": {"ddp2", 2, 1, false}, "ddp3": {"ddp3", 3, 1, false}, "ddp4": {"ddp4", 4, 1, false},
	"fsdp5": {"fsdp5", 5, 1, true}, "fsdp1": {"fsdp1", 1, 1, true}, "fsdp2": {"fsdp2", 2, 1, true}, "fsdp3": {"fsdp3", 3, 1, true},
	"fsdp4": {"fsdp4", 4, 1, true}, "tp2": {"tp2", 2, 2, false}, "tp2fsdp2": {"tp2fsdp2", 4, 2, true}, "tp2dp2": {"tp2dp2", 4, 2, false},
}

// place leaves a rank its part of a parameter.
func (l division) place(p *tensor.Param, tp *Rule, rank int) {
	if tp != nil {
		p.Place(layout.Axis{Axes: 1, Rank: rank % l.tp, Ranks: l.tp}, *tp)
	}
	if l.flat {
		p.Shard(layout.Share(p.Len(), rank/l.tp, l.ranks/l.tp))
	}
}

// value is element i of a tensor of the test model. Each name and version has other bits.
func value(name string, i, version int) float64 {
	return math.Sin(float64(tensor.HashName(name)%1000) + float64(i)*1.7 + float64(version)*0.31)
}

// fillPart writes the elements of a part. It rounds to the type here, once, because tests compare the bits later.
func fillPart(x tensor.Tensor, p shard.Part, name string, version int) {
	k := 0
	set := func(v float64) {
		switch x.DType() {
		case tensor.Float32:
			tensor.Data[float32](x)[k] = float32(v)
		case tensor.Float64:
			tensor.Data[float64](x)[k] = v
		case tensor.BFloat16:
			tensor.Data[tensor.BF16](x)[k] = tensor.BF16(math.Float32bits(float32(v)) >> 16)
		}
		k++
	}
	for at, n := range p.Runs() {
		for i := at; i < at+n; i++ {
			set(value(name, i, version))
		}
	}
}

// fillParam is fillPart of what a rank holds of a parameter.
func fillParam(t require.TestingT, p *tensor.Param, version int) {
	held, err := shard.Of(p.Placement(), p.Local.Len())
	require.NoError(t, err)
	fillPart(p.Local, held, p.Name(), version)
}

// newState creates a rank's part of the test model, with the values of a version; version 0 is all zeros.
func newState(t require.TestingT, g *dist.Group, l division, version int) *State {
	var params nn.Params
	for _, s := range specs {
		p := tensor.NewParam(tensor.Constant(0), s.dims...)
		p.SetName(s.name)
		p.SetTransposed(s.transposed)
		l.place(p, s.tp, g.Rank())
		x := tensor.New(g.Device(), s.dtype, p.Placement().Len())
		p.Value, p.Local = x, x
		params = append(params, p)
	}
	st := &State{Step: version, Params: params, TP: Rules{}, Extra: map[string]any{"loader": map[string]any{"epoch": version}},
		Files: map[string][]byte{"config.json": fmt.Appendf(nil, "{\"version\": %d}", version)}}
	for _, s := range specs {
		if s.tp != nil {
			st.TP[s.name] = *s.tp
		}
	}
	st.Optimizer = optim.NewAdamW(params, optim.AdamWConfig{LR: 0.1})
	if version == 0 {
		return st
	}
	o := st.Optimizer.State()
	o.Steps, o.LR = version, 0.5/float64(version)
	for name := range o.Counts {
		o.Counts[name] = version
	}
	require.NoError(t, st.Optimizer.SetState(o))
	items, err := st.items()
	require.NoError(t, err)
	for _, x := range items {
		held := x.part
		if x.memory != nil {
			held = *x.memory
		}
		fillPart(x.data, held, x.Name, version)
	}
	return st
}

// requireState compares every bit of a State with that of a version.
func requireState(t require.TestingT, g *dist.Group, l division, version int, got *State) {
	want := newState(t, g, l, version)
	wants, err := want.items()
	require.NoError(t, err)
	gots, err := got.items()
	require.NoError(t, err)
	require.Len(t, gots, len(wants))
	for i, x := range wants {
		require.Equal(t, tensor.ToHost(x.data).Bytes(), tensor.ToHost(gots[i].data).Bytes(), "%s on %s, rank %d", x.Name, l.name, g.Rank())
	}
	a, b := want.Optimizer.State(), got.Optimizer.State()
	require.Equal(t, a.Steps, b.Steps)
	require.Equal(t, a.LR, b.LR)
	require.Equal(t, a.Counts, b.Counts)
	require.Equal(t, version, got.Step)
}

// onRanks runs fn on the ranks of a layout.
func onRanks(t testing.TB, n int, fn func(g *dist.Group) error) {
	t.Helper()
	if _, measures := t.(*testing.B); measures {
		threads = 1
	}
	require.NoError(t, tryRanks(n, fn))
}

// threads is the number of threads of a rank in tests. As it is that of the cores, ranks that wait give up their core at
// once. If they polled first, as they do with one thread, the tests would take twice the processors' time beside others.
var threads = runtime.GOMAXPROCS(0)

func tryRanks(n int, fn func(g *dist.Group) error) error {
	return dist.Run(context.Background(), dist.Config{Ranks: n, Threads: threads},
		func(_ context.Context, r *dist.Rank) error { return fn(r.World) })
}

// newSaver is NewSaver with another file system and small files.
func newSaver(g *dist.Group, fsys disk.FS, dir string, c Config) *Saver {
	s := NewSaver(g, dir, c)
	s.fs, s.fileBytes = fsys, 1500
	return s
}

// save writes a version of the test model and returns its folder.
func save(t testing.TB, dir string, l division, version int) string {
	t.Helper()
	onRanks(t, l.ranks, func(g *dist.Group) error {
		s := newSaver(g, disk.OS{}, dir, Config{})
		if err := s.Save(context.Background(), *newState(t, g, l, version)); err != nil {
			return err
		}
		return s.Close()
	})
	return filepath.Join(dir, storage.StepName(version))
}

// sound returns what is wrong with a checkpoint. It reads all of it, as Verify does.
func sound(fsys disk.FS, path string) error {
	src := storage.Examine(fsys, path)
	errs := append(slices.Clone(src.Problems), src.Unlisted()...)
	for _, x := range src.Each() {
		errs = append(errs, x.Scan(context.Background(), func([]byte) {}))
	}
	return errors.Join(append(errs, src.Close())...)
}

// loadAll loads a checkpoint under a layout and compares every bit.
func loadAll(t testing.TB, path string, l division, version int, c LoadConfig) {
	t.Helper()
	onRanks(t, l.ranks, func(g *dist.Group) error {
		st := newState(t, g, l, 0)
		extra := struct{ Epoch int }{}
		st.Extra = map[string]any{"loader": &extra}
		if _, err := Load(context.Background(), g, path, st, c); err != nil {
			return err
		}
		requireState(t, g, l, version, st)
		if extra.Epoch != version {
			return fmt.Errorf("epoch %d", extra.Epoch)
		}
		return nil
	})
}
