package mpi_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

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

// job is n ranks of this binary under mpiexec, with env in their environment. It skips the test where there is no MPI, and where nobody
// asks for it: each rank of MPI uses a core while it waits, and makes tests beside it late.
func job(t testing.TB, n int, env []string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getenv("RINGO_MPI_LIB") == "" {
		t.Skip("RINGO_MPI_LIB does not name the library of MPI for this test, such as libmpi.so.40")
	}
	c, err := library.Command(t.Context(), n, os.Args[0], args...)
	if err != nil {
		t.Skip(err)
	}
	c.Env = append(c.Env, env...)
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
