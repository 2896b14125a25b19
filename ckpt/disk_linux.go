package ckpt

import (
	"errors"
	"os"
	"syscall"
)

// allocate gives a new file its size and its place on the disk: a full disk is noticed before anything is written. File
// systems that cannot do it give the size alone.
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

// startFlush has the system write a range to the disk now, not when Sync asks for all of it: the disk works while the next
// bytes are hashed and copied. Errors come from Sync.
func startFlush(f *os.File, off int64, n int) {
	const syncFileRangeWrite = 2
	_ = syscall.SyncFileRange(int(f.Fd()), off, int64(n), syncFileRangeWrite)
}
