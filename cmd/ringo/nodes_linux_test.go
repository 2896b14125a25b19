package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/netns"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// agent is `ringo run` on its own host.
type agent struct {
	cmd         *exec.Cmd
	stdout, err reliability.Log
	ended       chan struct{}
}

// longest is how long a test waits for what must happen. Bounds on how long it takes are checked apart.
const longest = time.Minute

// cluster is a network of hosts with a job's secret.
type cluster struct {
	t     *testing.T
	hosts []*netns.Host
}

const testSecret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func newCluster(t *testing.T, n int) *cluster { return &cluster{t, netns.New(t, n)} }

// start runs an agent on a host. flags come before the flags for its place in the job.
func (c *cluster) start(host int, nodes string, flags, program string, env ...string) *agent {
	c.t.Helper()
	args := append(strings.Fields("run -nodes "+nodes+" -node-rank "+strconv.Itoa(host)+" -rdzv "+c.hosts[0].Addr+":29400 "+flags),
		strings.Fields(program)...)
	a := &agent{cmd: c.hosts[host].Command(os.Args[0], args...), ended: make(chan struct{})}
	a.cmd.Env = append(append(os.Environ(), "RINGO_TEST_CLI=1", "RINGO_JOB_SECRET="+testSecret), env...)
	a.cmd.Stdout, a.cmd.Stderr = &a.stdout, &a.err
	require.NoError(c.t, a.cmd.Start())
	go func() {
		_ = a.cmd.Wait() // the tests check the exit status
		close(a.ended)
	}()
	c.t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		<-a.ended
	})
	return a
}

// await returns when all have printed text.
func (c *cluster) await(text string, agents ...*agent) {
	c.t.Helper()
	for i, a := range agents {
		require.Eventually(c.t, func() bool {
			return regexp.MustCompile(text).MatchString(a.stdout.String() + a.err.String())
		}, longest, 5*time.Millisecond, "host %d: %s\n%s", i, text, &lateText{a})
	}
}

// lateText is what an agent has printed at the time when the message is made.
type lateText struct{ a *agent }

func (l *lateText) String() string { return l.a.stdout.String() + l.a.err.String() }

// wait returns the exit status.
func (a *agent) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-a.ended:
	case <-time.After(limit):
		t.Fatalf("has not ended after %v\n%s%s", limit, a.stdout.String(), a.err.String())
	}
	return a.cmd.ProcessState.ExitCode()
}

// workers returns the processes of the ranks by number.
func workers(agents ...*agent) map[int]int {
	pids := map[int]int{}
	for _, a := range agents {
		for _, m := range regexp.MustCompile(`(?m)rank (\d+) of \d+, pid (\d+)`).FindAllStringSubmatch(a.stdout.String(), -1) {
			rank, _ := strconv.Atoi(m[1])
			pids[rank], _ = strconv.Atoi(m[2])
		}
	}
	return pids
}

func requireGone(t *testing.T, pids map[int]int) {
	t.Helper()
	for rank, pid := range pids {
		assert.Eventually(t, func() bool { return !running(pid) }, longest, 5*time.Millisecond, "rank %d, process %d", rank, pid)
	}
}

// running reports whether a process exists and is not a zombie.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return state[0] != 'Z' && state[0] != 'X'
}

// TestNodes runs a job on hosts with one, two and, in the long form, three ranks. On the last host RINGO_BIND is an address that it does
// not have: the flag overrides it.
func TestNodes(t *testing.T) {
	t.Parallel()
	hosts := 2
	if reliability.Long(t) {
		hosts = 3
	}
	c := newCluster(t, hosts)
	program := program(t, "allreduce")
	var agents []*agent
	for i := range hosts {
		flags, env := fmt.Sprintf("-n %d -timeout 20s", i+1), "RINGO_BIND="
		if i == hosts-1 {
			flags, env = flags+" -bind eth0 -ports 21000-21009", "RINGO_BIND=10.1.2.3"
		}
		agents = append(agents, c.start(i, strconv.Itoa(hosts), flags, program, env))
	}
	ranks := 0
	for i, a := range agents {
		assert.Equal(t, 0, a.wait(t, longest), a.stdout.String()+a.err.String())
		assert.Empty(t, a.err.String())
		assert.Equal(t, i+1, strings.Count(a.stdout.String(), "sums are right"))
		ranks += i + 1
		assert.Contains(t, a.stdout.String(), fmt.Sprintf("[%d] rank %d of %d", ranks-1, ranks-1, hosts*(hosts+1)/2))
	}
}

func TestLongNodes(t *testing.T) { reliability.AsLong(t, TestNodes) }

