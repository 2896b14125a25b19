package tcp_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/dist/disttest"
	"github.com/ringo-ml/ringo/dist/tcp"
	"github.com/ringo-ml/ringo/internal/netns"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// acrossHosts are the parts of the conformance suite in which a rank judges by what it sees itself: the others compare what
// several ranks saw, in the memory of one process.
var acrossHosts = []string{"Reductions", "NaN", "HalfRoundsOnce", "Movement", "VForms", "InPlace", "Groups", "Mesh", "InFlight",
	"PointToPoint", "Batch", "Objects"}

const hierarchically = "allreduce:hierarchical,reducescatter:hierarchical,reducescatterv:hierarchical,allgather:hierarchical," +
	"allgatherv:hierarchical,broadcast:hierarchical"

// The conformance suite on ranks that are processes on hosts of their own: every process runs the same tests, each as one
// rank. Ranks take turns on the hosts, which have different numbers of them.
func TestConformanceOnHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hosts int
		env   []string
		parts []string
		long  bool
	}{
		{2, []string{"RINGO_ALGO=" + hierarchically}, []string{"Movement", "VForms"}, false},
		{2, nil, acrossHosts, true},
		{3, nil, acrossHosts, true},
		{3, []string{"RINGO_ENCRYPT=0"}, acrossHosts, true},
		{3, []string{"RINGO_ALGO=" + hierarchically}, []string{"Reductions", "Movement", "VForms", "InPlace"}, true},
	} {
		if c.long != reliability.Long(t) {
			continue
		}
		t.Run(fmt.Sprintf("%d hosts %.16v", c.hosts, c.env), func(t *testing.T) { onHosts(t, c.hosts, c.env, c.parts) })
	}
}

func TestLongConformanceOnHosts(t *testing.T) { reliability.AsLong(t, TestConformanceOnHosts) }

func onHosts(t *testing.T, hosts int, env, parts []string) {
	ranks, helper := 3, "TestHelperOnHost" // as many as these parts have
	if reliability.Long(t) {
		ranks, helper = 9, "TestLongHelperOnHost" // as many as the suite has
	}
	ns := netns.New(t, hosts)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmds, outs := make([]*exec.Cmd, ranks), make([]strings.Builder, ranks)
	for r := range cmds {
		cmds[r] = ns[r%hosts].Command(os.Args[0], "-test.v", "-test.run=^"+helper+"$/^("+strings.Join(parts, "|")+")$")
		cmds[r].Env = append(append(os.Environ(), fmt.Sprintf("RINGO_TEST_ON_HOST=%d", r), "RINGO_TEST_ZERO="+ns[0].Addr), env...)
		cmds[r].Stdout, cmds[r].Stderr = &outs[r], &outs[r]
		require.NoError(t, cmds[r].Start())
		defer context.AfterFunc(ctx, func() { _ = cmds[r].Process.Kill() })()
	}
	for r, cmd := range cmds {
		require.NoError(t, cmd.Wait(), "rank %d:\n%s", r, outs[r].String())
		for _, part := range parts {
			assert.Contains(t, outs[r].String(), "--- PASS: "+helper+"/"+part+" ", "rank %d", r)
		}
	}
}

// sizesInOnePlace are left to the tests in one process: others lie on hosts in the same way.
var sizesInOnePlace = []int{1, 6, 7}

// TestHelperOnHost is one rank of another test's jobs: one job after the other, each on the next port.
func TestHelperOnHost(t *testing.T) {
	var rank int
	if _, err := fmt.Sscan(os.Getenv("RINGO_TEST_ON_HOST"), &rank); err != nil {
		return // run as a test of its own, there is nothing to do
	}
	port := 30_000
	disttest.RunInOrder(t, func(t *testing.T, n int, cfg dist.Config, fn func(r *dist.Rank) error) error {
		port++
		if rank >= n || slices.Contains(sizesInOnePlace, n) {
			return nil
		}
		for name, v := range map[string]string{"RINGO_RANK": fmt.Sprint(rank), "RINGO_WORLD_SIZE": fmt.Sprint(n), "RINGO_BIND": "auto",
			"RINGO_MASTER":     net.JoinHostPort(os.Getenv("RINGO_TEST_ZERO"), fmt.Sprint(port)),
			"RINGO_JOB_SECRET": strings.Repeat("5e", tcp.SecretBytes)} {
			t.Setenv(name, v)
		}
		if n == 1 { // is local
			t.Setenv("RINGO_ALGO", "")
		}
		return dist.Run(t.Context(), cfg, func(_ context.Context, r *dist.Rank) error { return fn(r) })
	})
}

func TestLongHelperOnHost(t *testing.T) { reliability.AsLong(t, TestHelperOnHost) }
