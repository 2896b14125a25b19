package ckpt

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Who saves has a lock meanwhile: what others have begun to write there would look like what a crash left behind. It is the operating
// system's lock of an open file, which ends with the process, so that no crash leaves one. The file itself may stay; it means nothing.

// lockName is what the name of the file begins with that a save locks.
const lockName = ".lock"

// errHeld is that of a lock that somebody else has.
var errHeld = errors.New("a save goes on there")

// lock makes this save the only one in a directory, or of a file in it. Where the file system has no locks, alone is false: then what
// crashes have left behind must stay, for it may be another one's.
func lock(fsys fileSystem, dir, name string) (unlock func(), alone bool, err error) {
	unlock, err = fsys.Lock(filepath.Join(dir, lockName+name))
	if errors.Is(err, errors.ErrUnsupported) {
		return func() {}, false, nil
	}
	if errors.Is(err, errHeld) {
		err = fmt.Errorf("%s: %w: one run, one directory", dir, err)
	}
	return unlock, err == nil, err
}

func (disk) Lock(name string) (unlock func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		if err := tryLock(f); err != nil {
			if errors.Is(err, errHeld) {
				who, _ := io.ReadAll(io.LimitReader(f, 200)) // it helps to know, no more
				err = fmt.Errorf("%w, by %s", err, strings.ToValidUTF8(string(who), "?"))
			}
			return nil, errors.Join(err, f.Close())
		}
		now, err := os.Lstat(name)
		if err == nil && !now.Mode().IsRegular() {
			return nil, errors.Join(fmt.Errorf("%s is a link or no regular file", name), f.Close())
		}
		if opened, statErr := f.Stat(); err == nil && statErr == nil && os.SameFile(now, opened) {
			note(f)
			return func() { unlockFile(f, name) }, nil
		}
		_ = f.Close() // whoever had the lock before has removed the file: once more
	}
}

// note writes into the file who has the lock, for others' errors.
func note(f *os.File) {
	host, _ := os.Hostname()
	if f.Truncate(0) == nil {
		_, _ = fmt.Fprintf(f, "process %d on %s", os.Getpid(), host)
	}
}

// unlockFile removes the file while it is locked, or somebody could lock it in between. Windows removes no open file; there it stays.
func unlockFile(f *os.File, name string) {
	if runtime.GOOS != "windows" {
		_ = os.Remove(name)
	}
	_ = f.Close() // nothing in it matters
}
