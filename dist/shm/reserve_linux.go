package shm

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The largest and the smallest segments, by their numbers. Only touched pages are real, but all ranks of a host map all segments
// whole, and limits count that.
var (
	mostBytes  = [2]int64{16 << 30, 64 << 30}
	leastBytes = [2]int64{16 << 20, 64 << 20}
)

// groupsOfAll is how many groups of all ranks of a host a control segment must hold: the world, and what a program makes of it. Groups of
// fewer ranks take less.
const groupsOfAll = 8

// controlBytes returns the least control segment for so many ranks on a host.
func controlBytes(ranks int) int64 {
	directoryBytes := (int64(unsafe.Sizeof(directory{})) + pageBytes - 1) &^ (pageBytes - 1)
	return max(leastBytes[control], directoryBytes+groupsOfAll*int64(layoutOf(ranks).size))
}

// limits are what this machine and this process's limits allow.
type limits struct {
	memory  uint64 // of the machine
	address uint64 // that the process may still map (ulimit -v)
	file    uint64 // the largest file (ulimit -f), which a memfd is too
}

// readLimits reads the bounds. What the system does not tell bounds nothing.
func readLimits() limits {
	b := limits{math.MaxUint64, math.MaxUint64, math.MaxUint64}
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
// and half of the address space that is left, for the program needs some too. The control segment comes first, the heap gets the rest.
// How many of the ranks are on this host shows later: then [Host.checkRoom] looks whether the control segment is large enough.
func (b limits) segments(ranks int) (sizes [2]int64, err error) {
	each := b.address / 2 / uint64(ranks)
	want := max(each/5, min(uint64(controlBytes(ranks)), each-min(each, uint64(leastBytes[heap]))))
	sizes[control] = int64(min(uint64(mostBytes[control]), b.memory/4, want, b.file))
	sizes[heap] = int64(min(uint64(mostBytes[heap]), b.memory, each-want, b.file))
	for i := range sizes {
		sizes[i] &^= pageBytes - 1
		if sizes[i] < leastBytes[i] {
			return sizes, fmt.Errorf("shm: segment %d would have %d MiB, and needs %d: the machine has %s, the process may map %s more (ulimit -v) "+
				"for %d ranks, and a file have %s (ulimit -f)", i, sizes[i]>>20, leastBytes[i]>>20, mebibytes(b.memory), mebibytes(b.address), ranks,
				mebibytes(b.file))
		}
	}
	return sizes, nil
}

// checkRoom returns an error when the control segment is too small for so many ranks.
func (h *Host) checkRoom(ranks int) error {
	if has, least := int64(len(h.ctl.b)), controlBytes(ranks); has < least {
		return h.ctl.errorf("has %d MiB, and %d ranks need %d: raise the limits (ulimit -v, ulimit -f), or take a machine with more memory",
			has>>20, ranks, (least+1<<20-1)>>20)
	}
	return nil
}

func mebibytes(n uint64) string {
	if n > math.MaxInt64 {
		return "any"
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
