package shm

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ringo-ml/ringo/dist/backend"
)

// Segments are as large as the machine and the limits allow, for all ranks together; what is too small is refused by name.
func TestReservation(t *testing.T) {
	const any = uint64(math.MaxUint64)
	for _, c := range []struct {
		b             limits
		ranks         int
		control, heap int64
		want          string
	}{
		{limits{1 << 40, any, any}, 8, 16 << 30, 64 << 30, ""},
		{limits{16 << 30, any, any}, 8, 4 << 30, 16 << 30, ""},
		{limits{16 << 30, any, 1 << 30}, 8, 1 << 30, 1 << 30, ""},
		{limits{1 << 40, 80 << 30, any}, 4, 2 << 30, 8 << 30, ""},
		{limits{1 << 40, 32 << 30, any}, 32, 8*33714176 + 266240, 512<<20 - 8*33714176 - 266240, ""}, // more than a fifth
		{limits{1 << 40, 6 << 30, any}, 32, 32 << 20, 64 << 20, ""},                                  // too little, should all be on one host
		{limits{1 << 40, 1 << 30, any}, 8, 0, 0, "the process may map 1024 MiB more (ulimit -v) for 8 ranks"},
		{limits{1 << 40, any, 1 << 20}, 2, 0, 0, "and a file have 1 MiB (ulimit -f)"},
		{limits{32 << 20, any, any}, 2, 0, 0, "the machine has 32 MiB"},
	} {
		got, err := c.b.segments(c.ranks)
		if c.want != "" {
			assert.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, [2]int64{c.control, c.heap}, got, "%v", c)
	}
}

// A control segment holds some groups of all ranks of the host, or they do without shared memory.
func TestRoomForGroups(t *testing.T) {
	most := mostBytes
	defer func() { mostBytes = most }()
	const n = 4
	assert.Equal(t, leastBytes[control], controlBytes(1))
	mostBytes[control] = controlBytes(n)
	hs := hosts(t, n)
	for i := range groupsOfAll {
		open(t, hs, string(rune('a'+i)))
	}
	_, err := hs[0].Open(backend.Spec{ID: 1, Name: "more", Ranks: []int{0, 1, 2, 3}}, 0)
	assert.ErrorContains(t, err, "segment 0 of rank 0: no room for")
	mostBytes[control] -= 1 << 20
	for r, err := range meet(t, n, make([]*Host, n)) {
		assert.ErrorContains(t, err, fmt.Sprintf("segment 0 of rank %d: has 32 MiB, and 4 ranks need 34: raise the limits (ulimit -v", r))
	}
}

// Ranks share memory under limits of address space and of the size of files that are below the most they could use.
func TestLimits(t *testing.T) {
	for name, resource := range map[string]int{"address space": unix.RLIMIT_AS, "file": unix.RLIMIT_FSIZE} {
		t.Run(name, func(t *testing.T) {
			var old unix.Rlimit
			require.NoError(t, unix.Getrlimit(resource, &old))
			low := unix.Rlimit{Cur: 1 << 30, Max: old.Max}
			if resource == unix.RLIMIT_AS {
				b := readLimits()
				if b.address != math.MaxUint64 {
					t.Skip("there is a limit already")
				}
				require.NoError(t, unix.Setrlimit(resource, &unix.Rlimit{Cur: math.MaxInt64 - 1, Max: old.Max}))
				low.Cur = math.MaxInt64 - 1 - readLimits().address + 16<<30
			}
			require.NoError(t, unix.Setrlimit(resource, &low))
			defer func() { assert.NoError(t, unix.Setrlimit(resource, &old)) }()
			hs := hosts(t, 2)
			ends := open(t, hs, "world")
			require.NoError(t, errors.Join(steps(t, start(ends, &backend.Op{Kind: backend.Barrier, Seq: 1}), 1)...))
			assert.LessOrEqual(t, len(hs[0].heap.seg.b), 8<<30)
		})
	}
}
