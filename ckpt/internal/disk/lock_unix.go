//go:build !windows

package disk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file, or returns ErrHeld if another process holds the lock.
func tryLock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case errors.Is(err, unix.ENOLCK): // NFS without its lock daemon
			return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
		}
		return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
}
