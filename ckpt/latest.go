package ckpt

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/ringo-ml/ringo/ckpt/internal/disk"
	"github.com/ringo-ml/ringo/ckpt/internal/storage"
)

// Steps returns the folders of the complete checkpoints in a Saver's directory, the oldest first. If there are none,
// the list is empty.
func Steps(dir string) ([]string, error) {
	steps, err := storage.ListSteps(disk.OS{}, dir)
	if err != nil {
		return nil, fmt.Errorf("ckpt: %w", err)
	}
	var paths []string
	for _, step := range steps {
		paths = append(paths, filepath.Join(dir, storage.StepName(step)))
	}
	return paths, nil
}

// Latest returns the folder of the newest checkpoint in a Saver's directory. A folder gets its final name only when it
// is complete, so Latest ignores what a crash left. If the newest checkpoint is damaged, the error names the one before
// it. If there is no checkpoint, the error is fs.ErrNotExist.
func Latest(dir string) (string, error) { return latest(disk.OS{}, dir) }

func latest(fsys disk.FS, dir string) (string, error) {
	steps, err := storage.ListSteps(fsys, dir)
	if err != nil {
		return "", fmt.Errorf("ckpt: %w", err)
	}
	if len(steps) == 0 {
		return "", fmt.Errorf("ckpt: no checkpoint in %s: %w", dir, fs.ErrNotExist)
	}
	path := filepath.Join(dir, storage.StepName(steps[len(steps)-1]))
	src, err := storage.Open(fsys, path)
	if err != nil {
		return "", fmt.Errorf("ckpt: %w", storage.WithPrevious(fsys, path, err))
	}
	return path, src.Close()
}
