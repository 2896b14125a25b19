package algo

import (
	"unsafe"

	"github.com/ringo-ml/ringo/dist/backend"
)

// chunkBytes is the largest message of an algorithm that reduces or forwards. It limits memory, and a chunk is reduced while the next
// ones arrive. It is a multiple of every element size. (What Direct moves at once is a piece.)
const chunkBytes = 256 << 10

func whole(m backend.Mem) []byte { return unsafe.Slice((*byte)(m.Ptr), m.Bytes) }

// copyPart copies src to dst, unless they are the same memory.
func copyPart(dst, src []byte) {
	if len(src) > 0 && unsafe.SliceData(dst) != unsafe.SliceData(src) {
		copy(dst, src)
	}
}

// chunkOf returns chunk k of b, empty after its end.
func chunkOf(b []byte, k int) []byte {
	lo := min(k*chunkBytes, len(b))
	return b[lo:min(lo+chunkBytes, len(b))]
}

// numChunks is the number of chunks of n bytes. It is at least one, because an empty operation synchronizes, too.
func numChunks(n int) int { return max(1, (n+chunkBytes-1)/chunkBytes) }
