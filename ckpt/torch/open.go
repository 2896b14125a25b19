package torch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// metadataFile marks a folder as a distributed checkpoint.
const metadataFile = ".metadata"

// Checkpoint is an open checkpoint.
type Checkpoint struct {
	// Root is the tree that was saved. In a distributed checkpoint, lists have become dicts with the keys 0, 1 and so
	// on.
	Root  any
	limit int // number of values that a walk over the tree may visit
	files map[string]*os.File
}

// Is reports whether path looks like a PyTorch checkpoint: a folder with a .metadata, or a file with a name of
// torch.save.
func Is(path string) bool {
	if slices.Contains([]string{".pt", ".pth", ".bin", ".ckpt"}, strings.ToLower(filepath.Ext(path))) {
		info, err := os.Stat(path)
		return err == nil && !info.IsDir()
	}
	_, err := os.Stat(filepath.Join(path, metadataFile))
	return err == nil
}

// Open opens a file of torch.save or a folder of torch.distributed.checkpoint. It reads everything except the data of
// the tensors. Call Close when its tensors are no longer needed.
func Open(path string) (*Checkpoint, error) {
	c := &Checkpoint{files: map[string]*os.File{}}
	info, err := os.Stat(path)
	if err == nil {
		if info.IsDir() {
			err = c.readFolder(path)
		} else {
			err = c.readFile(path)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("torch: %w", err), c.Close())
	}
	return c, nil
}

// Close closes the files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// readFile reads a file of torch.save.
func (c *Checkpoint) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	c.files[path] = f
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c.Root, err = c.load(filepath.Base(path), f, info.Size())
	return err
}

// load reads an archive.
func (c *Checkpoint) load(name string, r io.ReaderAt, size int64) (any, error) {
	a, err := openArchive(name, r, size)
	if err != nil {
		return nil, err
	}
	c.limit += int(min(a.entries[a.prefix+"data.pkl"].size, maxPickle))
	return a.value()
}

// open opens a file in the folder itself, and refuses links.
func (c *Checkpoint) open(dir, name string) (*os.File, int64, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\:`) || filepath.Base(name) != name {
		return nil, 0, fmt.Errorf("%q is not the name of a file in the folder", name)
	}
	path := filepath.Join(dir, name)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is a link or no regular file", path)
	}
	if f := c.files[path]; f != nil {
		return f, info.Size(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	c.files[path] = f
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, 0, errors.Join(fmt.Errorf("%s was replaced while it was opened", path), err)
	}
	return f, info.Size(), nil
}
