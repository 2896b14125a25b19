package nccl

import (
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// initRank calls ncclCommInitRankConfig(comm, n, id, rank, config). The id is passed by value: in the System V ABI a struct of 128 bytes
// is on the stack, and the other arguments use the registers as if it were not there. So two of the six registers get a dummy value, and
// the words of the id follow.
func initRank(fn uintptr, comm *uintptr, n int, id *ID, rank int, cfg *config) uintptr {
	w := (*[16]uintptr)(unsafe.Pointer(id))
	return dl.Call(fn, uintptr(unsafe.Pointer(comm)), uintptr(n), uintptr(rank), uintptr(unsafe.Pointer(cfg)), 0, 0,
		w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15])
}
