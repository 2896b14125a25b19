package ckpt

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	stepPrefix = "step-"
	tmpPrefix  = ".tmp-" // begins the names of folders that are being written or removed
)

func stepName(step int) string { return fmt.Sprintf("%s%08d", stepPrefix, step) }

// listSteps returns the steps of the checkpoints in a directory, in order.
func listSteps(fsys fileSystem, dir string) ([]int, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var steps []int
	for _, name := range names {
		if n, ok := stepOf(name); ok {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// stepOf returns the step of a name that stepName made.
func stepOf(name string) (step int, ok bool) {
	number, ok := strings.CutPrefix(name, stepPrefix)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil && n >= 0 && name == stepName(n)
}

// withPrevious adds to err, which says how the checkpoint at path is damaged, the last sound checkpoint before it. It
// returns nil for nil.
func withPrevious(fsys fileSystem, path string, err error) error {
	dir, name := filepath.Split(filepath.Clean(path))
	last, ok := stepOf(name)
	if err == nil || !ok {
		return err
	}
	steps, listErr := listSteps(fsys, filepath.Clean(dir))
	if listErr != nil {
		return err
	}
	for _, step := range slices.Backward(steps) {
		if step >= last {
			continue
		}
		before := filepath.Join(dir, stepName(step))
		if src, openErr := open(fsys, before); openErr == nil {
			_ = src.Close() // opened for reading only
			return fmt.Errorf("%w; the checkpoint before it is %s: to go on from there, verify it, and give %s another name", err, before, name)
		}
	}
	return fmt.Errorf("%w; there is no sound checkpoint before it", err)
}

// Steps returns the folders of the complete checkpoints in a Saver's directory, the oldest first. If there are none,
// the list is empty.
func Steps(dir string) ([]string, error) {
	steps, err := listSteps(disk{}, dir)
	if err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	var paths []string
	for _, step := range steps {
		paths = append(paths, filepath.Join(dir, stepName(step)))
	}
	return paths, nil
}

// Latest returns the folder of the newest checkpoint in a Saver's directory. A folder gets its final name only when it
// is complete, so Latest ignores what a crash left. If the newest checkpoint is damaged, the error names the one before
// it. If there is no checkpoint, the error is fs.ErrNotExist.
func Latest(dir string) (string, error) { return latest(disk{}, dir) }

func latest(fsys fileSystem, dir string) (string, error) {
	steps, err := listSteps(fsys, dir)
	if err != nil {
		return "", fmt.Errorf("ckpt: %w", err)
	}
	if len(steps) == 0 {
		return "", fmt.Errorf("ckpt: no checkpoint in %s: %w", dir, fs.ErrNotExist)
	}
	path := filepath.Join(dir, stepName(steps[len(steps)-1]))
	src, err := open(fsys, path)
	if err != nil {
		return "", fmt.Errorf("ckpt: %w", withPrevious(fsys, path, err))
	}
	return path, src.Close()
}

// retain renames all checkpoints except the newest keep ones, and returns the folders to remove. It renames them first,
// so that a folder that is only partly removed cannot be taken for a checkpoint.
func retain(fsys fileSystem, dir string, keep int) ([]string, error) {
	steps, err := listSteps(fsys, dir)
	if err != nil || len(steps) <= keep {
		return nil, err
	}
	var old []string
	for _, step := range steps[:len(steps)-keep] {
		to := filepath.Join(dir, tmpPrefix+"old-"+stepName(step))
		if err := fsys.Rename(filepath.Join(dir, stepName(step)), to); err != nil {
			return nil, err
		}
		old = append(old, to)
	}
	return old, fsys.SyncDir(dir)
}

// removeStale removes what crashed saves left.
func removeStale(fsys fileSystem, dir string) error {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, tmpPrefix) {
			errs = append(errs, fsys.RemoveAll(filepath.Join(dir, name)))
		}
	}
	return errors.Join(errs...)
}