// nodeFault is a fault in a job of three hosts with two ranks each, and what all must print.
type nodeFault struct {
	name  string
	do    func(c *cluster, agents []*agent, pids map[int]int)
	codes [3]int // -1: killed
	want  [3]string
	bound time.Duration
}

// TestLongNodeFaults causes many faults in a job. Each host ends within the time limit, prints the first cause, and leaves no process.
// TestHostComesAgain, and TestFirstCause and TestWire of dist/launch, are the short forms.
func TestLongNodeFaults(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Parallel()
	program := program(t, "allreduce")
	kill := func(pid int, s syscall.Signal) { assert.NoError(t, syscall.Kill(pid, s)) }
	rank3 := `rank 3 \(host .*, pid \d+\) was killed by signal killed \(and 5 ranks failed because of it\)\n$`
	lost1 := `node 1 \(host .*\) with ranks 2-3 is lost: the connection ended \(and 4 ranks failed because of it\)\n$`
	cut2 := `node 2 \(host .*\) with ranks 4-5 is lost: no heartbeat for 2s \(and 4 ranks failed because of it\)\n$`
	lost0 := ` lost node 0 at 10.77.0.1:29400: `
	terminated := `ended by signal terminated\n$`
	faults := []nodeFault{
		{"a worker is killed", func(_ *cluster, _ []*agent, pids map[int]int) { kill(pids[3], syscall.SIGKILL) },
			[3]int{137, 137, 137}, [3]string{rank3, rank3, rank3}, time.Second},
		{"a cable is cut", func(c *cluster, _ []*agent, _ map[int]int) { c.hosts[2].Cut() },
			[3]int{1, 1, 1}, [3]string{cut2, cut2, `node 2` + lost0 + `no heartbeat for 2s`}, 4 * time.Second},
		{"an agent is killed", func(_ *cluster, a []*agent, _ map[int]int) { kill(a[1].cmd.Process.Pid, syscall.SIGKILL) },
			[3]int{1, -1, 1}, [3]string{lost1, ``, lost1}, time.Second},
		{"the coordinator is killed", func(_ *cluster, a []*agent, _ map[int]int) { kill(a[0].cmd.Process.Pid, syscall.SIGKILL) },
			[3]int{-1, 1, 1}, [3]string{``, `node 1` + lost0, `node 2` + lost0}, time.Second},
		{"a signal", func(_ *cluster, a []*agent, _ map[int]int) { kill(a[2].cmd.Process.Pid, syscall.SIGTERM) },
			[3]int{143, 143, 143}, [3]string{terminated, terminated, terminated}, time.Second},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			var agents []*agent
			for i := range 3 {
				agents = append(agents, c.start(i, "3", "-n 2 -timeout 2s", program+" forever"))
			}
			c.await(`(?s)pid.*pid`, agents...)
			pids := workers(agents...)
			require.Len(t, pids, 6)
			began := time.Now()
			f.do(c, agents, pids)
			for i, a := range agents {
				assert.Equal(t, f.codes[i], a.wait(t, longest), "host %d\n%s", i, a.err.String())
				assert.Regexp(t, f.want[i], a.err.String(), "host %d\n%s", i, a.stdout.String())
			}
			reliability.Took(t, 50, "launcher", f.bound, time.Since(began))
			t.Log(agents[2].err.String())
			requireGone(t, pids)
		})
	}
}

// TestElastic loses a host and continues with two. In the long form the host comes again and takes part from the next restart on; in
// TestHostComesAgain a job waits for it.
func TestElastic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	program := program(t, "restart")
	dir := t.TempDir()
	each := 1 // ranks of a host
	if reliability.Long(t) {
		each = 2
	}
	flags := fmt.Sprintf("-n %d -timeout 2s -max-restarts 3 -node-wait 4s", each)
	start := func(host int) *agent { return c.start(host, "2:3", flags, program+" "+dir+" 0") }
	began := func(gen, hosts int) string { // of all ranks of a host
		return `(?s)` + strings.Repeat(fmt.Sprintf(`.*generation %d, rank \d of %d`, gen, hosts*each), each)
	}
	two, one := start(2), start(1) // host 0 last, because it waits for all of them for a limited time
	agents := []*agent{start(0), one, two}
	c.await(began(1, 3), agents...)
	first := workers(agents...)
	require.Len(t, first, 3*each)

	require.NoError(t, agents[2].cmd.Process.Kill())
	c.await(began(2, 2), agents[:2]...)
	requireGone(t, first)
	ranks := map[int]string{1: "rank 2", 2: "ranks 4-5"}[each]
	assert.Regexp(t, `ringo: node 2 \(host .*\) with `+ranks+` is lost: the connection ended\n`+
		`ringo: restart 1 of 3: generation 1 is over, generation 2 begins\n`, agents[0].err.String())

	if !reliability.Long(t) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o666))
		for _, a := range agents[:2] {
			assert.Equal(t, 0, a.wait(t, longest), a.err.String())
		}
		return
	}

	agents[2] = start(2)
	c.await(`ringo: generation 2 runs without this node, which waits for a restart\n`, agents[2])
	second := workers(agents[:2]...)
	require.NoError(t, syscall.Kill(second[3], syscall.SIGKILL))
	c.await(began(3, 3), agents...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o666))
	for _, a := range agents {
		assert.Equal(t, 0, a.wait(t, longest), a.err.String())
	}
	assert.Contains(t, agents[2].stdout.String(), "[5] generation 3, rank 5 ends\n")
	requireGone(t, workers(agents...))
}

