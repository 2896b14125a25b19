package shm

import (
	"errors"
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
		b             bounds
		ranks         int
		control, heap int64
		want          string
	}{
		{bounds{1 << 40, any, any}, 8, 16 << 30, 64 << 30, ""},
		{bounds{16 << 30, any, any}, 8, 4 << 30, 16 << 30, ""},
		{bounds{16 << 30, any, 1 << 30}, 8, 1 << 30, 1 << 30, ""},
		{bounds{1 << 40, 80 << 30, any}, 4, 2 << 30, 8 << 30, ""},
		{bounds{1 << 40, 1 << 30, any}, 8, 0, 0, "the process may map 1024 MiB more (ulimit -v) for 8 ranks"},
		{bounds{1 << 40, any, 1 << 20}, 2, 0, 0, "and a file have 1 MiB (ulimit -f)"},
		{bounds{32 << 20, any, any}, 2, 0, 0, "the machine has 32 MiB"},
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

// Ranks share memory under limits of address space and of the size of files that are below the most they could use.
func TestLimits(t *testing.T) {
	for name, resource := range map[string]int{"address space": unix.RLIMIT_AS, "file": unix.RLIMIT_FSIZE} {
		t.Run(name, func(t *testing.T) {
			var old unix.Rlimit
			require.NoError(t, unix.Getrlimit(resource, &old))
			low := unix.Rlimit{Cur: 1 << 30, Max: old.Max}
			if resource == unix.RLIMIT_AS {
				b := here()
				if b.address != math.MaxUint64 {
					t.Skip("there is a limit already")
				}
				require.NoError(t, unix.Setrlimit(resource, &unix.Rlimit{Cur: math.MaxInt64 - 1, Max: old.Max}))
				low.Cur = math.MaxInt64 - 1 - here().address + 16<<30
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
