//go:build unix

package dist_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/netns"
	"github.com/ringo-ml/ringo/internal/ports"
)

// The tests below start this binary by other launchers, if they are installed.

// launcher returns the path of the first program that exists.
func launcher(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	t.Skip("not installed: " + strings.Trim(strings.Join(names, ", "), ", "))
	return ""
}

// torchrun returns the torchrun in PATH, or that of RINGO_TORCHRUN.
func torchrun(t *testing.T) string { return launcher(t, os.Getenv("RINGO_TORCHRUN"), "torchrun") }

// launched runs a launcher's command line and waits for its end.
func launched(t *testing.T, how string, cmd *exec.Cmd, env ...string) (string, error) {
	t.Helper()
	cmd.Env = append(append(os.Environ(), "DIST_TEST_CHILD="+how, "RINGO_TIMEOUT=20s"), env...)
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// requireSums requires the sum of n ranks from each of them.
func requireSums(t *testing.T, text string, n int) {
	t.Helper()
	for r := range n {
		assert.Regexp(t, fmt.Sprintf(`(?m)^(tcp|shm) %d of %d float32\[1\] \[%d\]$`, r, n, n*(n+1)/2), text)
	}
}

func newSecret() string { return "RINGO_JOB_SECRET=" + tcp.NewSecret() }

func TestOpenMPI(t *testing.T) {
	mpirun := launcher(t, "mpirun.openmpi")
	text, err := launched(t, "well", exec.Command(mpirun, "-n", "3", "--allow-run-as-root", "--oversubscribe", os.Args[0]), newSecret())
	require.NoError(t, err, text)
	requireSums(t, text, 3)
}

func TestMPICH(t *testing.T) {
	mpirun := launcher(t, "mpirun.mpich", "mpiexec.hydra")
	cmd := func() *exec.Cmd { return exec.Command(mpirun, "-n", "3", os.Args[0]) }
	text, err := launched(t, "well", cmd(), newSecret(), "RINGO_JOB_ID=mpich test "+strconv.Itoa(os.Getpid()))
	require.NoError(t, err, text)
	requireSums(t, text, 3)
	text, err = launched(t, "well", cmd(), newSecret())
	assert.Error(t, err)
	assert.Contains(t, text, "PMI_SIZE=3 (pmi): where rank 0 listens is not known; set RINGO_MASTER=host:port on every rank")
}

// TestSlurm runs inside `.ci/slurm go test …`, which makes a cluster, or on a cluster with an idle node.
func TestSlurm(t *testing.T) {
	srun := launcher(t, "srun")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sinfo", "-h", "-o", "%T").CombinedOutput(); err != nil || !strings.Contains(string(out), "idle") {
		t.Skipf("no idle Slurm cluster: %s%v", out, err)
	}
	text, err := launched(t, "well", exec.Command(srun, "-n", "3", os.Args[0]), newSecret())
	require.NoError(t, err, text)
	requireSums(t, text, 3)

	text, err = launched(t, "well", exec.Command(srun, "-n", "3", os.Args[0]))
	assert.Error(t, err)
	assert.Contains(t, text, "RINGO_JOB_SECRET is not set, and slurm started 3 ranks")

	text, err = launched(t, "die", exec.Command(srun, "-n", "3", "--kill-on-bad-exit=0", os.Args[0]), newSecret())
	assert.Error(t, err)
	assert.Regexp(t, `error: rank 1 \(host .*, pid \d+\): (allreduce seq 1|barrier seq 2) of group world`, text)
}

// TestTorchrun: torchrun's own agent listens on MASTER_PORT, so the job uses the next port.
func TestTorchrun(t *testing.T) {
	program := torchrun(t)
	cmd := func(port int) *exec.Cmd {
		return exec.Command(program, "--nproc-per-node=3", "--max-restarts=1", "--master-addr=127.0.0.1", fmt.Sprintf("--master-port=%d", port),
			"--no-python", os.Args[0])
	}
	text, err := launched(t, "crashonce", cmd(ports.Free(t, 2)), newSecret())
	require.NoError(t, err, text)
	requireSums(t, text, 3)
	for r := range 3 {
		assert.Contains(t, text, fmt.Sprintf("rank %d of generation 2\n", r))
	}

	port := ports.Free(t, 2)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
	require.NoError(t, err)
	defer taken.Close()
	text, err = launched(t, "well", cmd(port), newSecret())
	assert.Error(t, err)
	assert.Regexp(t, fmt.Sprintf(`127\.0\.0\.1:%d: bind: address already in use.*from MASTER_PORT=%d plus 1`, port+1, port), text)
}

// TestTorchrunNodes runs torchrun on two hosts.
func TestTorchrunNodes(t *testing.T) {
	program := torchrun(t)
	hosts := netns.New(t, 2)
	secret := newSecret()
	type result struct {
		text string
		err  error
	}
	results := make(chan result, 2)
	for i, h := range hosts {
		go func() {
			text, err := launched(t, "well", h.Command(program, "--nnodes=2", fmt.Sprintf("--node-rank=%d", i), "--nproc-per-node=2",
				"--master-addr="+hosts[0].Addr, "--master-port=29500", "--no-python", os.Args[0]), secret, "RINGO_BIND=auto")
			results <- result{text, err}
		}()
	}
	a, b := <-results, <-results
	require.NoError(t, errors.Join(a.err, b.err), a.text+b.text)
	requireSums(t, a.text+b.text, 4)
}

// crashOnce fails on rank 1 in the first generation.
func crashOnce(r *dist.Rank) error {
	if r.Generation() == 1 && r.World.Rank() == 1 {
		return errors.New("crash in generation 1")
	}
	if err := r.World.Barrier().Wait(); err != nil {
		return err
	}
	fmt.Println("rank", r.World.Rank(), "of generation", r.Generation())
	return nil
}