func TestLongElastic(t *testing.T) { reliability.AsLong(t, TestElastic) }

// TestHostComesAgain loses one of two hosts that the job needs: the restart waits until it is back.
func TestHostComesAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	program := program(t, "restart")
	dir := t.TempDir()
	start := func(host int) *agent {
		return c.start(host, "2", "-n 1 -timeout 2s -max-restarts 1 -join-timeout 20s", program+" "+dir+" 0")
	}
	zero, one := start(0), start(1)
	c.await(`generation 1, rank \d of 2`, zero, one)
	require.NoError(t, one.cmd.Process.Kill())
	c.await(`ringo: restart 1 of 1: generation 1 is over, generation 2 begins\n`, zero)
	one = start(1)
	c.await(`generation 2, rank \d of 2`, zero, one)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stop"), nil, 0o666))
	assert.Equal(t, 0, zero.wait(t, longest), zero.err.String())
	assert.Equal(t, 0, one.wait(t, longest), one.err.String())
}

// TestJoinErrors has nodes that cannot join. What the long form has more is tested in dist/tcp and dist/launch, too.
func TestJoinErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	program := program(t, "allreduce")
	const wrong = "RINGO_JOB_SECRET=ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	zero := func(flags string) *agent { return c.start(0, "2", "-n 1 -timeout 5s "+flags, program) }

	if reliability.Long(t) {
		a, b := zero(""), c.start(1, "2", "-n 1", program, wrong)
		assert.Equal(t, 1, b.wait(t, longest))
		assert.Contains(t, b.err.String(), "node 1 and node 0 at 10.77.0.1:29400: ")
		assert.Contains(t, b.err.String(), "peer does not hold this job's secret")
		right := c.start(1, "2", "-n 1", program)
		assert.Equal(t, 0, a.wait(t, longest), a.err.String()) // the stranger does not disturb the job
		assert.Equal(t, 0, right.wait(t, longest), right.err.String())

		a, b = c.start(0, "3", "-n 1", program), c.start(1, "3", "-n 1", program)
		twin := c.start(1, "3", "-n 1", program)
		for _, x := range []*agent{a, b, twin} {
			assert.Equal(t, 1, x.wait(t, longest))
			assert.Regexp(t, `node 1 joined twice: host .* \(pid \d+\) and host .* \(pid \d+\)`, x.err.String())
		}
	}

	alone := zero("-join-timeout 300ms")
	assert.Equal(t, 1, alone.wait(t, longest))
	assert.Contains(t, alone.err.String(), "ringo: waiting for node 1 of 2: 0 of them came within 300ms\n")

	if reliability.Long(t) {
		late := c.start(1, "2", "-n 1 -join-timeout 300ms", program)
		assert.Equal(t, 1, late.wait(t, longest))
		assert.Regexp(t, `node 1 cannot join within 300ms: node 0 at 10.77.0.1:29400: dial .*(connection refused|i/o timeout)`, late.err.String())

		a, b := zero(""), c.start(1, "3", "-n 1", program)
		for _, x := range []*agent{a, b} {
			assert.Equal(t, 1, x.wait(t, longest))
			assert.Regexp(t, `nodes disagree about -nodes: 2 \(node 0 \(host .*\)\) and 3 \(node 1 \(host .*\)\)`, x.err.String())
		}
	}

	none := c.start(1, "2", "-n 1", program, "RINGO_JOB_SECRET=")
	assert.Equal(t, 1, none.wait(t, longest))
	assert.Contains(t, none.err.String(), "RINGO_JOB_SECRET is not set: make one with `openssl rand -hex 32`")
}

func TestLongJoinErrors(t *testing.T) { reliability.AsLong(t, TestJoinErrors) }
