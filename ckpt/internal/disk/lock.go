package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// During a save its process holds a lock. Otherwise another save would take the files that it is still writing for
// files that a crash left. The lock is a lock of the operating system on an open file. It ends with the process, so it
// does not survive a crash. The file may stay; it has no meaning then.

// lockName begins the names of files that are locked.
const lockName = ".lock"

// ErrHeld: another save holds the lock.
var ErrHeld = errors.New("a save goes on there")

// Lock takes the lock on a directory, or on a file in it. If the file system has no locks, alone is false. Then files
// that look as if a crash left them must stay, because another save may be writing them.
func Lock(fsys FS, dir, name string) (unlock func(), alone bool, err error) {
	unlock, err = fsys.Lock(filepath.Join(dir, lockName+name))
	if errors.Is(err, errors.ErrUnsupported) {
		return func() {}, false, nil
	}
	if errors.Is(err, ErrHeld) {
		err = fmt.Errorf("%s: %w: one run, one directory", dir, err)
	}
	return unlock, err == nil, err
}

// Lock locks a file, and creates it first if it is missing.
func (OS) Lock(name string) (unlock func(), err error) {
	for {
		f, err := openLock(name)
		if f == nil && err == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := tryLock(f); err != nil {
			if errors.Is(err, ErrHeld) {
				who, _ := io.ReadAll(io.LimitReader(f, 200)) // only for the error's text
				err = fmt.Errorf("%w, by %s", err, strings.ToValidUTF8(string(who), "?"))
			}
			return nil, errors.Join(err, f.Close())
		}
		now, err := os.Lstat(name)
		if opened, statErr := f.Stat(); err == nil && statErr == nil && os.SameFile(now, opened) {
			note(f)
			return func() { unlockFile(f, name) }, nil
		}
		_ = f.Close() // the last holder has removed this file: try again
	}
}

// openLock opens a regular file, or creates it; it follows no link. It returns nil if the file came or went in between.
func openLock(name string) (*os.File, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			return nil, nil
		}
		return f, err
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is a link or no regular file", name)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// note writes into the file who holds the lock, for the errors of others.
func note(f *os.File) {
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "process %d on %s", os.Getpid(), host)
	}
}

// unlockFile removes the file while it still holds the lock, because afterwards another process could have locked it.
// Windows cannot remove an open file, so there it stays.
func unlockFile(f *os.File, name string) {
	if runtime.GOOS != "windows" {
		_ = os.Remove(name)
	}
	_ = f.Close() // nothing was written that must be kept
}
