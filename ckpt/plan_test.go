package ckpt

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// manyTensors is the number of tensors of a large model with AdamW.
const manyTensors = 2160

// Saves of the same tensors share one plan. If one rank has other tensors, all ranks make a new plan.
func TestPlanOnce(t *testing.T) {
	dir, l := t.TempDir(), layouts["ddp2"]
	onRanks(t, 2, func(g *dist.Group) error {
		s := newSaver(g, disk.OS{}, dir, Config{})
		save := func(version int, without string) *job {
			st := newState(t, g, l, version)
			st.Optimizer = nil
			st.Params = slices.DeleteFunc(st.Params, func(p *tensor.Param) bool { return p.Name() == without && g.Rank() == 1 })
			require.NoError(t, s.Save(t.Context(), *st))
			return s.planned.jobs[0] // every plan has jobs of its own
		}
		first := save(1, "")
		require.Same(t, first, save(2, ""))
		other := save(3, "scale")
		require.NotSame(t, first, other)
		require.Same(t, other, save(4, "scale"))
		require.NotSame(t, other, save(5, ""))
		return s.Close()
	})
	for version := 1; version <= 5; version++ {
		path := filepath.Join(dir, storage.StepName(version))
		require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
		onRanks(t, 3, func(g *dist.Group) error {
			st := newState(t, g, layouts["fsdp3"], 0)
			st.Optimizer, st.Extra = nil, nil
			_, err := Load(t.Context(), g, path, st, LoadConfig{})
			require.NoError(t, err)
			require.Equal(t, version, st.Step)
			want := newState(t, g, layouts["fsdp3"], version)
			for i, p := range st.Params {
				require.Equal(t, tensor.Floats(want.Params[i].Local), tensor.Floats(p.Local), "%d: %s", version, p.Name())
			}
			return nil
		})
	}
}

// An optimizer whose parameters are all frozen has no tensors. A save without it does not share its plan, nor does one with it share that
// of a save without: one has steps and a learning rate, and the other one has not.
func TestPlanOfEmptyOptimizer(t *testing.T) {
	dir, l := t.TempDir(), layouts["ddp2"]
	onRanks(t, l.ranks, func(g *dist.Group) error {
		s := newSaver(g, disk.OS{}, dir, Config{})
		for version := 1; version <= 4; version++ {
			st := newState(t, g, l, version)
			st.Optimizer = nil
			if version == 2 || version == 3 {
				p := more(g, 3)
				p.Freeze()
				st.Optimizer = optim.NewAdamW(nn.Params{p}, optim.AdamWConfig{LR: 0.5, Norm: g})
			}
			require.NoError(t, s.Save(t.Context(), *st), version)
		}
		return s.Close()
	})
	for version := 1; version <= 4; version++ {
		m, err := storage.Open(disk.OS{}, filepath.Join(dir, storage.StepName(version)))
		require.NoError(t, err)
		require.Equal(t, version == 2 || version == 3, m.Manifest.Optimizer != nil, version)
		require.NoError(t, m.Close())
	}
}

