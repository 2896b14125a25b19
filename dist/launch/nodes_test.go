//go:build linux || darwin

package launch

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringo-ml/ringo/internal/acceptor"
	"github.com/ringo-ml/ringo/internal/identity"
	"github.com/ringo-ml/ringo/internal/ports"
	"github.com/ringo-ml/ringo/internal/reliability"
)

// freeAddr returns an address of this host on which nobody listens.
func freeAddr(t *testing.T) string { return fmt.Sprint("127.0.0.1:", ports.Free(t, 1)) }

// nodeJob is an agent in this process.
type nodeJob struct {
	out     *console
	signals chan os.Signal
	ended   chan error
}

// startNode runs an agent of a job of n nodes.
func startNode(rdzv string, node, n, ranks int, change func(*Config), role string, args ...string) nodeJob {
	c, out := roleConfig(ranks, role, args...)
	j := nodeJob{out: out, signals: make(chan os.Signal, 2), ended: make(chan error, 1)}
	c.MinNodes, c.MaxNodes, c.NodeRank, c.Rendezvous, c.Signals = n, n, node, rdzv, j.signals
	c.Timeout, c.JoinTimeout = 20*time.Second, 20*time.Second
	if change != nil {
		change(&c)
	}
	go func() { j.ended <- Run(c) }()
	return j
}

func TestTwoNodes(t *testing.T) {
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	t.Setenv("RINGO_BIND", "")
	rdzv := freeAddr(t)
	one := startNode(rdzv, 1, 2, 2, nil, "env")
	zero := startNode(rdzv, 0, 2, 1, nil, "env")
	require.NoError(t, <-zero.ended)
	require.NoError(t, <-one.ended)
	const tail = " timeout 20s threads 0 bind 127.0.0.1 secret 64 job 16\n"
	assert.Contains(t, zero.out.String(), "[0] 0/3 local 0/1 from ringo listen 4"+tail)
	assert.Contains(t, one.out.String(), "[1] 1/3 local 0/2 from ringo listen 0"+tail)
	assert.Contains(t, one.out.String(), "[2] 2/3 local 1/2 from ringo listen 0"+tail)
}

// TestFirstCause has a rank of node 1 fail: both nodes tell the same, and node 0's ranks are ended.
func TestFirstCause(t *testing.T) {
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	rdzv := freeAddr(t)
	zero := startNode(rdzv, 0, 2, 1, func(c *Config) { c.Timeout = time.Millisecond }, "exit", "2", "7")
	one := startNode(rdzv, 1, 2, 2, nil, "exit", "2", "7")
	text := requireExit(t, <-zero.ended, 7)
	assert.Regexp(t, `^rank 2 \(host .*, pid \d+\) exited with status 7$`, text)
	assert.Equal(t, text, requireExit(t, <-one.ended, 7))
	requireGone(t, append(zero.out.pids("pid"), one.out.pids("pid")...))
}

// TestLongStoppedOnOneOfTwoNodes stops a rank of node 1, whose other rank ends: node 0, which has no rank left, does not count.
func TestLongStoppedOnOneOfTwoNodes(t *testing.T) {
	reliability.SkipUnlessLong(t)
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	rdzv, patient := freeAddr(t), func(c *Config) { c.Timeout = time.Minute }
	began := time.Now()
	zero := startNode(rdzv, 0, 2, 1, patient, "ring", "stop", "2")
	one := startNode(rdzv, 1, 2, 2, patient, "ring", "stop", "2")
	text := requireExit(t, <-zero.ended, 1)
	assert.Equal(t, text, requireExit(t, <-one.ended, 1))
	assert.Regexp(t,
		`^rank 2 \(host .*\) did not end by itself and was killed; its last heartbeat was \d\.\d s before that\n`+
			`rank \d \(host .*, pid \d+\) failed.*: .* \(and 2 ranks failed because of it\)$`,
		text)
	assert.Less(t, time.Since(began), 6*time.Second+reliability.Slack)
	requireGone(t, append(zero.out.pids("pid"), one.out.pids("pid")...))
}

