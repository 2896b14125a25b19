package ckpt

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/optim"
	"github.com/ringo-ml/ringo/tensor"
)

// halves is a State whose parameters are split between two ranks: the first and the last by rows, the second as a flat
// range. The last one has the name of an optimizer tensor of the first.
func halves(g *dist.Group) *State {
	st := &State{TP: Rules{}}
	for _, name := range []string{"a", "b", "a.momentum_buffer"} {
		p := new(tensor.Param)
		if name == "b" {
			*p = *half(g, name, []int{10}, 5*g.Rank(), 5*g.Rank()+5)
		} else {
			*p = *rows(g, name, []int{4, 6}, g.Rank(), layout.Division{})
		}
		st.Params = append(st.Params, p)
	}
	st.Optimizer = optim.NewSGD(st.Params[:1], optim.SGDConfig{LR: 0.1})
	return st
}

// rows is a parameter that is cut.
func rows(g *dist.Group, name string, dims []int, rank int, c layout.Division) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(0), dims...)
	p.SetName(name)
	p.Place(layout.Axis{Axes: 1, Rank: rank, Ranks: 2}, c)
	return resize(g, p, tensor.Float32)
}

// half is a parameter of which a rank keeps elements lo to hi-1.
func half(g *dist.Group, name string, dims []int, lo, hi int) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(0), dims...)
	p.SetName(name)
	p.Shard(lo, hi)
	return resize(g, p, tensor.Float32)
}

// resize gives a parameter as much memory as the rank has of it.
func resize(g *dist.Group, p *tensor.Param, dtype tensor.DType) *tensor.Param {
	p.Value = tensor.New(g.Device(), dtype, p.Placement().Len())
	p.Local = p.Value
	return p
}

// changes make a plan invalid, except "nothing". They happen in place, as in a program.
var changes = map[string]func(g *dist.Group, st *State){
	"nothing": func(*dist.Group, *State) {},
	"type":    func(g *dist.Group, st *State) { resize(g, st.Params[1], tensor.Float64) },
	"shape":   func(g *dist.Group, st *State) { *st.Params[1] = *half(g, "b", []int{5, 2}, 5*g.Rank(), 5*g.Rank()+5) },
	"shape of one length": func(g *dist.Group, st *State) {
		*st.Params[0] = *rows(g, "a", []int{2, 12}, g.Rank(), layout.Division{Dim: 1})
	},
	"size": func(g *dist.Group, st *State) { *st.Params[1] = *half(g, "b", []int{12}, 6*g.Rank(), 6*g.Rank()+6) },
	"parts": func(g *dist.Group, st *State) {
		*st.Params[0] = *rows(g, "a", []int{4, 6}, g.Rank(), layout.Division{Parts: []int{2, 2}})
	},
	"dimension": func(g *dist.Group, st *State) {
		*st.Params[0] = *rows(g, "a", []int{4, 6}, g.Rank(), layout.Division{Dim: 1})
	},
	"elements that a rank holds": func(g *dist.Group, st *State) {
		*st.Params[1] = *half(g, "b", []int{10}, 6*g.Rank(), 6+4*g.Rank())
	},
	"ranks change rows": func(g *dist.Group, st *State) {
		*st.Params[0] = *rows(g, "a", []int{4, 6}, 1-g.Rank(), layout.Division{})
	},
	"ranks change elements": func(g *dist.Group, st *State) {
		*st.Params[1] = *half(g, "b", []int{10}, 5-5*g.Rank(), 10-5*g.Rank())
	},
	"copies":     func(g *dist.Group, st *State) { *st.Params[0] = *half(g, "a", []int{4, 6}, 0, 24) },
	"name":       func(_ *dist.Group, st *State) { st.Params[1].SetName("c") },
	"names":      func(_ *dist.Group, st *State) { st.Params[0].SetName("b"); st.Params[1].SetName("a") },
	"order":      func(_ *dist.Group, st *State) { slices.Reverse(st.Params) },
	"fewer":      func(_ *dist.Group, st *State) { st.Params = st.Params[:2] },
	"another":    func(g *dist.Group, st *State) { st.Params = append(st.Params, more(g, 3)) },
	"transposed": func(_ *dist.Group, st *State) { st.Params[0].SetTransposed(true) },
	"stored": func(_ *dist.Group, st *State) {
		st.Params[0].SetStored([]tensor.Stored{{Name: "a.0", Rows: 1, Total: 1}, {Name: "a.1", Rows: 3, Total: 3}})
	},
	"unit": func(g *dist.Group, st *State) {
		*st.Params[0] = *rows(g, "a", []int{4, 6}, g.Rank(), layout.Division{Unit: 2})
	},
	"rules": func(_ *dist.Group, st *State) { st.TP["a"] = Rule{Dim: 1} },
	"no optimizer": func(_ *dist.Group, st *State) {
		st.Optimizer = nil
	},
	"what the optimizer keeps": func(_ *dist.Group, st *State) {
		st.Params = st.Params[:2]
		st.Optimizer = optim.NewSGD(st.Params[:1], optim.SGDConfig{LR: 0.1, Momentum: 0.9})
	},
	"what the optimizer trains": func(_ *dist.Group, st *State) {
		st.Optimizer = optim.NewSGD(st.Params[:2], optim.SGDConfig{LR: 0.1})
	},
}

