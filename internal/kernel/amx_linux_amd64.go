//go:build !noasm

package kernel

import (
	"syscall"
	"unsafe"
)

// requestTiles asks Linux for this process to use AMX's tiles. Without the
// permission, the first load of a tile would kill the process.
func requestTiles() bool {
	const (
		getPermission     = 0x1022 // ARCH_GET_XCOMP_PERM
		requestPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData          = 18     // XFEATURE_XTILEDATA
	)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0); errno != 0 {
		return false
	}
	var granted uint64
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, getPermission, uintptr(unsafe.Pointer(&granted)), 0)
	return errno == 0 && granted>>tileData&1 == 1
}
