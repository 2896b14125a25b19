package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// tryLock locks a file, or returns ErrHeld if another process holds the lock. It locks one byte far beyond the file's
// end, because other processes cannot read a locked byte.
func tryLock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{OffsetHigh: 1})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION):
		return ErrHeld
	case errors.Is(err, windows.ERROR_INVALID_FUNCTION), errors.Is(err, windows.ERROR_NOT_SUPPORTED):
		return errors.ErrUnsupported
	}
	return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}
