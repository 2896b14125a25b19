package shm

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// The largest and the smallest segments, by their numbers. Only touched pages are real, but all ranks of a host map all segments
// whole, and limits count that.
var (
	mostBytes  = [2]int64{16 << 30, 64 << 30}
	leastBytes = [2]int64{16 << 20, 64 << 20}
)

// bounds are what this machine and this process's limits allow.
type bounds struct {
	memory  uint64 // of the machine
	address uint64 // that the process may still map (ulimit -v)
	file    uint64 // the largest file (ulimit -f), which a memfd is too
}

// here reads the bounds. What the system does not tell bounds nothing.
func here() bounds {
	b := bounds{math.MaxUint64, math.MaxUint64, math.MaxUint64}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		b.memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil {
		b.file = limit.Cur
	}
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) == nil && limit.Cur < math.MaxInt64 {
		b.address = limit.Cur
		var pages uint64
		if text, err := os.ReadFile("/proc/self/statm"); err == nil {
			_, _ = fmt.Sscan(string(text), &pages) // 0 if it cannot be read: nothing is used
		}
		b.address -= min(limit.Cur, pages*uint64(os.Getpagesize()))
	}
	return b
}

// segments returns the sizes of a rank's segments, when each of so many ranks has such ones: no more than the machine could fill,
// and half of the address space that is left, for the program needs some too.
func (b bounds) segments(ranks int) (sizes [2]int64, err error) {
	each := b.address / 2 / uint64(ranks)
	sizes[heap] = int64(min(uint64(mostBytes[heap]), b.memory, each/5*4, b.file))
	sizes[control] = int64(min(uint64(mostBytes[control]), b.memory/4, each/5, b.file))
	for i := range sizes {
		sizes[i] &^= pageBytes - 1
		if sizes[i] < leastBytes[i] {
			return sizes, fmt.Errorf("shm: segment %d would have %d MiB, and needs %d: the machine has %s, the process may map %s more (ulimit -v) "+
				"for %d ranks, and a file have %s (ulimit -f)", i, sizes[i]>>20, leastBytes[i]>>20, mebibytes(b.memory), mebibytes(b.address), ranks, mebibytes(b.file))
		}
	}
	return sizes, nil
}

func mebibytes(n uint64) string {
	if n > math.MaxInt64 {
		return "any"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
