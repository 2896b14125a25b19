package mpi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// launchers are the names of mpiexec in Debian, which can have those of two libraries at the same time.
var launchers = map[string]string{"MPICH": "mpiexec.mpich", "Open MPI": "mpiexec.openmpi"}

// Command returns the command, not started, that runs a program as n ranks under the mpiexec of the library that Load finds: the one that
// is installed beside it, or in PATH. The end of ctx ends the ranks. As root, and with more ranks than cores, Open MPI's starts them, too,
// as MPICH's does.
func Command(ctx context.Context, n int, program string, args ...string) (*exec.Cmd, error) {
	lib, err := Load()
	if err != nil {
		return nil, err
	}
	names := []string{launchers[lib.ABI], "mpiexec"}
	if filepath.IsAbs(lib.Path) {
		names = append([]string{filepath.Join(filepath.Dir(filepath.Dir(lib.Path)), "bin", "mpiexec")}, names...)
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			c := exec.CommandContext(ctx, path, append([]string{"-n", strconv.Itoa(n), program}, args...)...)
			c.Cancel, c.WaitDelay = func() error { return c.Process.Signal(syscall.SIGTERM) }, 5*time.Second // mpiexec then ends the ranks
			c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1")
			return c, nil
		}
	}
	return nil, fmt.Errorf("%w: %v is there, but no mpiexec of it is in PATH", ErrMissing, lib)
}
