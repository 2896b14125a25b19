package ckpt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
)

// A Saver is refused while another one saves to the same directory, and does not touch its files.
func TestTwoSavers(t *testing.T) {
	ctx, dir, l := t.Context(), t.TempDir(), layouts["fsdp2"]
	onRanks(t, 2, func(g *dist.Group) error {
		fsys := &slowFS{gate: make(chan struct{}), began: make(chan struct{})}
		first, second := newSaver(g, fsys, dir, Config{Async: true}), newSaver(g, disk{}, dir, Config{})
		require.NoError(t, first.Save(ctx, *newState(t, g, l, 1)))
		<-fsys.began
		err := second.Save(ctx, *newState(t, g, l, 2))
		require.ErrorContains(t, err, fmt.Sprintf("%s: a save goes on there, by process %d on ", dir, os.Getpid()))
		close(fsys.gate)
		require.NoError(t, first.Close())
		require.NoError(t, second.Save(ctx, *newState(t, g, l, 2)))
		return second.Close()
	})
	names, err := disk{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{stepName(1), stepName(2)}, names)
	for _, name := range names {
		require.True(t, mustVerify(t, filepath.Join(dir, name), VerifyConfig{}).OK)
	}
}

// withoutLocks is a file system that has no locks.
type withoutLocks struct{ disk }

func (withoutLocks) Lock(string) (func(), error) { return nil, errors.ErrUnsupported }

// Without locks, saves still work, and files that another save may be writing stay.
func TestWithoutLocks(t *testing.T) {
	dir := t.TempDir()
	others := filepath.Join(dir, tmpPrefix+"step-00000001-X")
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
	unlock, err := disk{}.Lock(filepath.Join(dir, ".lock-a.safetensors"))
	require.NoError(t, err)
	onRanks(t, 1, func(g *dist.Group) error {
		st := *newState(t, g, layouts["ddp1"], 1)
		st.Files = nil
		require.ErrorContains(t, SaveFile(t.Context(), path, st), dir+": a save goes on there, by process ")
		require.NoFileExists(t, path)
		unlock()
		return SaveFile(t.Context(), path, st)
	})
	names, err := disk{}.ReadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a.safetensors"}, names)
}

// A lock has one owner at a time, also while owners remove the file. A link is not accepted as its file.
func TestLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	var owners, wrong atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for had := 0; had < 200; {
				unlock, err := disk{}.Lock(name)
				if errors.Is(err, errHeld) {
					runtime.Gosched()
					continue
				}
				if !assert.NoError(t, err) {
					return
				}
				if owners.Add(1) != 1 {
					wrong.Add(1)
				}
				runtime.Gosched()
				owners.Add(-1)
				unlock()
				had++
			}
		})
	}
	wg.Wait()
	require.Zero(t, wrong.Load())

	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("text"), 0o666))
	require.NoError(t, os.Symlink(text, name))
	_, err := disk{}.Lock(name)
	require.ErrorContains(t, err, "is a link or no regular file")
	got, err := os.ReadFile(text)
	require.NoError(t, err)
	require.Equal(t, "text", string(got))
}