// TestStrangers has a crowd at the rendezvous: silent ones, one that speaks something else, one with a wrong secret. Each
// kind is logged once, and the job forms.
func TestStrangers(t *testing.T) {
	log := &console{}
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	rdzv := freeAddr(t)
	zero := startNode(rdzv, 0, 2, 1, nil, "env")
	dial := func() net.Conn {
		var conn net.Conn
		require.Eventually(t, func() (ok bool) {
			var err error
			conn, err = net.Dial("tcp", rdzv)
			return err == nil
		}, 20*time.Second, time.Millisecond)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	for range 3 * acceptor.MaxPending {
		dial()
	}
	_, err := fmt.Fprint(dial(), "GET / HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	conf, err := identity.TLS(make([]byte, identity.SecretBytes), "", agentProtocol)
	require.NoError(t, err)
	conf.VerifyConnection = nil // it would refuse first
	wrong := tls.Client(dial(), conf)
	require.NoError(t, wrong.SetDeadline(time.Now().Add(5*time.Second)))
	_ = wrong.Handshake()
	_, err = wrong.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "bad certificate")
	one := startNode(rdzv, 1, 2, 1, nil, "env")
	require.NoError(t, <-zero.ended)
	require.NoError(t, <-one.ended)
	for _, why := range []string{"was one of more than 64 that sent nothing", "does not speak TLS", "peer does not hold this job's secret"} {
		log.await(t, why, 1)
	}
	reasons := regexp.MustCompile(`reason=.*`).FindAllString(log.String(), -1) // some hung up, or were there for 5 s, maybe
	slices.Sort(reasons)
	assert.Equal(t, slices.Compact(slices.Clone(reasons)), reasons, log.String())
}

// TestSignalWhileWaiting has a signal come before the ranks have started.
func TestSignalWhileWaiting(t *testing.T) {
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	rdzv := freeAddr(t)
	dialing := startNode(rdzv, 1, 3, 1, nil, "env")
	dialing.signals <- syscall.SIGINT
	assert.Equal(t, "ended by signal interrupt", requireExit(t, <-dialing.ended, 130))

	zero := startNode(rdzv, 0, 3, 1, nil, "env")
	joined := startNode(rdzv, 1, 3, 1, nil, "env")
	twin := startNode(rdzv, 2, 3, 1, func(c *Config) { c.JoinTimeout = time.Nanosecond }, "env")
	assert.ErrorContains(t, <-twin.ended, "launch: node 2 cannot join within 1ns")
	zero.signals <- syscall.SIGTERM
	assert.Equal(t, "ended by signal terminated", requireExit(t, <-zero.ended, 143))
	joined.signals <- syscall.SIGTERM // for a node that came too late, and waits for nobody
	err := <-joined.ended
	assert.Error(t, err)
	if exit, ok := err.(*ExitError); ok {
		assert.Equal(t, 143, exit.Code)
	}
}

func TestNodeConfig(t *testing.T) {
	ok := func() Config {
		return Config{Ranks: 1, Args: []string{"x"}, MinNodes: 2, MaxNodes: 2, Rendezvous: "h:1"}
	}
	for want, change := range map[string]func(*Config){
		"3 to 2 nodes":            func(c *Config) { c.MinNodes = 3 },
		"node rank 2 of 2":        func(c *Config) { c.NodeRank = 2 },
		"2 nodes need a rendezvo": func(c *Config) { c.Rendezvous = "" },
		"is negative":             func(c *Config) { c.JoinTimeout = -1 },
		"-1 restarts":             func(c *Config) { c.MaxRestarts = -1 },
	} {
		c := ok()
		change(&c)
		assert.ErrorContains(t, Run(c), want)
	}
	c := ok()
	c.Args = []string{os.Args[0]}
	t.Setenv("RINGO_JOB_SECRET", "")
	assert.ErrorContains(t, Run(c), "openssl rand -hex 32")
	t.Setenv("RINGO_JOB_SECRET", "hunter2")
	assert.ErrorContains(t, Run(c), "7 bytes, need 32")
	t.Setenv("RINGO_JOB_SECRET", identity.NewSecret())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	c.Rendezvous = taken.Addr().String()
	assert.ErrorContains(t, Run(c), "address already in use")
	c.Rendezvous = "no port"
	assert.ErrorContains(t, Run(c), "launch: rendezvous address: ")
}

func TestLostAfter(t *testing.T) {
	t.Setenv("RINGO_TIMEOUT", "")
	for timeout, want := range map[time.Duration]time.Duration{0: 15 * time.Second, time.Second: 2 * time.Second,
		4 * time.Second: 4 * time.Second, time.Hour: 15 * time.Second} {
		assert.Equal(t, want, (&Config{Timeout: timeout}).lostAfter())
	}
}

// TestUnknownRendezvous has node 0 listen everywhere when the rendezvous address is none of its own.
func TestUnknownRendezvous(t *testing.T) {
	for _, host := range []string{"no-such-host.invalid", "192.0.2.1"} {
		_, port, err := net.SplitHostPort(freeAddr(t))
		require.NoError(t, err)
		a, err := acceptNodes(&Config{Rendezvous: net.JoinHostPort(host, port)}, nil, nil)
		require.NoError(t, err)
		assert.True(t, a.Addr().(*net.TCPAddr).IP.IsUnspecified())
		a.Close()
	}
}

// TestPorts has rank 0 listen in the range of ports.
func TestPorts(t *testing.T) {
	first, err := listenInRange("127.0.0.1", "30000-30009")
	require.NoError(t, err)
	defer first.Close()
	second, err := listenInRange("127.0.0.1", "30000-30009")
	require.NoError(t, err)
	defer second.Close()
	a, b := first.Addr().(*net.TCPAddr).Port, second.Addr().(*net.TCPAddr).Port
	assert.True(t, b < a && b >= 30000 && a <= 30009, "%d, then %d", a, b)
	_, err = listenInRange("127.0.0.1", fmt.Sprintf("%d-%d", a, a))
	assert.ErrorContains(t, err, fmt.Sprintf("no port for rank 0 (RINGO_PORTS=%d-%d): ", a, a))
}

// TestBindAndPorts looks at what the ranks get, and at the values that are refused before anything starts.
func TestBindAndPorts(t *testing.T) {
	t.Setenv("RINGO_BIND", "10.1.2.3") // of a job around this one
	t.Setenv("RINGO_PORTS", "30100-30109")
	loopback := "lo"
	if runtime.GOOS == "darwin" {
		loopback = "lo0"
	}
	for _, x := range []struct{ bind, ports, says string }{
		{"", "", `bind 127\.0\.0\.1 master 127\.0\.0\.1:3010\d ports \[30100 30109\]`},
		{"auto", "30200-30209", `bind 127\.0\.0\.1 master 127\.0\.0\.1:3020\d ports \[30200 30209\]`},
		{loopback, "30200-30209", `bind 127\.0\.0\.1 master 127\.0\.0\.1:3020\d `},
		{"0.0.0.0", "30200-30209", `bind 0\.0\.0\.0 master 127\.0\.0\.1:3020\d `},
		{"127.0.0.1", "30300-30309", `bind 127\.0\.0\.1 master 127\.0\.0\.1:3030\d `},
	} {
		c, out := roleConfig(2, "env")
		c.Bind, c.Ports = x.bind, x.ports
		require.NoError(t, Run(c))
		assert.Len(t, regexp.MustCompile(x.says).FindAllString(out.String(), -1), 2, "%+v: %s", x, out)
	}
	for _, x := range []struct{ bind, ports, says string }{
		{"192.0.2.1", "", "launch: bind 192.0.2.1: "},
		{"eth99", "", "launch: bind eth99: neither an address nor an interface of this host, nor auto"},
		{"", "9", "launch: ports 9: not a range of ports such as 20000-20100"},
		{"", "20-10", "launch: ports 20-10: not a range"},
	} {
		c, _ := roleConfig(2, "env")
		c.Bind, c.Ports = x.bind, x.ports
		assert.ErrorContains(t, c.Check(), x.says)
		assert.ErrorContains(t, Run(c), x.says)
	}
	c, _ := roleConfig(maxLocal+1, "env")
	assert.EqualError(t, Run(c), "launch: 1025 ranks, want 1 to 1024 on a host")
	c.Ranks, c.MaxNodes, c.Rendezvous = 1, 2, "h:1"
	require.NoError(t, c.complete())
	assert.Equal(t, "10.1.2.3", c.Bind, "on several hosts the environment has its say")
}

// TestWire has notes arrive in order and whole, of progress the last; a silent peer is lost, and so is one that ends.
func TestWire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		out, in := newWire(a, time.Second), newWire(b, 60*time.Millisecond)
		long := strings.Repeat("x", maxText)
		out.send(note{Notice: long})
		for step := range 100 {
			out.send(note{Progress: &progress{Step: step}})
		}
		out.send(note{Kill: true})
		var got []note
		for len(got) == 0 || !got[len(got)-1].Kill {
			n, err := in.read()
			require.NoError(t, err)
			got = append(got, n)
		}
		assert.Equal(t, long, got[0].Notice)
		assert.Equal(t, 99, got[len(got)-2].Progress.Step)
		_, err := in.read() // the next sign of life comes later
		assert.EqualError(t, err, "no heartbeat for 60ms")
		in.finish()
		_, err = out.read()
		for err == nil {
			_, err = out.read()
		}
		assert.ErrorIs(t, err, errEnded)
		out.finish()
		<-out.writerDone
	})
}

