package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/ringo-ml/ringo/internal/bounded"
)

// FS has the operations that a checkpoint needs. Tests replace it by one that fails, or that loses what was not
// flushed.
type FS interface {
	MkdirAll(name string) error
	Mkdir(name string) error
	Create(name string, size int64) (File, error) // creates a file of size bytes
	Open(name string, write bool) (File, error)   // a regular file; follows only links of Hugging Face's cache
	Rename(from, to string) error                 // to must not exist
	Replace(from, to string) error                // renames a file; to may exist
	RemoveAll(name string) error                  //
	ReadDir(name string) ([]string, error)        // sorted
	IsDir(name string) (bool, error)              // a folder, not a link to one
	SyncDir(name string) error                    // flushes the names in a directory
	Lock(name string) (unlock func(), err error)  // until unlock or the process ends; fails with ErrHeld or errors.ErrUnsupported
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	Size() (int64, error)
	Sync() error
	Close() error
}

// OS is the file system of the operating system.
type OS struct{}

type diskFile struct {
	*os.File
	mu sync.Mutex // for WriteAt: the kernel lets writers of one file spin, on cores that could hash instead
}

// MkdirAll is os.MkdirAll.
func (OS) MkdirAll(name string) error { return os.MkdirAll(name, 0o777) }

// Mkdir is os.Mkdir.
func (OS) Mkdir(name string) error { return os.Mkdir(name, 0o777) }

// RemoveAll is os.RemoveAll.
func (OS) RemoveAll(name string) error { return os.RemoveAll(name) }

// Create creates a file of a fixed size.
func (OS) Create(name string, size int64) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	if err := allocate(f, size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &diskFile{File: f}, nil
}

// Open opens a regular file.
func (OS) Open(name string, write bool) (File, error) {
	info, err := os.Lstat(name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 && !write {
		if blob := cachedBlob(name); blob != "" {
			name = blob
			info, err = os.Lstat(name)
		}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a link or no regular file", name)
	}
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(fmt.Errorf("%s was replaced while it was opened", name), err, f.Close())
	}
	return &diskFile{File: f}, nil
}

var blobName = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`) // a SHA-1 or SHA-256

// cachedBlob returns the file that a link of Hugging Face's cache points to, and "" for every other link. In that
// cache, snapshots/REVISION/NAME is a link to ../../blobs/HASH.
func cachedBlob(link string) string {
	dir, err := filepath.Abs(filepath.Dir(link))
	if err != nil || filepath.Base(filepath.Dir(dir)) != "snapshots" {
		return ""
	}
	target, err := os.Readlink(link)
	hash := filepath.Base(target)
	if err != nil || !blobName.MatchString(hash) || target != filepath.Join("..", "..", "blobs", hash) {
		return ""
	}
	return filepath.Join(filepath.Dir(filepath.Dir(dir)), "blobs", hash)
}

// Rename returns an error if to exists. os.Rename would replace an empty directory.
func (OS) Rename(from, to string) error {
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}

// Replace is os.Rename.
func (OS) Replace(from, to string) error { return os.Rename(from, to) }

// ReadDir returns the sorted names in a directory.
func (OS) ReadDir(name string) ([]string, error) {
	list, err := os.ReadDir(name)
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Name()
	}
	return names, err
}

// IsDir tells whether a name is that of a folder, and not of a link to one.
func (OS) IsDir(name string) (bool, error) {
	info, err := os.Lstat(name)
	return err == nil && info.IsDir(), err
}

// SyncDir flushes the names in a directory.
func (OS) SyncDir(name string) error {
	if runtime.GOOS == "windows" { // Windows cannot flush a directory
		return nil
	}
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// WriteAt writes, and asks the system to start the transfer to the disk.
func (f *diskFile) WriteAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.File.WriteAt(b, off)
	if n >= flushBytes {
		startFlush(f.File, off, n)
	}
	return n, err
}

// flushBytes is the smallest write, in bytes, for which startFlush is worth a system call.
const flushBytes = 1 << 20

func (f *diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ReadFile returns the content of a file, or an error if it has more than limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name, false)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading only
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are allowed", name, size, limit)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// WriteFile creates a file, writes it and flushes it.
func WriteFile(fsys FS, name string, b []byte) error {
	f, err := fsys.Create(name, int64(len(b)))
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// CheckName returns an error unless name is a plain name of a file in the checkpoint's own folder.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\:`) || filepath.Base(name) != name || len(name) > 255 {
		return fmt.Errorf("%s is not the name of a file in the folder", bounded.Quote(name))
	}
	return nil
}

// Fill opens the files of a folder that are needed (nil: all), calls fill, and flushes the files. The others are nil.
func Fill(fsys FS, dir string, names []string, needed func(i int) bool, fill func(files []File) error) (err error) {
	files := make([]File, len(names))
	defer func() {
		for _, f := range files {
			if f != nil {
				err = errors.Join(err, f.Close())
			}
		}
	}()
	for i, name := range names {
		if needed == nil || needed(i) {
			if files[i], err = fsys.Open(filepath.Join(dir, name), true); err != nil {
				return err
			}
		}
	}
	err = fill(files)
	for _, f := range files {
		if f != nil && err == nil {
			err = f.Sync()
		}
	}
	return err
}
