package mpi

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A library that gives less than SERIALIZED is refused, with its name. The numbers of the levels are those of its ABI: 2 is none of the
// standard one.
func TestThreadLevels(t *testing.T) {
	l := &Lib{Path: "libmpi_abi.so.1", Version: "MPICH Version: 5.0.2", ABI: "standard", Handles: standard}
	require.NoError(t, l.checkLevel(2048))
	require.NoError(t, l.checkLevel(4096))
	for level, name := range map[int32]string{0: "MPI_THREAD_SINGLE", 1024: "MPI_THREAD_FUNNELED", 2: "thread level 2"} {
		require.EqualError(t, l.checkLevel(level), "mpi: MPICH Version: 5.0.2 (libmpi_abi.so.1, standard ABI) gives "+name+
			", but MPI_THREAD_SERIALIZED is needed: use a library that was built with threads")
	}
	l.Handles = mpich
	require.NoError(t, l.checkLevel(2))
	require.ErrorContains(t, l.checkLevel(1), "MPI_THREAD_FUNNELED")
}

// A handler that a library installs is taken away again.
func TestKeepSignals(t *testing.T) {
	var before, after action
	rtSigaction(int(syscall.SIGUSR2), nil, &before)
	changed := keepSignals(func() {
		mine := before
		mine.handler = uintptr(unsafe.Pointer(&mine)) // never called
		rtSigaction(int(syscall.SIGUSR2), &mine, nil)
	})
	require.Equal(t, []syscall.Signal{syscall.SIGUSR2}, changed)
	rtSigaction(int(syscall.SIGUSR2), nil, &after)
	require.Equal(t, before, after)
}
