package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// trySave saves a version on a file system and keeps one checkpoint.
func trySave(fsys disk.FS, l division, version int) error {
	return tryRanks(l.ranks, func(g *dist.Group) error {
		s := NewSaver(g, "dir", Config{Keep: 1})
		s.fs = fsys
		st := newState(failNow{}, g, l, version)
		st.Files["1_Pooling/config.json"] = []byte("below")
		return errors.Join(s.Save(context.Background(), *st), s.Close())
	})
}

// failNow stands in for a *testing.T where nothing can fail.
type failNow struct{}

func (failNow) Errorf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func (failNow) FailNow() { panic("failed") }

// requireSound verifies and loads the latest checkpoint, and compares every bit with one of the versions.
func requireSound(t *testing.T, fsys *crashFS, what string, versions ...int) {
	t.Helper()
	found := requireVerified(t, fsys, what, versions...)
	onRanks(t, 1, func(g *dist.Group) error {
		st := newState(t, g, layouts["ddp1"], 0)
		st.Extra = nil
		if _, err := load(context.Background(), g, fsys, filepath.Join("dir", storage.StepName(found)), st, LoadConfig{}); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		requireState(t, g, layouts["ddp1"], found, st)
		return nil
	})
}

// requireVerified verifies the latest checkpoint and returns its version, which must be one of the versions.
func requireVerified(t *testing.T, fsys *crashFS, what string, versions ...int) int {
	t.Helper()
	path, err := latest(fsys, "dir")
	require.NoError(t, err, what)
	found := 0
	for _, v := range versions {
		if filepath.Base(path) == storage.StepName(v) {
			found = v
		}
	}
	require.NotZero(t, found, "%s: %s", what, path)
	require.NoError(t, sound(fsys, path), what)
	return found
}

// firstSave returns a file system with version 1, and the number of operations that saving version 2 takes.
func firstSave(t *testing.T, l division) (base *crashFS, ops int) {
	base = newCrashFS()
	require.NoError(t, trySave(base, l, 1))
	trial := base.clone()
	require.NoError(t, trySave(trial, l, 2))
	requireSound(t, trial.reboot(rand.New(rand.NewPCG(1, 1))), "what was not flushed does not matter", 2)
	return base, trial.ops
}

// TestCrash crashes before every operation of a save, and then loses any part of what was not flushed. The latest
// checkpoint must be the old or the new one, complete, and the next save must work. The short test tries only some of
// the operations.
func TestCrash(t *testing.T) {
	for first, name := range []string{"ddp1", "fsdp2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if reliability.Long(t) {
				crash(t, layouts[name], 1, 1, 64)
			} else {
				crash(t, layouts[name], 1+first, 6+12*first, 4)
			}
		})
	}
}

func TestLongCrash(t *testing.T) { reliability.AsLong(t, TestCrash) }

// crash crashes before every every-th operation from first on, with several seeds for what is lost. It skips a disk
// state that it has already checked.
func crash(t *testing.T, l division, first, every int, seeds uint64) {
	base, ops := firstSave(t, l)
	require.Greater(t, ops, 40)
	seen, verified, whole := map[int]int{}, map[string]int{}, map[string]bool{}
	for stop := first; stop <= ops; stop += every {
		crashed := base.clone()
		crashed.stop = stop
		if err := trySave(crashed, l, 2); crashed.failed != "remove" { // old checkpoints are removed in the background
			require.Error(t, err)
		}
		for seed := range seeds {
			after := crashed.reboot(rand.New(rand.NewPCG(uint64(stop), seed)))
			what, print := fmt.Sprintf("off at operation %d of %d, seed %d", stop, ops, seed), after.fingerprint()
			if verified[print] == 0 {
				verified[print] = requireVerified(t, after, what, 1, 2)
			}
			seen[verified[print]]++
			if whole[print] || seed > 0 && !reliability.Long(t) {
				continue
			}
			whole[print] = true
			requireSound(t, after, what, 1, 2)
			require.NoError(t, trySave(after, l, 3))
			dir, err := after.find("dir")
			require.NoError(t, err)
			require.Len(t, dir.entries, 1, "no rubbish is left")
			requireSound(t, after, "the next save", 3)
		}
	}
	t.Logf("%d times the old checkpoint, %d times the new one; %d different disks", seen[1], seen[2], len(verified))
	require.NotZero(t, seen[1])
}