// TestRefusedNodeKnowsWhy has a node that must not take part read slowly: the coordinator does not end before it knows. The node
// would try to join again.
func TestRefusedNodeKnowsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := &Config{Ranks: 1, MinNodes: 1, MaxNodes: 1, JoinTimeout: time.Hour, NodeWait: time.Hour}
		c, zero, err := newCoordinator(config)
		require.NoError(t, err)
		config.MinNodes, config.MaxNodes = 2, 2 // the rendezvous is a pipe
		c.nodes[0].hello = newHello(config)
		over := make(chan struct{})
		go func() {
			c.run()
			close(over)
		}()
		conn, theirs := net.Pipe()
		go c.newcomer(&node{hello: hello{Node: 1, Ranks: 1, Min: 3, Max: 3}, wire: newWire(conn, 0)})
		n, err := zero.read()
		require.NoError(t, err)
		require.NotNil(t, n.End)
		assert.Contains(t, n.End.Text, "nodes disagree about -nodes")
		zero.finish()
		synctest.Wait()
		select {
		case <-over:
			assert.Fail(t, "the coordinator has ended")
		default:
		}
		one := newWire(theirs, 0)
		n, err = one.read()
		require.NoError(t, err)
		assert.Equal(t, c.cannotStart, n.Refuse)
		one.finish()
		<-over
	})
}
