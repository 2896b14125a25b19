//go:build !amd64

package nccl

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// initRank calls ncclCommInitRankConfig(comm, n, id, rank, config). The id is
// passed by value: the procedure call standard of arm64 passes a struct of more
// than 16 bytes as the address of a copy.
func initRank(fn uintptr, comm *uintptr, n int, id *ID, rank int, cfg *config) uintptr {
	byValue := *id
	return dl.Call(fn, uintptr(unsafe.Pointer(comm)), uintptr(n), uintptr(unsafe.Pointer(&byValue)), uintptr(rank),
		uintptr(unsafe.Pointer(cfg)))
}