// TestFaults fails every operation of a save once, as a full or broken disk does. The short test begins with the
// last one, and ends when it has failed one of each kind: two ranks save, and so the order varies.
func TestFaults(t *testing.T) {
	l := layouts["fsdp2"]
	base, ops := firstSave(t, l)
	failed := map[string]int{}
	kinds := []string{"write", "sync", "create", "syncdir"}
	lacks := func() bool { return slices.ContainsFunc(kinds, func(what string) bool { return failed[what] == 0 }) }
	for k := ops; k > 0; k-- { // the last ones are of all kinds
		if !reliability.Long(t) && !lacks() {
			break
		}
		for i, cause := range []error{syscall.ENOSPC, syscall.EIO} {
			if i != k%2 && !reliability.Long(t) {
				continue
			}
			broken := base.clone()
			broken.fail, broken.err = k, cause
			err := trySave(broken, l, 2)
			if broken.ops < k { // the order of operations differs between two ranks
				continue
			}
			failed[broken.failed]++
			if broken.failed != "remove" || err != nil { // old checkpoints are removed in the background
				require.ErrorIs(t, errorAs(err, cause), cause, "operation %d of %d, %s: %v", k, ops, broken.failed, err)
			}
			broken.fail = 0
			versions := []int{1, 2}
			if err == nil || strings.Contains(err.Error(), "saved, but") {
				versions = []int{2}
			}
			requireSound(t, broken, fmt.Sprintf("operation %d, %s", k, broken.failed), versions...)
			require.NoError(t, trySave(broken, l, 3))
			requireSound(t, broken.reboot(rand.New(rand.NewPCG(uint64(k), 0))), "the next save", 3)
		}
	}
	require.False(t, lacks(), "%v", failed)
}

func TestLongFaults(t *testing.T) { reliability.AsLong(t, TestFaults) }

// errorAs converts the text of another rank's error back into its cause.
func errorAs(err, cause error) error {
	if err != nil && strings.Contains(err.Error(), cause.Error()) {
		return cause
	}
	return err
}

// TestMissingFlush shows that TestCrash can fail: without flushes, checkpoints are lost.
func TestMissingFlush(t *testing.T) {
	for name, lazy := range map[string]disk.FS{"files": lazyFiles{newCrashFS()}, "names": lazyDirs{newCrashFS()}} {
		require.NoError(t, trySave(lazy, layouts["ddp1"], 1))
		lost := false
		for seed := range uint64(20) {
			var c *crashFS
			switch x := lazy.(type) {
			case lazyFiles:
				c = x.crashFS
			case lazyDirs:
				c = x.crashFS
			}
			after := c.reboot(rand.New(rand.NewPCG(3, seed)))
			path, err := latest(after, "dir")
			if err != nil {
				lost = true
				continue
			}
			lost = lost || sound(after, path) != nil
		}
		require.True(t, lost, name)
	}
}

// flushedDirs records the directories whose names are flushed. Some may not be read.
type flushedDirs struct {
	disk.OS
	names *[]string
	fail  map[string]error
}

func (f flushedDirs) SyncDir(name string) error {
	*f.names = append(*f.names, name)
	return cmp.Or(f.fail[name], f.OS.SyncDir(name))
}

// TestParents: the names of all new directories on the way to the checkpoints are flushed before the first one is complete.
func TestParents(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	at := func(fsys disk.FS, step int) error {
		return tryRanks(1, func(g *dist.Group) error {
			s := NewSaver(g, dir, Config{})
			s.fs = fsys
			st := newState(failNow{}, g, layouts["ddp1"], 1)
			st.Step = step
			return errors.Join(s.Save(context.Background(), *st), s.Close())
		})
	}
	var names []string
	broken := errors.New("broken")
	err := at(flushedDirs{names: &names, fail: map[string]error{filepath.Dir(filepath.Dir(dir)): broken}}, 1)
	require.ErrorContains(t, err, "broken")
	names = nil
	require.NoError(t, at(flushedDirs{names: &names, fail: map[string]error{filepath.Dir(root): fs.ErrPermission}}, 1))
	complete := slices.Index(names, dir) // after the folder's own name
	for _, parent := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir)), root, filepath.Dir(root)} {
		i := slices.Index(names, parent)
		require.True(t, i >= 0 && i < complete, "%s: %v", parent, names)
	}
	names = nil
	require.NoError(t, at(flushedDirs{names: &names}, 2))
	require.NotContains(t, names, root, "once")
}

type lazyFiles struct{ *crashFS }

type lazyFile struct{ disk.File }

func (l lazyFiles) Create(name string, size int64) (disk.File, error) {
	f, err := l.crashFS.Create(name, size)
	return lazyFile{f}, err
}

func (l lazyFiles) Open(name string, write bool) (disk.File, error) {
	f, err := l.crashFS.Open(name, write)
	return lazyFile{f}, err
}

func (lazyFile) Sync() error { return nil }

type lazyDirs struct{ *crashFS }

func (lazyDirs) SyncDir(string) error { return nil }
