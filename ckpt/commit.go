package ckpt

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
)

// prepare makes the files in a temporary folder, on rank 0, and returns its name.
func (w *writer) prepare() (tmp string, err error) {
	if err := w.fs.MkdirAll(w.dir); err != nil {
		return "", err
	}
	if err := w.fs.SyncDir(filepath.Dir(w.dir)); err != nil {
		return "", err
	}
	steps, err := listSteps(w.fs, w.dir)
	if err != nil {
		return "", err
	}
	if n := len(steps); n > 0 && steps[n-1] >= w.plan.man.Step {
		return "", fmt.Errorf("%s has step %d already: resume from it, or choose another directory", w.dir, steps[n-1])
	}
	if err := removeStale(w.fs, w.dir); err != nil {
		return "", err
	}
	tmp = tmpPrefix + stepName(w.plan.man.Step) + "-" + rand.Text()[:8]
	if err := w.fs.Mkdir(filepath.Join(w.dir, tmp)); err != nil {
		return "", err
	}
	for _, f := range w.plan.files {
		out, err := w.fs.Create(filepath.Join(w.dir, tmp, f.name), f.size)
		if err != nil {
			return tmp, err
		}
		_, err = out.WriteAt(f.header, 0)
		if err == nil {
			err = out.Sync() // the size too, where no rank has data to write
		}
		if err := errors.Join(err, out.Close()); err != nil {
			return tmp, err
		}
	}
	return tmp, nil
}

// commit writes what makes the folder complete, and renames it.
func (w *writer) commit(tmp string) error {
	total := int64(0)
	for _, t := range w.plan.man.Model {
		total += int64(product(t.Shape)) * int64(t.DType.Bits()) / 8
	}
	idx, err := encodeIndex(w.plan.man.Model, total)
	if err != nil {
		return err
	}
	w.plan.man.Index = sum(idx)
	text, err := w.plan.man.encode()
	if err != nil {
		return err
	}
	from := filepath.Join(w.dir, tmp)
	if err := writeFile(w.fs, filepath.Join(from, indexName), idx); err != nil {
		return err
	}
	if err := writeFile(w.fs, filepath.Join(from, manifestName), text); err != nil {
		return err
	}
	if err := w.fs.SyncDir(from); err != nil {
		return err
	}
	if err := w.fs.Rename(from, filepath.Join(w.dir, stepName(w.plan.man.Step))); err != nil {
		return err
	}
	if err := w.fs.SyncDir(w.dir); err != nil {
		return err
	}
	if w.c.Keep <= 0 {
		return nil
	}
	return retain(w.fs, w.dir, w.c.Keep)
}
