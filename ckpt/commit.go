package ckpt

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// prepare runs on rank 0. It locks the directory, creates the files in a temporary folder, and returns that folder's
// name.
func (w *writer) prepare() (tmp string, err error) {
	if err := w.fs.MkdirAll(w.dir); err != nil {
		return "", err
	}
	if err := w.fs.SyncDir(filepath.Dir(w.dir)); err != nil {
		return "", err
	}
	unlock, alone, err := lock(w.fs, w.dir, "")
	if err != nil {
		return "", err
	}
	w.unlock = unlock
	steps, err := listSteps(w.fs, w.dir)
	if err != nil {
		return "", err
	}
	if n := len(steps); n > 0 && steps[n-1] >= w.global.man.Step {
		return "", fmt.Errorf("%s has step %d already: resume from it, or choose another directory", w.dir, steps[n-1])
	}
	w.removal.Wait()
	if alone {
		if err := removeStale(w.fs, w.dir); err != nil {
			return "", err
		}
	}
	tmp = tmpPrefix + stepName(w.global.man.Step) + "-" + rand.Text()[:8]
	if err := w.fs.Mkdir(filepath.Join(w.dir, tmp)); err != nil {
		return "", err
	}
	return tmp, w.global.create(w.fs, filepath.Join(w.dir, tmp))
}

// commit completes the folder and gives it its final name. Then it removes old checkpoints in the background.
func (w *writer) commit(tmp string) error {
	if err := w.global.commit(w.fs, filepath.Join(w.dir, tmp), filepath.Join(w.dir, stepName(w.global.man.Step))); err != nil {
		return err
	}
	if w.c.Keep <= 0 {
		return nil
	}
	old, err := retain(w.fs, w.dir, w.c.Keep)
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

// create creates the files and writes their headers.
func (p *draft) create(fsys fileSystem, dir string) error {
	for _, f := range p.files {
		out, err := fsys.Create(filepath.Join(dir, f.name), f.size)
		if err != nil {
			return err
		}
		_, err = out.WriteAt(f.header, 0)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// commit writes the small files, the index and ringo.json, and flushes the folder. Then it renames the folder and
// flushes the directory that holds it.
func (p *draft) commit(fsys fileSystem, from, to string) error {
	total := int64(0)
	for _, t := range p.man.Model {
		total += int64(product(t.Shape)) * int64(t.DType.Bits()) / 8
	}
	idx, err := encodeIndex(p.man.Model, total)
	if err != nil {
		return err
	}
	p.man.Index = sum(idx)
	text, err := p.man.encode()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.beside)) {
		if err := writeFile(fsys, filepath.Join(from, name), p.beside[name]); err != nil {
			return err
		}
	}
	if err := writeFile(fsys, filepath.Join(from, indexName), idx); err != nil {
		return err
	}
	if err := writeFile(fsys, filepath.Join(from, manifestName), text); err != nil {
		return err
	}
	if err := fsys.SyncDir(from); err != nil {
		return err
	}
	if err := fsys.Rename(from, to); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(to))
}
