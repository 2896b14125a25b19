package ckpt

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/shard"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/layout"
	"github.com/ringo-ml/ringo/nn"
	"github.com/ringo-ml/ringo/tensor"
)

func box(lohi ...int) (b tensor.Box) {
	for i := 0; i < len(lohi); i += 2 {
		b.Lo, b.Hi = append(b.Lo, lohi[i]), append(b.Hi, lohi[i+1])
	}
	return b
}

// cuts are ways to hold one parameter of shape [8, 6, 3]: what each rank has of it.
var cuts = map[string]struct {
	ranks int
	place func(p *tensor.Param, rank int)
}{
	"one":                       {1, func(*tensor.Param, int) {}},
	"experts on ep 2, 2 copies": {4, func(p *tensor.Param, r int) { ofExperts(p, r%2, 2) }},
	"experts on ep 4":           {4, func(p *tensor.Param, r int) { ofExperts(p, r, 4) }},
	"experts on ep 2, cut by fsdp 3": {6, func(p *tensor.Param, r int) {
		ofExperts(p, r%2, 2)
		p.Shard(layout.Share(72, r/2, 3))
	}},
	"tied on two stages, cut by fsdp 2 and 3": {5, func(p *tensor.Param, r int) {
		if r < 2 {
			p.Shard(r*72, r*72+72)
		} else {
			p.Shard((r-2)*48, (r-2)*48+48)
		}
	}},
	"queries and keys on tp 2, cut by fsdp 2": {4, func(p *tensor.Param, r int) { // 3 and 2 rows of queries, 2 and 1 of keys
		p.Place(layout.Axis{Axes: 1, Rank: r % 2, Ranks: 2}, layout.Division{Parts: []int{5, 3}})
		p.Shard(layout.Share(p.Len(), r/2, 2))
	}},
	"experts on ep 2, hidden features on tp 4": {8, func(p *tensor.Param, r int) { // 2, 2, 1 and 1 of them
		ofExperts(p, r/4, 2)
		p.Place(layout.Axis{Axes: 2, Rank: r % 4, Ranks: 4}, layout.Division{Dim: 1})
	}},
}

func ofExperts(p *tensor.Param, rank, ranks int) {
	p.Place(layout.Axis{Axes: 1, Rank: rank, Ranks: ranks}, layout.Division{})
}

func cutParam(t require.TestingT, g *dist.Group, name string, version int) *tensor.Param {
	p := tensor.NewParam(tensor.Constant(0), 8, 6, 3)
	p.SetName("w")
	cuts[name].place(p, g.Rank())
	p.Local = tensor.New(g.Device(), tensor.Float64, p.Placement().Len())
	p.Value = p.Local
	if version > 0 {
		fillParam(t, p, version)
	}
	return p
}

// TestCuts: a parameter held in any mixture of boxes, flat ranges and copies is saved once, and every other way can
// load it.
func TestCuts(t *testing.T) {
	for from := range cuts {
		dir := t.TempDir()
		onRanks(t, cuts[from].ranks, func(g *dist.Group) error {
			s := NewSaver(g, dir, Config{})
			if err := s.Save(context.Background(), State{Step: 1, Params: nn.Params{cutParam(t, g, from, 1)}}); err != nil {
				return fmt.Errorf("%s: %w", from, err)
			}
			return s.Close()
		})
		path := filepath.Join(dir, storage.StepName(1))
		require.True(t, mustVerify(t, path, inspect.VerifyConfig{}).OK)
		for to := range cuts {
			onRanks(t, cuts[to].ranks, func(g *dist.Group) error {
				p := cutParam(t, g, to, 0)
				if _, err := Load(context.Background(), g, path, &State{Params: nn.Params{p}}, LoadConfig{}); err != nil {
					return fmt.Errorf("%s on %s: %w", from, to, err)
				}
				require.Equal(t, cutParam(t, g, to, 1).Local.Bytes(), p.Local.Bytes(), "%s on %s", from, to)
				return nil
			})
		}
	}
}

// TestCopiesShareTheWork: one rank writes each extent, and ranks with copies write about the same amount.
func TestCopiesShareTheWork(t *testing.T) {
	dims := []int{4, 5}
	locals := make([]localPlan, 4)
	for r := range locals {
		for i := range 10 {
			locals[r].Items = append(locals[r].Items, writeItem{Model: true, Name: fmt.Sprint("w", i), DType: "F32", Shape: dims,
				Boxes: []tensor.Box{box(0, 4, 0, 5)}, Flat: [2]int{r % 2 * 10, r%2*10 + 10}})
		}
	}
	p, _, err := newPlan(locals, nil, maxFileBytes)
	require.NoError(t, err)
	writes := make([]int, 4)
	for _, e := range p.Manifest.Entries() {
		for _, x := range e.Pieces {
			writes[x.Rank]++
		}
	}
	require.Equal(t, []int{5, 5, 5, 5}, writes)
}

// TestOldCheckpoint: a checkpoint of an older version, which stored fsdp's units, is sound. A wrong bit in it is
// refused on other layouts.
func TestOldCheckpoint(t *testing.T) {
	path := filepath.Join("testdata", "v1", storage.StepName(4))
	require.True(t, mustVerify(t, path, inspect.VerifyConfig{Layout: "fsdp=3"}).OK)
	_, list, err := inspect.List(path)
	require.NoError(t, err)
	onRanks(t, 3, func(g *dist.Group) error {
		for _, name := range []string{"", "model.safetensors"} {
			var params nn.Params
			for _, x := range list {
				if x.Kind == "model" {
					n := shard.Product(x.Shape)
					dims := x.Shape
					if x.Name == "c_fc.weight" {
						dims = []int{dims[1], dims[0]}
					}
					p := tensor.NewParam(tensor.Constant(0), dims...)
					p.SetName(x.Name)
					p.SetTransposed(x.Name == "c_fc.weight")
					p.Shard(layout.Share(n, g.Rank(), 3))
					p.Local = tensor.New(g.Device(), tensor.Float64, p.Placement().Len())
					params = append(params, p)
				}
			}
			_, err := load(context.Background(), g, flipFS{disk.OS{}, name, 8 * 1300}, path, &State{Params: params}, LoadConfig{})
			if name == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "SHA-256")
			}
		}
		return nil
	})
}
