package ckpt

import (
	"os"
	"syscall"
)

// startFlush has the system write a range to the disk now, not when Sync asks for all of it: the disk works while the next
// bytes are hashed and copied. Errors come from Sync.
func startFlush(f *os.File, off int64, n int) {
	const syncFileRangeWrite = 2
	_ = syscall.SyncFileRange(int(f.Fd()), off, int64(n), syncFileRangeWrite)
}
