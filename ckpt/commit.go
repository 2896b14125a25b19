package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// prepare runs on rank 0. It locks the directory, creates the files in a temporary folder, and returns that folder's
// name.
func (w *writer) prepare() (tmp string, err error) {
	if err := w.fs.MkdirAll(w.dir); err != nil {
		return "", err
	}
	unlock, alone, err := disk.Lock(w.fs, w.dir, "")
	if err != nil {
		return "", err
	}
	w.unlock = unlock
	steps, err := storage.ListSteps(w.fs, w.dir)
	if err != nil {
		return "", err
	}
	if n := len(steps); n > 0 && steps[n-1] >= w.global.Manifest.Step {
		return "", fmt.Errorf("%s has step %d already: resume from it, or choose another directory", w.dir, steps[n-1])
	}
	if len(steps) == 0 {
		if err := w.syncParents(); err != nil {
			return "", err
		}
	}
	w.removal.Wait()
	if alone {
		if err := storage.RemoveStale(w.fs, w.dir, ""); err != nil {
			return "", err
		}
	}
	tmp = storage.TmpName(storage.StepName(w.global.Manifest.Step))
	if err := w.fs.Mkdir(filepath.Join(w.dir, tmp)); err != nil {
		return "", err
	}
	return tmp, w.global.Create(w.fs, filepath.Join(w.dir, tmp))
}

// syncParents flushes the name of the directory, and of those above it: all of them may be new. A directory that cannot be
// flushed, or that others may not read, is not.
func (w *writer) syncParents() error {
	for dir := w.dir; filepath.Dir(dir) != dir; {
		dir = filepath.Dir(dir)
		err := w.fs.SyncDir(dir)
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
			return err
		}
	}
	return nil
}

// verdict is what a rank reports after writing.
type verdict struct {
	Err    string
	Hashes []byte   // of the pieces that the rank wrote, one after another
	Shared []int    // indices of the pieces that several ranks hold
	Sums   []uint32 // checksums of these pieces
}

func (w *writer) verdict() (v verdict) {
	if w.err != nil {
		v.Err = w.err.Error()
		return v
	}
	for i := range w.pieces {
		x := &w.pieces[i]
		if x.Mine {
			v.Hashes = append(v.Hashes, x.hash[:]...)
		}
		if x.Shared {
			v.Shared, v.Sums = append(v.Shared, x.Index), append(v.Sums, x.sum)
		}
	}
	return v
}

// agree compares the ranks' verdicts and stores their hashes in the plan.
func (p *plan) agree(all []verdict) error {
	var errs []error
	hashes := make([][]byte, len(all))
	for r, v := range all {
		if v.Err != "" {
			errs = append(errs, fmt.Errorf("rank %d: %s", r, v.Err))
		}
		hashes[r] = v.Hashes
	}
	var names []string
	for _, t := range p.Manifest.Entries() {
		names = append(names, slices.Repeat([]string{t.Name}, len(t.Pieces))...)
	}
	type first struct {
		rank int
		sum  uint32
	}
	seen := map[int]first{}
	for r, v := range all {
		for i, piece := range v.Shared {
			x, there := seen[piece]
			if !there {
				seen[piece] = first{r, v.Sums[i]}
			} else if x.sum != v.Sums[i] {
				errs = append(errs, fmt.Errorf("ranks differ: rank %d and rank %d have other bits in %s", x.rank, r, names[piece]))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return p.SetHashes(hashes)
}

// commit completes the folder and gives it its final name. Then it removes old checkpoints in the background.
func (w *writer) commit(tmp string) error {
	if err := w.global.Commit(w.fs, filepath.Join(w.dir, tmp), filepath.Join(w.dir, storage.StepName(w.global.Manifest.Step))); err != nil {
		return err
	}
	if w.c.Keep <= 0 {
		return nil
	}
	spare := w.c.Spare
	if spare == nil {
		spare = func([]int) []int { return nil }
	}
	old, err := storage.Retain(w.fs, w.dir, w.c.Keep, spare)
	if err != nil {
		return fmt.Errorf("saved, but an old checkpoint could not be removed: %w", err)
	}
	w.removal.Go(func() {
		for _, name := range old {
			_ = w.fs.RemoveAll(name) // the next save tries again, and reports an error
		}
	})
	return nil
}