// A mistake of one rank gives the same error on all ranks, which names the rank, with and without an earlier plan. The
// next checkpoint is complete.
func TestMistakeOfOneRank(t *testing.T) {
	const dtype = "ranks differ: rank 1 has scale as F64[] (transposed false) where rank 0 has F32[] (transposed false)"
	for name, c := range map[string]struct {
		want    string
		mistake func(t *testing.T, g *dist.Group, st *State)
	}{
		"type": {dtype, func(_ *testing.T, g *dist.Group, st *State) {
			for _, p := range st.Params {
				if p.Name() == "scale" {
					p.Local = tensor.New(g.Device(), tensor.Float64)
					p.Value = p.Local
				}
			}
		}},
		"shape": {"ranks differ: rank 1 has more as F32[2] (transposed false) where rank 0 has F32[3] (transposed false)",
			func(_ *testing.T, g *dist.Group, st *State) { st.Params = append(st.Params, more(g, 3-g.Rank())) }},
		"nothing": {"rank 1: more was never made: call nn.Init or Attach first", func(_ *testing.T, g *dist.Group, st *State) {
			p := more(g, 3)
			if g.Rank() == 1 {
				p.Local = tensor.Tensor{}
			}
			st.Params = append(st.Params, p)
		}},
		"holes": {"tok.weight: nobody has elements 91 to 92 of the boxes", func(_ *testing.T, g *dist.Group, st *State) {
			st.Optimizer = nil
			if lo, hi := st.Params[0].Placement().Range(); g.Rank() == 1 {
				st.Params[0].Shard(lo+1, hi)
				st.Params[0].Local = st.Params[0].Local.Range(1, hi-lo)
			}
		}},
		"no optimizer": {"ranks differ: rank 1 has an optimizer: false where rank 0 has true", func(_ *testing.T, _ *dist.Group, st *State) {
			st.Optimizer = nil
		}},
		"step counts": {"ranks differ: rank 1 has 9 optimizer steps of scale where rank 0 has 2", func(t *testing.T, g *dist.Group, st *State) {
			o := st.Optimizer.State()
			o.Counts["scale"] = 9
			require.NoError(t, st.Optimizer.SetState(o))
		}},
		"not a number": {`rank 1: extra "loader": json: unsupported value: NaN`, func(_ *testing.T, _ *dist.Group, st *State) {
			st.Extra["loader"] = math.NaN()
		}},
	} {
		for _, first := range map[bool][]bool{true: {true, false}, false: {false}}[name == "type" || reliability.Long(t)] {
			dir, l := t.TempDir(), layouts["ddp3"]
			if name == "holes" {
				l = layouts["fsdp3"]
			}
			heard := make([]string, l.ranks)
			err := tryRanks(l.ranks, func(g *dist.Group) error {
				s := newSaver(g, disk.OS{}, dir, Config{})
				if !first {
					require.NoError(t, s.Save(t.Context(), *newState(t, g, l, 1)))
				}
				st := newState(t, g, l, 2)
				if g.Rank() == 1 || slices.Contains([]string{"shape", "nothing", "holes"}, name) {
					c.mistake(t, g, st)
				}
				err := s.Save(t.Context(), *st)
				require.Error(t, err, name)
				heard[g.Rank()] = err.Error()
				return errors.Join(s.Save(t.Context(), *newState(t, g, l, 3)), s.Close())
			})
			for _, text := range heard {
				require.Contains(t, text, c.want, name)
			}
			require.NoError(t, err, name)
			loadAll(t, filepath.Join(dir, storage.StepName(3)), layouts["ddp2"], 3, LoadConfig{})
		}
	}
}

func TestLongMistakeOfOneRank(t *testing.T) { reliability.AsLong(t, TestMistakeOfOneRank) }

// more returns another parameter.
func more(g *dist.Group, n int) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(0), n)
	p.SetName("more")
	p.Local = tensor.New(g.Device(), tensor.Float32, n)
	p.Value = p.Local
	return p
}

// A parameter whose step count differs from the optimizer's keeps it.
func TestStepCounts(t *testing.T) {
	dir, l := t.TempDir(), layouts["fsdp2"]
	onRanks(t, l.ranks, func(g *dist.Group) error {
		st := newState(t, g, l, 5)
		o := st.Optimizer.State()
		o.Counts["scale"], o.Counts["head.weight"] = 3, 0
		require.NoError(t, st.Optimizer.SetState(o))
		s := NewSaver(g, dir, Config{})
		require.NoError(t, s.Save(t.Context(), *st))
		got := newState(t, g, l, 0)
		got.Extra = nil
		_, err := Load(t.Context(), g, filepath.Join(dir, storage.StepName(5)), got, LoadConfig{})
		require.NoError(t, err)
		require.Equal(t, o.Counts, got.Optimizer.State().Counts)
		return s.Close()
	})
}

// manyParams returns the parameters of a large model, of which each rank holds a flat shard. With AdamW's moments there
// are 2,160 tensors.
func manyParams(g *dist.Group) nn.Params {
	var params nn.Params
	const n = 128
	for i := range manyTensors / 3 {
		p := tensor.NewParam(tensor.Constant(0), n)
		p.SetName(fmt.Sprintf("layers.%d.weight", i))
		p.Shard(layout.Share(n, g.Rank(), g.Size()))
		p.Local = tensor.New(g.Device(), tensor.Float32, p.Placement().Len())
		p.Value = p.Local
		params = append(params, p)
	}
	return params
}

// The first save gathers the local plans on rank 0, which sends each rank its work. Later saves exchange only
// summaries, whatever the number of tensors.
func TestPlanningBytes(t *testing.T) {
	const ranks = 4
	onRanks(t, ranks, func(g *dist.Group) error {
		params := manyParams(g)
		st := State{Params: params, Optimizer: optim.NewAdamW(params, optim.AdamWConfig{LR: 0.1})}
		s := NewSaver(g, t.TempDir(), Config{})
		planning := func() int {
			before := sent(s.g)
			_, err := s.begin(st)
			require.NoError(t, err)
			return int(sent(s.g) - before)
		}
		first, later := planning(), planning()
		if g.Rank() == 0 {
			require.Greater(t, first, ranks*manyTensors, "the work of the ranks")
		} else {
			require.Less(t, first, 150*manyTensors, "what this rank holds")
		}
		require.Less(t, later, ranks*1100, "gob describes the types")
		return s.Close()
	})
}

// sent returns the bytes that a rank has passed to a group's operations.
func sent(g *dist.Group) (n uint64) {
	for _, k := range g.Stats().Payload {
		n += k
	}
	return n
}
