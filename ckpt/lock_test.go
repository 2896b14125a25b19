package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/inspect"
	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
)

// A Saver is refused while another one saves to the same directory, and does not touch its files.
func TestTwoSavers(t *testing.T) {
	ctx, dir, l := t.Context(), t.TempDir(), layouts["fsdp2"]
	onRanks(t, 2, func(g *dist.Group) error {
		fsys := &slowFS{gate: make(chan struct{}), began: make(chan struct{})}
		first, second := newSaver(g, fsys, dir, Config{Async: true}), newSaver(g, disk.OS{}, dir, Config{})
		require.NoError(t, first.Save(ctx, *newState(t, g, l, 1)))
		<-fsys.began
		err := second.Save(ctx, *newState(t, g, l, 2))
		require.ErrorContains(t, err, fmt.Sprintf("%s: a save goes on there, by process %d on ", dir, os.Getpid()))
		close(fsys.gate)
		require.NoError(t, first.Close())
		require.NoError(t, second.Save(ctx, *newState(t, g, l, 2)))
		return second.Close()
	})
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{storage.StepName(1), storage.StepName(2)}, names)
	for _, name := range names {
		require.True(t, mustVerify(t, filepath.Join(dir, name), inspect.VerifyConfig{}).OK)
	}
}

// withoutLocks is a file system that has no locks.
type withoutLocks struct{ disk.OS }

func (withoutLocks) Lock(string) (func(), error) { return nil, errors.ErrUnsupported }

// Without locks, saves still work, and files that another save may be writing stay.
func TestWithoutLocks(t *testing.T) {
	dir := t.TempDir()
	others := filepath.Join(dir, storage.TmpPrefix+"step-00000001-X")
	require.NoError(t, os.Mkdir(others, 0o777))
	onRanks(t, 1, func(g *dist.Group) error {
		s := newSaver(g, withoutLocks{}, dir, Config{})
		require.NoError(t, s.Save(context.Background(), *newState(t, g, layouts["ddp1"], 1)))
		return s.Close()
	})
	requireComplete(t, dir)
	require.DirExists(t, others)
}

// Two programs cannot replace a file at the same time.
func TestSaveFileLocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.safetensors")
	unlock, err := disk.OS{}.Lock(filepath.Join(dir, ".lock-a.safetensors"))
	require.NoError(t, err)
	onRanks(t, 1, func(g *dist.Group) error {
		st := *newState(t, g, layouts["ddp1"], 1)
		st.Files = nil
		require.ErrorContains(t, SaveFile(t.Context(), path, st), dir+": a save goes on there, by process ")
		require.NoFileExists(t, path)
		unlock()
		return SaveFile(t.Context(), path, st)
	})
	names, err := disk.OS{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a.safetensors"}, names)
}