// A plan is reused while the structure stays the same. After any change all ranks make another plan, and the checkpoint
// equals one that was planned from the start, with the values of its own step.
func TestPlanAnew(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			kept, fresh := t.TempDir(), t.TempDir()
			onRanks(t, 2, func(g *dist.Group) error {
				st := halves(g)
				s := newSaver(g, disk.OS{}, kept, Config{})
				save := func(s *Saver, step int) *job {
					st.Step = step
					for _, p := range st.Params {
						fillParam(t, p, step)
					}
					require.NoError(t, s.Save(t.Context(), *st))
					return s.planned.jobs[0]
				}
				first := save(s, 1)
				require.Same(t, first, save(s, 2))
				change(g, st)
				second := save(s, 3)
				if name == "nothing" {
					require.Same(t, first, second)
				} else {
					require.NotSame(t, first, second)
				}
				require.Same(t, second, save(s, 4))
				other := newSaver(g, disk.OS{}, fresh, Config{})
				require.NotSame(t, second, save(other, 4))
				for _, j := range s.planned.jobs {
					require.Nil(t, j.data, "a Saver keeps no tensors")
				}
				for _, x := range s.planned.items {
					require.True(t, x.data.IsZero() && x.of == nil, "a Saver keeps no tensors")
				}
				require.NoError(t, other.Close())
				return s.Close()
			})
			want, err := storage.Open(disk.OS{}, filepath.Join(fresh, storage.StepName(4)))
			require.NoError(t, err)
			defer want.Close()
			for _, step := range []int{3, 4} {
				path := filepath.Join(kept, storage.StepName(step))
				require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
				got, err := storage.Open(disk.OS{}, path)
				require.NoError(t, err)
				if step == 4 {
					require.Equal(t, want.Manifest, got.Manifest)
				}
				require.NoError(t, got.Close())
			}
		})
	}
}

// A parameter without values is an error also if there is a plan.
func TestNotReady(t *testing.T) {
	for want, spoil := range map[string]func(g *dist.Group, p *tensor.Param){
		"a was never made": func(_ *dist.Group, p *tensor.Param) { p.Local = tensor.Tensor{} },
		"a is not contiguous": func(g *dist.Group, p *tensor.Param) {
			p.Local = tensor.NewTape(g.Device()).Input(tensor.New(g.Device(), tensor.Float32, 6, 4)).Slice(1, 1, 3)
		},
		"a: its placement is of 12 elements, the tensor has 11": func(_ *dist.Group, p *tensor.Param) { p.Local = p.Local.Range(0, 11) },
	} {
		dir := t.TempDir()
		onRanks(t, 2, func(g *dist.Group) error {
			st := halves(g)
			s := newSaver(g, disk.OS{}, dir, Config{})
			require.NoError(t, s.Save(t.Context(), *st))
			if st.Step = 1; g.Rank() == 1 {
				spoil(g, st.Params[0])
			}
			require.ErrorContains(t, s.Save(t.Context(), *st), "rank 1: "+want)
			return s.Close()
		})
	}
}

// Work that does not match what a rank holds is an error.
func TestAssignRefuses(t *testing.T) {
	onRanks(t, 1, func(g *dist.Group) error {
		st := State{Params: []*tensor.Param{more(g, 3)}}
		o := st.optimizer()
		for _, c := range []struct {
			todo pieceWork
			want string
		}{
			{pieceWork{Item: 1, N: 3}, "rank 0 planned item 1 of file 0; this rank holds 1 items, of 1 files"},
			{pieceWork{Item: -1, N: 3}, "rank 0 planned item -1"},
			{pieceWork{File: 1, N: 3}, "rank 0 planned item 0 of file 1"},
			{pieceWork{At: 1, N: 3}, "rank 0 planned elements 1 to 4 of more; this rank holds 3"},
			{pieceWork{At: -1, N: 3}, "rank 0 planned elements -1 to 2 of more"},
			{pieceWork{N: -1}, "rank 0 planned elements 0 to -1 of more"},
			{pieceWork{N: 3}, ""},
		} {
			p, err := newRankPlan(&st, &o)
			require.NoError(t, err)
			err = p.assign(work{Files: []string{"model.safetensors"}, Pieces: []pieceWork{c.todo}})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want, fmt.Sprint(c.todo))
			}
		}
		return nil
	})
}
