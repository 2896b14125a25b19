package ckpt

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// baseOf returns the hash of a base, and checks that all ranks have the same.
func baseOf(t *testing.T, path string, ranks int, d tensor.DType, c LoadConfig) (hash string) {
	t.Helper()
	onRanks(t, ranks, func(g *dist.Group) error {
		b, err := BaseOf(context.Background(), g, path, othersParams(g, d), c)
		if err != nil {
			return err
		}
		all, err := dist.AllGatherObject(g, *b)
		for _, x := range all {
			require.Equal(t, Base{Path: path, SHA256: all[0].SHA256}, x)
		}
		if g.Rank() == 0 {
			hash = b.SHA256
		}
		return err
	})
	require.Len(t, hash, 64)
	return hash
}

// The hash depends only on the tensors, not on the layout, the type in memory, or the files.
func TestBaseOf(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, d tensor.DType, shapes map[string][]int) string {
		path := filepath.Join(dir, name+".safetensors")
		othersFile(t, path, d, shapes)
		return path
	}
	plain := file("plain", tensor.Float32, othersShapes)
	want := baseOf(t, plain, 1, tensor.Float32, LoadConfig{})
	for ranks := 1; ranks <= 3; ranks++ {
		for _, s := range []Strategy{Sharded, Broadcast, Owned} {
			require.Equal(t, want, baseOf(t, plain, ranks, tensor.BFloat16, LoadConfig{Strategy: s}))
		}
	}
	prefixed := map[string][]int{"mask": {2, 2}}
	for name, shape := range othersShapes {
		prefixed["m."+name] = shape
	}
	renamed := LoadConfig{Rename: func(name string) string { return strings.TrimPrefix(name, "m.") }}
	require.Equal(t, want, baseOf(t, file("prefixed", tensor.Float32, prefixed), 2, tensor.Float32, renamed))

	to := t.TempDir()
	onRanks(t, 3, func(g *dist.Group) error {
		params := othersParams(g, tensor.Float32)
		if _, err := Load(context.Background(), g, plain, &State{Params: params}, LoadConfig{}); err != nil {
			return err
		}
		s := newSaver(g, disk.OS{}, to, Config{})
		s.fileBytes = 30
		if err := s.Save(context.Background(), State{Step: 1, Params: params}); err != nil {
			return err
		}
		return s.Close()
	})
	require.Equal(t, want, baseOf(t, filepath.Join(to, storage.StepName(1)), 2, tensor.Float32, LoadConfig{}))

	require.NotEqual(t, want, baseOf(t, file("half", tensor.BFloat16, othersShapes), 1, tensor.Float32, LoadConfig{}))
	other := maps.Clone(othersShapes)
	other["w"] = []int{3, 5} // the same bytes
	require.NotEqual(t, want, baseOf(t, file("shape", tensor.Float32, other), 1, tensor.Float32, LoadConfig{}))
	text, err := os.ReadFile(plain)
	require.NoError(t, err)
	text[len(text)-1] ^= 1
	flipped := filepath.Join(dir, "flipped.safetensors")
	require.NoError(t, os.WriteFile(flipped, text, 0o666))
	require.NotEqual(t, want, baseOf(t, flipped, 3, tensor.Float32, LoadConfig{}))

	delete(other, "k")
	lacking := file("lacking", tensor.Float32, other)
	onRanks(t, 2, func(g *dist.Group) error {
		_, err := BaseOf(context.Background(), g, lacking, othersParams(g, tensor.Float32), LoadConfig{})
		require.EqualError(t, err, "ckpt: reading the base "+lacking+`: there is no tensor "k"`)
		return nil
	})
}

// A checkpoint of adapters is refused with another base, also after a conversion. It is accepted if the same base has
// moved.
func TestAnotherBase(t *testing.T) {
	to, state := t.TempDir(), func(g *dist.Group, b *Base) State {
		return State{Step: 1, Params: othersParams(g, tensor.Float32), Base: b}
	}
	saved := &Base{Path: "/models/a", SHA256: "0123456789abcdef0123"}
	for _, name := range []string{"with", "without"} {
		onRanks(t, 2, func(g *dist.Group) error {
			st := state(g, saved)
			if name == "without" {
				st.Base = nil
			}
			s := newSaver(g, disk.OS{}, filepath.Join(to, name), Config{})
			if err := s.Save(context.Background(), st); err != nil {
				return err
			}
			st.Step, st.Base = 2, &Base{Path: "/models/a", SHA256: string(rune('0' + g.Rank()))}
			require.ErrorContains(t, s.Save(context.Background(), st),
				"ranks differ: rank 1 has base /models/a (SHA-256 1…) where rank 0 has /models/a (SHA-256 0…)")
			return s.Close()
		})
	}
	converted := filepath.Join(to, "converted")
	require.NoError(t,
		inspect.Convert(context.Background(), filepath.Join(to, "with", storage.StepName(1)), converted, inspect.ConvertConfig{}))
	for _, c := range []struct {
		path, want string
		base       *Base
	}{
		{filepath.Join(to, "with", storage.StepName(1)), "", nil},
		{filepath.Join(to, "with", storage.StepName(1)), "", &Base{Path: "/moved", SHA256: saved.SHA256}},
		{converted, "its adapters were trained above the base /models/a (SHA-256 0123456789abcdef…), " +
			"which is not the base /models/b (SHA-256 fedc…) that is below them now",
			&Base{Path: "/models/b", SHA256: "fedc"}},
		{filepath.Join(to, "without", storage.StepName(1)), "the checkpoint does not fit: missing: the base", saved},
	} {
		onRanks(t, 2, func(g *dist.Group) error {
			for _, s := range []Strategy{Sharded, Broadcast} {
				st := state(g, c.base)
				_, err := Load(context.Background(), g, c.path, &st, LoadConfig{Strategy: s})
				if c.want == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, "ckpt: loading "+c.path+": "+c.want)
				}
			}
			return nil
		})
	}
}
