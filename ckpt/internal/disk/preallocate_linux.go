package disk

import (
	"errors"
	"os"
	"syscall"
)

// allocate reserves disk space for a new file, so that a full disk is noticed before anything is written. On file
// systems that cannot reserve space, it only sets the size.
func allocate(f *os.File, size int64) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		return f.Truncate(size)
	}
	if err != nil {
		return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
	return nil
}

// startFlush asks the system to write a range to the disk now, instead of at Sync. So the disk works while the next
// bytes are hashed and copied. Sync returns the errors.
func startFlush(f *os.File, off int64, n int) {
	const syncFileRangeWrite = 2
	_ = syscall.SyncFileRange(int(f.Fd()), off, int64(n), syncFileRangeWrite)
}
