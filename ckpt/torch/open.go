package torch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// metadataFile marks a folder as a distributed checkpoint.
const metadataFile = ".metadata"

// Checkpoint is an open checkpoint.
type Checkpoint struct {
	// Root is the tree that was saved. In a distributed checkpoint, lists have become dicts with the keys 0, 1 and so
	// on.
	Root  any
	files map[string]*source

	budget *bounded.Budget // of memory
	bytes  int64           // of all files
}

// source is an open file.
type source struct {
	*os.File
	size int64
	read int64 // bytes of the archives in it that were opened
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
	c := &Checkpoint{files: map[string]*source{}, budget: bounded.New(0)}
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
	f, size, err := bounded.Open(path)
	if err != nil {
		return err
	}
	c.add(path, f, size)
	c.Root, err = c.load(filepath.Base(path), f, size)
	return err
}

// add keeps an open file.
func (c *Checkpoint) add(path string, f *os.File, size int64) *source {
	s := &source{File: f, size: size}
	c.files[path] = s
	c.bytes += size
	c.budget.Grow(size)
	return s
}

// load reads an archive.
func (c *Checkpoint) load(name string, r io.ReaderAt, size int64) (any, error) {
	a, err := openArchive(name, r, size, c.budget)
	if err != nil {
		return nil, err
	}
	return a.value()
}

// open opens a file in the folder itself, and refuses links.
func (c *Checkpoint) open(dir, name string) (*source, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\:`) || filepath.Base(name) != name || len(name) > 255 {
		return nil, fmt.Errorf("%s is not the name of a file in the folder", bounded.Quote(name))
	}
	path := filepath.Join(dir, name)
	if f := c.files[path]; f != nil {
		return f, nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := c.add(path, f, info.Size())
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", path), err)
	}
	return s, nil
}
