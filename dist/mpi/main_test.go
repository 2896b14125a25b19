package mpi_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	library "github.com/ringo-ml/ringo/internal/mpi"
)

const childEnv = "MPI_TEST_CHILD"

// TestMain runs this binary as one rank of a job if a test below started it by mpiexec.
func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if child := children[name]; child != nil {
		if err := child(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// children are what a rank does that is started by mpiexec. Other values of childEnv run tests.
var children = map[string]func() error{}

// mpiexec returns the mpiexec of the library. It skips the test where there is none, and where nobody asks for it: each rank of MPI uses a
// core while it waits, and makes tests beside it late.
func mpiexec(t testing.TB) string {
	t.Helper()
	if os.Getenv("RINGO_MPI_LIB") == "" {
		t.Skip("RINGO_MPI_LIB does not name the library of MPI for this test, such as libmpi.so.40")
	}
	lib, err := library.Load()
	if err != nil {
		t.Skip(err)
	}
	if path := filepath.Join(filepath.Dir(filepath.Dir(lib.Path)), "bin", "mpiexec"); filepath.IsAbs(path) {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	for _, name := range []string{debian[lib.ABI], "mpiexec"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("%v is there, but no mpiexec in PATH", lib)
	return ""
}

// debian has the names of both kinds of mpiexec in Debian, which can have them at the same time.
var debian = map[string]string{"MPICH": "mpiexec.mpich", "Open MPI": "mpiexec.openmpi"}

// openMPI lets Open MPI's mpiexec start more processes than there are cores, and as root.
var openMPI = []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1"}

// job is n ranks of this binary under mpiexec, with env in their environment.
func job(t testing.TB, n int, env []string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), mpiexec(t), append([]string{"-n", fmt.Sprint(n), os.Args[0]}, args...)...)
	c.Env = append(append(os.Environ(), openMPI...), env...)
	c.WaitDelay = 5 * time.Second
	return c
}

// run runs a child as n ranks and returns what they print.
func run(t testing.TB, n int, child string, env ...string) (string, error) {
	t.Helper()
	out, err := job(t, n, append(env, childEnv+"="+child)).CombinedOutput()
	return string(out), err
}

// lines returns the lines of text that begin with prefix.
func lines(text, prefix string) (found []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func succeeds(t testing.TB, n int, child string, env ...string) string {
	t.Helper()
	out, err := run(t, n, child, env...)
	require.NoError(t, err, out)
	return out
}
