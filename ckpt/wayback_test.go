package ckpt

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
	"github.com/ringo-ml/ringo/dist"
)

// saveThree saves steps 1 to 3.
func saveThree(t *testing.T) (dir string) {
	dir = t.TempDir()
	for version := 1; version <= 3; version++ {
		save(t, dir, layouts["ddp1"], version)
	}
	return dir
}

// flipLast flips a bit in the last byte of a file.
func flipLast(t *testing.T, path ...string) {
	name := filepath.Join(path...)
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	b[len(b)-1] ^= 1
	require.NoError(t, os.WriteFile(name, b, 0o666))
}

// If the newest checkpoint is damaged, errors name the last sound one before it. Renaming the damaged folder lets a run
// resume from that one.
func TestWayBack(t *testing.T) {
	dir := saveThree(t)
	path := func(step int) string { return filepath.Join(dir, storage.StepName(step)) }
	back := func(step int) string {
		return "the checkpoint before it is " + path(step) + ": verify it, and go on from there with -resume=" + storage.StepName(step) +
			", or give step-00000003 another name"
	}
	load := func(strategy Strategy, step int) error {
		return tryRanks(2, func(g *dist.Group) error {
			st := newState(t, g, layouts["ddp2"], 0)
			st.Extra = nil
			_, err := Load(context.Background(), g, path(step), st, LoadConfig{Strategy: strategy})
			return err
		})
	}
	flipLast(t, path(3), broken1) // damages tensor data
	latest, err := Latest(dir)
	require.NoError(t, err, "it reads no data")
	require.Equal(t, path(3), latest)
	for _, s := range []Strategy{Sharded, Broadcast} {
		err := load(s, 3)
		require.ErrorContains(t, err, "the data is damaged")
		require.ErrorContains(t, err, back(2))
	}
	flipLast(t, path(2), storage.ManifestName)
	require.ErrorContains(t, load(Sharded, 3), back(1))
	require.NoError(t, os.Remove(filepath.Join(path(3), storage.ManifestName))) // a step's folder cannot be another program's
	_, err = Latest(dir)
	require.ErrorContains(t, err, "step-00000003 is not sound: ringo.json is missing")
	require.ErrorContains(t, err, back(1))

	require.NoError(t, os.Rename(path(3), filepath.Join(dir, "damaged-3")))
	require.NoError(t, os.Rename(path(2), filepath.Join(dir, "damaged-2")))
	latest, err = Latest(dir)
	require.NoError(t, err)
	require.NoError(t, load(Sharded, 1))
	flipLast(t, latest, storage.IndexName)
	_, err = Latest(dir)
	require.ErrorContains(t, err, "there is no sound checkpoint before it")
}

// A text that is too large to be read again is not written.
func TestTooLargeToRead(t *testing.T) {
	before := storage.MaxJSON
	t.Cleanup(func() { storage.MaxJSON = before })
	for limit, name := range map[int64]string{200: storage.IndexName, 4000: storage.ManifestName} {
		storage.MaxJSON = limit
		dir := t.TempDir()
		onRanks(t, 2, func(g *dist.Group) error {
			err := newSaver(g, disk.OS{}, dir, Config{}).Save(context.Background(), *newState(t, g, layouts["ddp2"], 1))
			require.ErrorContains(t, err, name+" would have ")
			return nil
		})
		requireNothing(t, dir)
	}
}
